"""Commands about topics, messages, groups and offsets, and the scene for them.

The scene is set by Java clients: messages with and without tags and keys, live consumers of each kind, a
group whose member has gone, retries, dead letters and delays.
"""

from __future__ import annotations

import time

from . import mqadmin_shapes as shapes
from . import printed
from .mqadmin_session import Session
from .printed import counted


def topics(at: Session) -> None:
    at("updateTopic -c DefaultCluster -t plain -r 2 -w 3")
    at("updateTopic -b {broker} -t many -r 4 -w 4")
    at("UPDATETOPIC -b {broker} -t defaults")
    at("updateTopic -b {broker} -t ordered -r 2 -w 2 -o true")
    at("updateTopic -c DefaultCluster -t ordered2 -w 3 -o true")
    at("updateTopic -c DefaultCluster -t unit -r 1 -w 1 -u true -s true")
    at("updateTopic -c DefaultCluster -t writeonly -r 1 -w 1 -p 2")
    at("updateTopic -c DefaultCluster -t troubled -r 1 -w 1")
    at("updateTopic -c DefaultCluster -t late -r 1 -w 1")
    at("updateTopic -c nowhere -t lost")
    at("updateTopic -b {dead} -t lost")
    at("updateTopic -b {broker} -t 'a b'")
    at("updateTopic -b {broker} -t {long}")
    at("updateTopic -b {broker} -t TBW102")
    at("updateTopic -b {broker} -t SCHEDULE_TOPIC_XXXX")
    at("updateTopic -b {broker} -t bad -r x")
    at("updateTopic -b {broker} -t bad -r 0")
    at("updateTopic -b {broker} -t bad -p 9")
    at.newer("updateTopic -b {broker} -t typed -r 1 -w 1 -a +message.type=NORMAL")
    at.newer("updateTopic -b {broker} -t typed -r 1 -w 1 -a +message.type=NONE")
    at.newer("updateTopic -b {broker} -t typed -r 1 -w 1 -a +color=red")
    at.newer("updateTopic -b {broker} -t typed -r 1 -w 1 -a color")
    for topic in (
        "plain",
        "many",
        "defaults",
        "ordered",
        "ordered2",
        "unit",
        "writeonly",
        "troubled",
        "late",
    ):
        at.act("route", topic)
    for topic in ("plain", "ordered", "unit", "writeonly", "TBW102", "nowhere"):
        at(f"topicRoute -t {topic}")
    at("topicRoute -t plain -l")
    at("topicRoute -t nowhere -l")
    at("topicStatus -t plain")
    at("topicStatus -t ordered2")
    at("topicStatus -t nowhere")
    at("topicClusterList -t plain", counted)
    at("topicClusterList -t nowhere", counted)
    at("topicList", printed.without_chance)
    at("topicList -c", printed.without_chance)
    at("allocateMQ -t many -i 10.0.0.1,10.0.0.2")
    at("allocateMQ -t many -i 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5")
    at("allocateMQ -t nowhere -i 10.0.0.1")


def order(at: Session) -> None:
    """Of a topic that is not there: a broker that registers meanwhile would change one of its own."""
    at("updateOrderConf -t ordered -m get")
    at("updateOrderConf -t ordered2 -m get")
    at("updateOrderConf -t elsewhere -m get")
    at("updateOrderConf -t elsewhere -m put -v broker-a:3")
    at("updateOrderConf -t elsewhere -m get")
    at("updateOrderConf -t elsewhere -m put")
    at("updateOrderConf -t elsewhere -m delete")
    at("updateOrderConf -t elsewhere -m delete")
    at("updateOrderConf -t elsewhere -m get")
    at("updateOrderConf -t elsewhere -m nosuchmethod")
    at("updateOrderConf -t elsewhere")


def permissions(at: Session) -> None:
    at("updateTopicPerm -b {broker} -t defaults -p 4")
    at.act("perm", "defaults", 4)
    at("topicRoute -t defaults -l")
    at("updateTopicPerm -b {broker} -t defaults -p 4")
    at("updateTopicPerm -c DefaultCluster -t defaults -p 6")
    at.act("perm", "defaults", 6)
    at("updateTopicPerm -b {dead} -t defaults -p 2")
    at("updateTopicPerm -c nowhere -t defaults -p 2")
    at("updateTopicPerm -c DefaultCluster -t nowhere -p 2")
    at("updateTopicPerm -t defaults -p 2")
    at("updateTopicPerm -b {broker} -t defaults -p x")


def messages(at: Session) -> None:
    at.facts["begun"] = now()
    at.send("hello", "plain", 1, "tagA", "keyA keyB", "hello")
    at.send("second", "plain", 1, "tagB", "keyA", "second")
    at.send("bare", "plain", 1, "", "", "\u4f60\u597d")
    at.send("other", "plain", 0, "tagA", "keyC", "other")
    at.facts["beyond_at"] = at.facts["hello_at"][:16] + "0" * 12 + "FFFF"
    at.act("indexed", "plain", "keyC")
    at.facts["between"] = now()
    for number in range(8):
        at.send(f"m{number}", "many", number % 4, "BA"[number // 4], f"k{number}", f"m{number}")
    at.act("indexed", "many", "k7")
    at("topicStatus -t plain")
    at.newer("topicStatus -t plain -c DefaultCluster")
    at.newer("topicStatus -t plain -c nowhere")
    by_id = "queryMsgById -t plain" if at.tool.newer else "queryMsgById"
    at(f"{by_id} -i {{hello_at}}")
    at(f"{by_id} -i {{bare_at}}")
    at(f"{by_id} -i {{hello_at}},{{other_at}}")
    at(f"{by_id} -i {{hello}}")
    at(f"{by_id} -i nonsense")
    at(f"{by_id} -i {'7F000001' + '0' * 24}")
    at(f"{by_id} -i {{beyond_at}}")
    at.newer("queryMsgById -t plain -i {hello_at} -f UTF-8")
    at.newer("queryMsgById -t plain -i {hello_at} -c DefaultCluster")
    at.newer("queryMsgById -t nowhere -i {hello_at}")
    at("queryMsgByKey -t plain -k keyA")
    at("queryMsgByKey -t plain -k keyB")
    at("queryMsgByKey -t plain -k {hello}")
    at("queryMsgByKey -t plain -k nokey")
    at("queryMsgByKey -t nowhere -k keyA")
    at.newer("queryMsgByKey -t plain -k keyA -m 1")
    at.newer("queryMsgByKey -t plain -k keyA -b {begun} -e {between}")
    at.newer("queryMsgByKey -t plain -k keyA -b {between}")
    at.newer("queryMsgByKey -t plain -k keyA -c DefaultCluster")
    at("queryMsgByUniqueKey -t plain -i {hello}")
    at("queryMsgByUniqueKey -t plain -i {hello} -a")
    at("queryMsgByUniqueKey -t plain -i {hello_at}")
    at("queryMsgByUniqueKey -t nowhere -i {hello}")
    at.newer("queryMsgByUniqueKey -t plain -i {hello} -s {begun} -e {between}")
    at("queryMsgByOffset -t plain -b broker-a -i 1 -o 0")
    at("queryMsgByOffset -t plain -b broker-a -i 1 -o 2")
    at("queryMsgByOffset -t plain -b broker-a -i 1 -o 99")
    at("queryMsgByOffset -t plain -b broker-a -i 9 -o 0")
    at("queryMsgByOffset -t plain -b nobroker -i 1 -o 0")
    at("queryMsgByOffset -t nowhere -b broker-a -i 0 -o 0", failure=shapes.unknown_place)
    at.newer("queryMsgByOffset -t plain -b broker-a -i 1 -o 0 -f UTF-8")
    reading(at)


def reading(at: Session) -> None:
    at("printMsg -t plain", counted)
    at("printMsg -t plain -s tagA -d false", counted)
    at("printMsg -t plain -d true -c GBK", counted)
    at("printMsg -t plain -b {begun} -e {between}", counted)
    at("printMsg -t plain -b {between}", counted)
    at("printMsg -t many -s 'A || B' -d false", counted)
    at("printMsg -t nowhere")
    at("printMsgByQueue -t plain -a broker-a -i 1")
    at("printMsgByQueue -t plain -a broker-a -i 1 -p true -d true")
    at("printMsgByQueue -t plain -a broker-a -i 1 -p true -d true -s tagB")
    at("printMsgByQueue -t plain -a broker-a -i 1 -f true", counted)
    at("printMsgByQueue -t plain -a broker-a -i 1 -p true -b {between}")
    at("printMsgByQueue -t plain -a broker-a -i 9 -p true")
    at("printMsgByQueue -t plain -a nobroker -i 1 -p true")
    at("consumeMessage -t plain", counted)
    at("consumeMessage -t plain -c 1", counted)
    at("consumeMessage -t plain -b broker-a -i 1")
    at("consumeMessage -t plain -b broker-a -i 1 -o 1")
    at("consumeMessage -t plain -b broker-a -i 1 -o 1 -c 1 -g readers")
    at("consumeMessage -t plain -b broker-a -i 1 -o 99")
    at("consumeMessage -t plain -s {begun} -e {between}", counted)
    at("consumeMessage -t plain -c 0")
    at("consumeMessage -t plain -i 1")
    at("consumeMessage -t plain -b broker-a -o 1")
    at("consumeMessage -t plain -s 9999999999999")
    at("consumeMessage -t plain -e 9999999999999")
    at("consumeMessage -t plain -s {between} -e {begun}")
    at("consumeMessage -t nowhere")


def groups(at: Session) -> None:
    at("updateSubGroup -c DefaultCluster -g stubborn -r 1 -q 1 -d true -m true")
    at("updateSubGroup -b {broker} -g barred -s false -q 2 -r 3 -i 1 -w 2 -a false -d false -m false")
    at("updateSubGroup -b {broker} -g fickle")
    at("updateSubGroup -b {broker} -g fickle -s true -r 5")
    at("updateSubGroup -c nowhere -g lost")
    at("updateSubGroup -b {dead} -g lost")
    at("updateSubGroup -g lost")
    at("updateSubGroup -b {broker} -g 'a b'")
    at("updateSubGroup -b {broker} -g {long}{long}")
    at("updateSubGroup -b {broker} -g lost -r x")
    at.newer("updateSubGroup -b {broker} -g tidy -o true")
    at.newer("updateSubGroup -b {broker} -g tidy --attributes +nosuch=1")
    at("getConsumerConfig -g stubborn", shapes.equations)
    at("getConsumerConfig -g barred", shapes.equations)
    at("getConsumerConfig -g nogroup", shapes.equations)
    at("getConsumerConfig -g TOOLS_CONSUMER", shapes.equations)
    people(at)


def people(at: Session) -> None:
    """The live members, and one group whose member has gone."""
    at.facts["live"] = at.act("push", "live", "many", "*", "concurrently", -1)
    at.act("took", "live", 8)
    at.act("push", "gone", "many", "A", "concurrently", -1)
    at.act("took", "gone", 4)
    for queue in range(4):
        at.committed("live", "many", queue, 2)
    at.act("stop", "gone")
    for queue in range(4):
        at.committed("gone", "many", queue, 2)
    for number in range(4):
        at.send("o", "ordered", number % 2, "", "", f"o{number}")
    at.facts["inorder"] = at.act("push", "inorder", "ordered", "*", "orderly", -1)
    at.act("took", "inorder", 4)
    for queue in range(2):
        at.committed("inorder", "ordered", queue, 2)
    at.facts["cast"] = at.act("push", "cast", "many", "*", "broadcasting", -1)
    at.act("took", "cast", 8)
    at.act("heartbeat")
    at.facts["consumed"] = now()


def looking(at: Session) -> None:
    at("consumerConnection -g live", counted)
    at("consumerConnection -g live -b {broker}", counted)
    at("consumerConnection -g inorder", counted)
    at("consumerConnection -g cast", counted)
    at("consumerConnection -g gone")
    at("consumerConnection -g nogroup")
    at("consumerConnection -g live -b {dead}")
    at("producerConnection -g scene -t plain")
    at("producerConnection -g noproducer -t plain")
    at("producerConnection -g scene -t nowhere")
    at("producer -b {broker}", printed.without_chance)
    at("producer -b {dead}")
    running(at, "consumerStatus -g live")
    running(at, "consumerStatus -g live -s")
    running(at, "consumerStatus -g inorder -b {broker}")
    running(at, "consumerStatus -g live -i {live}")
    at("consumerStatus -g live -i nobody")
    at("consumerStatus -g gone")
    at("consumerStatus -g nogroup")
    by_id = "queryMsgById -t many" if at.tool.newer else "queryMsgById"
    at(f"{by_id} -i {{m1_at}}")
    at(f"{by_id} -i {{m1_at}} -g live -d {{live}}")
    at(f"{by_id} -i {{m1_at}} -g live -d nobody")
    at(f"{by_id} -i {{m1_at}} -g gone -d {{live}}")
    at("queryMsgByUniqueKey -t many -i {m2} -g live -d {live}")
    at("queryMsgByUniqueKey -t many -i {m2} -g nogroup -d {live}")
    at("queryMsgByUniqueKey -t many -i {m2}")


def running(at: Session, line: str) -> None:
    """What a live member told of itself, in the answer or in a file that is named there."""
    at(line, shapes.running_facts if "-i" in line else None)
    for path in sorted(at.work.glob("1*/*@*")):
        at.keep(f"{line}, its words", shapes.running_facts(at.clean.lines(path.read_text())))
        path.unlink()


def troubles(at: Session) -> None:
    """A message that is tried again, one that ends among the dead letters, one that comes later."""
    for body in ("fail 1", "later 2", "fine 3"):
        at.send(body.split()[0], "troubled", 0, "", body.replace(" ", ""), body)
    at.act("push", "stubborn", "troubled", "*", "concurrently", 1)
    at.act("took", "stubborn", 5)
    at.ends("%DLQ%stubborn", 0, 1)
    at.committed("stubborn", "troubled", 0, 3)
    at.committed("stubborn", "%RETRY%stubborn", 0, 2)
    at.act("delayed", "late", "late", 2)
    at.ends("late", 0, 1)
    at("topicRoute -t %RETRY%stubborn -l")
    at("topicRoute -t %DLQ%stubborn -l")
    at("topicStatus -t %RETRY%stubborn")
    at("topicStatus -t %DLQ%stubborn")
    at("printMsg -t %RETRY%stubborn")
    at("printMsg -t %DLQ%stubborn")
    at("queryMsgByKey -t %DLQ%stubborn -k fail1")
    at("queryMsgByOffset -t %DLQ%stubborn -b broker-a -i 0 -o 0")
    at("printMsg -t late")
    at("topicStatus -t SCHEDULE_TOPIC_XXXX")
    at("consumerProgress -g stubborn", shapes.progress_rows)
    at("getConsumerConfig -g stubborn", shapes.equations)
    by_id = "queryMsgById -t troubled" if at.tool.newer else "queryMsgById"
    at(f"{by_id} -i {{fine_at}}")
    at("updateTopicPerm -b {broker} -t %DLQ%stubborn -p 4")
    at("updateTopicPerm -b {broker} -t %DLQ%stubborn -p 6")


def progress(at: Session) -> None:
    for number in range(3):
        at.send(f"lag{number}", "many", number, "A", f"lag{number}", f"lag{number}")
    at.act("took", "live", 11 + 2)  # two were consumed directly before
    for queue in range(3):
        at.committed("live", "many", queue, 3)
    at("consumerProgress -g live", shapes.progress_rows)
    at("consumerProgress -g live -s true", shapes.progress_rows)
    at("consumerProgress -g inorder", shapes.progress_rows)
    at("consumerProgress -g gone", shapes.progress_rows)
    at("consumerProgress -g gone -s true", shapes.progress_rows)
    at("consumerProgress -g cast", shapes.progress_rows)
    at("consumerProgress -g nogroup", shapes.progress_rows)
    at("consumerProgress -g fickle", shapes.progress_rows)
    at.newer("consumerProgress -g live -t many", shapes.progress_rows)
    at.newer("consumerProgress -g live -t plain", shapes.progress_rows)
    at.newer("consumerProgress -g live -c DefaultCluster", shapes.progress_rows)
    at("consumerProgress", shapes.overview)
    at("brokerConsumeStats -b {broker}", counted)
    at("brokerConsumeStats -b {broker} -l 1", counted)
    at("brokerConsumeStats -b {broker} -l 2 -t 3000", counted)
    at("brokerConsumeStats -b {broker} -o true", counted)
    at("brokerConsumeStats -b {dead}")
    at("topicList -c", printed.without_chance)


def queues(at: Session) -> None:
    at("queryCq -t plain -q 1 -i 0")
    at("queryCq -t plain -q 1 -i 0 -c 1")
    at("queryCq -t plain -q 1 -i 2 -c 10 -b {broker}")
    at("queryCq -t plain -q 1 -i 9")
    at("queryCq -t plain -q 9 -i 0")
    at("queryCq -t nowhere -q 0 -i 0")
    at("queryCq -t many -q 0 -i 0 -g live")
    at("queryCq -t many -q 0 -i 0 -g nogroup")
    at("queryCq -t plain -q x -i 0")


def offsets(at: Session) -> None:
    at("cloneGroupOffset -s live -d twin -t many")
    at("cloneGroupOffset -s live -d fickle -t many -o true")
    at("consumerProgress -g fickle", shapes.progress_rows)
    at("cloneGroupOffset -s nogroup -d fickle -t many")
    at("cloneGroupOffset -s live -d fickle -t nowhere")
    at("resetOffsetByTime -g live -t many -s {begun}", counted)
    at.act("took", "live", 13 + 11)
    for queue in range(3):
        at.committed("live", "many", queue, 3)
    at("resetOffsetByTime -g live -t many -s now", counted)
    at("resetOffsetByTime -g live -t many -s {begun} -f false", counted)
    at("resetOffsetByTime -g live -t many -s 2020-01-01#00:00:00:000", counted)
    at("resetOffsetByTime -g live -t many -s yesterday")
    at("resetOffsetByTime -g live -t nowhere -s now")
    at("resetOffsetByTime -g live -t many")
    at("resetOffsetByTime -g nogroup -t many -s now")
    at("resetOffsetByTime -g gone -t many -s {begun}", counted)
    at("consumerProgress -g gone", shapes.progress_rows)
    at("resetOffsetByTime -g gone -t many -s now", counted)
    at("consumerProgress -g gone", shapes.progress_rows)
    at.newer("resetOffsetByTime -g gone -t many -s now -b {broker} -q 1 -o 1")
    at.newer("resetOffsetByTime -g gone -t many -s {begun} -b {broker} -q 2")
    at.newer("resetOffsetByTime -g gone -t many -s now -c DefaultCluster", counted)
    at("consumerProgress -g gone", shapes.progress_rows)
    at("skipAccumulatedMessage -g live -t many", counted)
    at("skipAccumulatedMessage -g live -t many -f false", counted)
    at("skipAccumulatedMessage -g gone -t many", counted)
    at("consumerProgress -g gone", shapes.progress_rows)
    at("skipAccumulatedMessage -g nogroup -t many")
    at("skipAccumulatedMessage -g live -t nowhere")
    at.newer("skipAccumulatedMessage -g live -t many -c DefaultCluster", counted)


def sending(at: Session) -> None:
    at("sendMessage -t plain -p body -k keyD -c tagD -b broker-a -i 2")
    at.act("indexed", "plain", "keyD")
    at("printMsgByQueue -t plain -a broker-a -i 2 -p true -d true")
    at("sendMessage -t late -p body")
    at("sendMessage -t late -p body -b broker-a")
    at("sendMessage -t plain -p body -i 1")
    at("sendMessage -t plain -p body -b broker-a -i 9")
    at("sendMessage -t plain -p body -b nobroker -i 0")
    at("sendMessage -t 'a b' -p body")
    at("sendMessage -t writeonly -p body -m true")
    at("sendMessage -t late -p body -m true -b broker-a -i 0")
    at.facts["traced"] = at.act("traced", "late", "traced")
    at("queryMsgTraceById -i {traced}", shapes.traces)
    at("QueryMsgTraceById -i {traced} -t RMQ_SYS_TRACE_TOPIC", shapes.traces)
    at("queryMsgTraceById -i {traced} -t nowhere")
    at.newer("queryMsgTraceById -i {traced} -c 1", shapes.traces)
    at("queryMsgTraceById -i {hello}")
    at("checkMsgSendRT -t late -a 3 -s 10", shapes.round_trips)
    at("checkMsgSendRT -t 'a b' -a 2 -s 10", shapes.round_trips)
    at("sendMsgStatus -b broker-a -c 2 -s 10", shapes.counted_sends)
    at("sendMsgStatus -b nobroker -c 1 -s 10", shapes.counted_sends)
    by_id = "queryMsgById -t plain" if at.tool.newer else "queryMsgById"
    at(f"{by_id} -i {{other_at}} -s true", shapes.counted_sends)
    at(f"{by_id} -i {{other_at}} -s true -u unitA", shapes.counted_sends)
    at(f"{by_id} -i {{other_at}} -s false")


def now() -> str:
    """The present, with a pause on both sides: what is sent before or after has another millisecond."""
    time.sleep(0.01)
    present = str(int(time.time() * 1000))
    time.sleep(0.01)
    return present
