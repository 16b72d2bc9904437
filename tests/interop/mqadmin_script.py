"""Every mqadmin command of 4.9, except those about access rights, with good and bad arguments, in one order.
After them those that came with 5.x.

Whichever tool runs it against whichever servers: on a fresh cluster the same facts are printed. The scene is
set by Java clients, so that the tools have something to look at: messages with and without tags and keys,
live consumers of each kind, a group that has gone, retries, dead letters and delays.
"""

from __future__ import annotations

import re
import time
from functools import partial

from . import printed
from .clients import Answers
from .mqadmin_session import Session
from .printed import Facts, counted

# Delays of a second, so that a retry is not waited for.
CONF = {"messageDelayLevel": "1s 1s 1s 1s 1s 1s", "traceTopicEnable": "true"}

equations = partial(printed.settings, separator="=")
# What a broker says of itself that is neither a figure of this run nor of this machine.
SAMPLES_S = 25.0
LASTING_FIGURES = re.compile(r"brokerVersionDesc|brokerActive|commitLogMinOffset|\w*Capacity|msg\w+Morning")


def run(session: Session) -> Answers:
    for part in PARTS:
        with session.section(part.__name__.replace("_", " ")):
            part(session)
    return session.answers


def frame(at: Session) -> None:
    at("nosuchcommand")
    at("updateTopic -t plain")
    at("updateTopic -b {broker}")
    at("updateTopic -b {broker} -c DefaultCluster -t plain")
    at("topicRoute")
    at("topicRoute -t")
    at("topicStatus -t plain --nosuchoption")
    at("topicStatus -h")


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
    at("updateOrderConf -t ordered -m get")
    at("updateOrderConf -t ordered2 -m get")
    at("updateOrderConf -t plain -m get")
    at("updateOrderConf -t plain -m put -v broker-a:3")
    at("updateOrderConf -t plain -m get")
    at("topicRoute -t plain")
    at("updateOrderConf -t plain -m put")
    at("updateOrderConf -t plain -m delete")
    at("updateOrderConf -t plain -m delete")
    at("updateOrderConf -t plain -m get")
    at("updateOrderConf -t plain -m nosuchmethod")
    at("updateOrderConf -t plain")


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
    at("queryMsgByOffset -t nowhere -b broker-a -i 0 -o 0")
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
    at("getConsumerConfig -g stubborn", equations)
    at("getConsumerConfig -g barred", equations)
    at("getConsumerConfig -g nogroup", equations)
    at("getConsumerConfig -g TOOLS_CONSUMER", equations)
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
    at(line, running_facts if "-i" in line else None)
    for path in sorted(at.work.glob("1*/*@*")):
        at.keep(f"{line}, its words", running_facts(at.clean.lines(path.read_text())))
        path.unlink()


def running_facts(lines: list[str]) -> Facts:
    """Queues, subscriptions and whether threads are shown; all else is the client's own affair."""
    facts = {line for line in lines if re.search(r"\bTopic: ", line)}
    facts.update(
        found[0] for line in lines if (found := re.match(r"\S+ broker-a \d+(?= ProcessQueue)", line))
    )
    facts.update("threads" for line in lines if "ConsumeMessageThread" in line)
    return sorted(facts)


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
    at("consumerProgress -g stubborn", progress_rows)
    at("getConsumerConfig -g stubborn", equations)
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
    at("consumerProgress -g live", progress_rows)
    at("consumerProgress -g live -s true", progress_rows)
    at("consumerProgress -g inorder", progress_rows)
    at("consumerProgress -g gone", progress_rows)
    at("consumerProgress -g gone -s true", progress_rows)
    at("consumerProgress -g cast", progress_rows)
    at("consumerProgress -g nogroup", progress_rows)
    at("consumerProgress -g fickle", progress_rows)
    at.newer("consumerProgress -g live -t many", progress_rows)
    at.newer("consumerProgress -g live -t plain", progress_rows)
    at.newer("consumerProgress -g live -c DefaultCluster", progress_rows)
    at("consumerProgress", overview)
    at("brokerConsumeStats -b {broker}", counted)
    at("brokerConsumeStats -b {broker} -l 1", counted)
    at("brokerConsumeStats -b {broker} -l 2 -t 3000", counted)
    at("brokerConsumeStats -b {broker} -o true", counted)
    at("brokerConsumeStats -b {dead}")
    at("topicList -c", printed.without_chance)


def overview(lines: list[str]) -> Facts:
    """All groups; how many messages a second is of the moment."""
    return printed.without_chance([re.sub(r" \d+ (\d+)$", rf" {printed.N} \1", line) for line in lines])


def progress_rows(lines: list[str]) -> Facts:
    """A queue of retries that is empty is shown once a pull of it has ended, which takes some seconds."""
    return [line for line in lines if not re.match(r"%RETRY%\w+ broker-a 0 0 0 ", line)]


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
    at("consumerProgress -g fickle", progress_rows)
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
    at("consumerProgress -g gone", progress_rows)
    at("resetOffsetByTime -g gone -t many -s now", counted)
    at("consumerProgress -g gone", progress_rows)
    at.newer("resetOffsetByTime -g gone -t many -s now -b {broker} -q 1 -o 1")
    at.newer("resetOffsetByTime -g gone -t many -s {begun} -b {broker} -q 2")
    at.newer("resetOffsetByTime -g gone -t many -s now -c DefaultCluster", counted)
    at("consumerProgress -g gone", progress_rows)
    at("skipAccumulatedMessage -g live -t many", counted)
    at("skipAccumulatedMessage -g live -t many -f false", counted)
    at("skipAccumulatedMessage -g gone -t many", counted)
    at("consumerProgress -g gone", progress_rows)
    at("skipAccumulatedMessage -g nogroup -t many")
    at("skipAccumulatedMessage -g live -t nowhere")
    at.newer("skipAccumulatedMessage -g live -t many -c DefaultCluster", counted)


def statistics(at: Session) -> None:
    await_statistics(at)
    at("statsAll", sums)
    at("statsAll -a", sums)
    at("statsAll -t many", sums)
    at("statsAll -t nowhere", sums)
    at("exportMetrics -c DefaultCluster -f {work}")
    at.file("metrics.json")
    at("exportMetrics -c nowhere -f {work}")
    at("clusterList", counted)
    at("clusterList -m", more_statistics)
    at.newer("clusterList -c DefaultCluster", counted)
    at.newer("clusterList -c nowhere")
    at("brokerStatus -b {broker}", figures)
    at("brokerStatus -c DefaultCluster", figures)
    at("brokerStatus -c nowhere")
    at("brokerStatus -b {dead}")
    at("brokerStatus")


def await_statistics(at: Session) -> None:
    """Brokers take their samples every ten seconds: waits until the last messages are counted."""
    deadline = time.monotonic() + SAMPLES_S
    row = re.compile(r"^many +live .* 11 +11$", re.MULTILINE)
    while time.monotonic() < deadline:
        if row.search(at.tool.mqadmin("statsAll", "-t", "many", "-n", at.cluster.namesrv).text):
            return
        time.sleep(0.5)


def figures(lines: list[str]) -> Facts:
    """Figures of this run are only there or not; capacities and the version have a value."""
    found = printed.settings([line.removeprefix("<broker> ") for line in lines], ":")
    assert isinstance(found, dict)
    return {name: value if LASTING_FIGURES.fullmatch(name) else printed.N for name, value in found.items()}


def more_statistics(lines: list[str]) -> Facts:
    """Messages of today: how many depends on how often clients asked."""
    return [re.sub(r" [1-9]\d*", f" {printed.N}", line) for line in lines]


def sums(lines: list[str]) -> Facts:
    return printed.without_chance(
        [line for line in lines if not line.startswith("broker-a ")]
    )  # tools send to it


def settings(at: Session) -> None:
    at("getBrokerConfig -b {broker}", equations)
    at("getBrokerConfig -c DefaultCluster", equations)
    at("getBrokerConfig -c nowhere")
    at("getBrokerConfig -b {dead}")
    at("getBrokerConfig")
    at("updateBrokerConfig -b {broker} -k fileReservedTime -v 71")
    at("updateBrokerConfig -c DefaultCluster -k flushCommitLogTimed -v false")
    at("updateBrokerConfig -b {broker} -k nosuchkey -v 1")
    at("updateBrokerConfig -b {broker} -k fileReservedTime -v many")
    at("updateBrokerConfig -b {broker} -k brokerConfigPath -v /tmp/other")
    at("updateBrokerConfig -b {broker} -k rocketmqHome -v /tmp/other")
    at("updateBrokerConfig -c nowhere -k fileReservedTime -v 71")
    at("updateBrokerConfig -b {broker} -k fileReservedTime")
    at.newer("updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 73 -a true")
    at("getBrokerConfig -b {broker}", changed_settings)


def changed_settings(lines: list[str]) -> Facts:
    names = ("fileReservedTime ", "flushCommitLogTimed ", "nosuchkey ", "rocketmqHome ")
    return equations([line for line in lines if line.startswith(names)])


def export(at: Session) -> None:
    at("exportMetadata -b {broker} -t -f {work}")
    at.file("topic.json")
    at("exportMetadata -b {broker} -t -s -f {work}")
    at.file("topic.json")
    at("exportMetadata -b {broker} -g -f {work}")
    at.file("subscriptionGroup.json")
    at("exportMetadata -c DefaultCluster -f {work}")
    at.file("metadata.json")
    at("exportMetadata -c nowhere -f {work}")
    at.file("metadata.json")
    at("exportMetadata -b {dead} -t -f {work}")
    at("exportMetadata")
    at("exportConfigs -c DefaultCluster -f {work}")
    at.file("configs.json")
    at("exportConfigs -c nowhere -f {work}")
    at.file("configs.json")


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
    at.act("indexed", "RMQ_SYS_TRACE_TOPIC", at.facts["traced"])
    at("queryMsgTraceById -i {traced}", traces)
    at("QueryMsgTraceById -i {traced} -t RMQ_SYS_TRACE_TOPIC", traces)
    at("queryMsgTraceById -i {traced} -t nowhere")
    at.newer("queryMsgTraceById -i {traced} -c 1", traces)
    at("queryMsgTraceById -i {hello}")
    at("checkMsgSendRT -t late -a 3 -s 10", round_trips)
    at("checkMsgSendRT -t 'a b' -a 2 -s 10", round_trips)
    at("sendMsgStatus -b broker-a -c 2 -s 10", counted_sends)
    at("sendMsgStatus -b nobroker -c 1 -s 10", counted_sends)
    by_id = "queryMsgById -t plain" if at.tool.newer else "queryMsgById"
    at(f"{by_id} -i {{other_at}} -s true", counted_sends)
    at(f"{by_id} -i {{other_at}} -s true -u unitA", counted_sends)
    at(f"{by_id} -i {{other_at}} -s false")


def traces(lines: list[str]) -> Facts:
    return [re.sub(r"\b\d+ms\b", f"{printed.N}ms", line) for line in lines]


def round_trips(lines: list[str]) -> Facts:
    return [re.sub(r"\d+$", printed.N, line) for line in lines]


def counted_sends(lines: list[str]) -> Facts:
    """To which queue and offset is chance."""
    return [re.sub(r"(ueueId=|ueOffset=)\d+", rf"\1{printed.N}", line) for line in lines]


def name_server(at: Session) -> None:
    at("updateKvConfig -s things -k color -v red")
    at("updateKvConfig -s things -k color")
    at("deleteKvConfig -s things -k color")
    at("deleteKvConfig -s things -k color")
    at("deleteKvConfig -s nothing -k color")
    at("getNamesrvConfig", equations)
    at("updateNamesrvConfig -k orderMessageEnable -v true")
    at("updateNamesrvConfig -k nosuchkey -v 1")
    at("updateNamesrvConfig -k kvConfigPath -v /tmp/other")
    at("updateNamesrvConfig -k orderMessageEnable")
    at("getNamesrvConfig", equations)
    at("topicRoute -t ordered")
    at("wipeWritePerm -b nobroker")
    at("wipeWritePerm -b broker-a", how_many)
    at("topicRoute -t plain -l")
    at("sendMessage -t plain -p body")
    at("addWritePerm -b broker-a", how_many)
    at("topicRoute -t plain -l")
    at("addWritePerm -b nobroker")


def how_many(lines: list[str]) -> Facts:
    """How many topics of its own a broker has is its own affair."""
    return [re.sub(r"OK, \d+", f"OK, {printed.N}", line) for line in lines]


def maintenance(at: Session) -> None:
    for command in ("cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic"):
        at(f"{command} -b {{broker}}")
        at(f"{command} -c DefaultCluster")
        at(command)
        at(f"{command} -c nowhere")
        at(f"{command} -b {{dead}}")
    at("topicStatus -t many")


def endless(at: Session) -> None:
    """Those that go on: one round, then they are interrupted."""
    at("clusterRT -a 3 -s 10 -i 60", until="broker-a")
    at("clusterRT -a 3 -s 10 -i 60 -c DefaultCluster -p true -m roomA", round_trips, until="broker-a")
    at("clusterRT -a 3 -s 10 -i 60 -c nowhere", until="not exist")
    at("clusterList -i 60", until="broker-a")


def removing(at: Session) -> None:
    at("deleteSubGroup -b {broker} -g barred")
    at("getConsumerConfig -g barred", equations)
    at("deleteSubGroup -c DefaultCluster -g gone -r true")
    at("consumerProgress -g gone", progress_rows)
    at("topicRoute -t %RETRY%gone")
    at("deleteSubGroup -c DefaultCluster -g nogroup")
    at("deleteSubGroup -b {broker} -g nogroup")
    at("deleteSubGroup -c nowhere -g nogroup")
    at("deleteSubGroup -g live")
    at("deleteTopic -c DefaultCluster -t unit")
    at("topicRoute -t unit")
    at("topicStatus -t unit")
    at("deleteTopic -c DefaultCluster -t ordered2")
    at("updateOrderConf -t ordered2 -m get")
    at("deleteTopic -c DefaultCluster -t nowhere")
    at("deleteTopic -c nowhere -t lost")
    at("deleteTopic -t plain")
    at("deleteTopic -c DefaultCluster -t TBW102")
    at("topicList", printed.without_chance)


def commands_of_5(at: Session) -> None:
    """They came with 5.x. What they need is mostly not ours to give: then a word about it, no waiting."""
    if not at.tool.newer:
        return
    at.write(
        "topics.json",
        [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in "xy"],
    )
    at("updateTopicList -b {broker} -f {work}/topics.json")
    at("updateTopicList -b {broker} -f {work}/nosuch.json")
    at("topicRoute -t y -l")
    at.write("groups.json", [{"groupName": "listed", "retryMaxTimes": 2}])
    at("updateSubGroupList -b {broker} -f {work}/groups.json")
    at("getConsumerConfig -g listed", equations)
    at("setConsumeMode -b {broker} -t many -g live -m PULL")
    at("setConsumeMode -b {broker} -t many -g live -m POP -q 1")
    at("updateStaticTopic -b broker-a -t fixed -qn 2")
    at("remappingStaticTopic -b broker-a -t fixed")
    at("getBrokerEpoch -b broker-a")
    at("getColdDataFlowCtrInfo -b {broker}")
    at("updateColdDataFlowCtrGroupConfig -b {broker} -g live -v 1000")
    at("removeColdDataFlowCtrGroupConfig -b {broker} -g live")
    at("setCommitLogReadAheadMode -b {broker} -m 1")
    at("resetMasterFlushOffset -b {broker} -o 0")
    at("haStatus -b {broker}", any_number)
    at("getSyncStateSet -a {broker} -b broker-a")
    at("getControllerMetaData -a {broker}")
    at("getControllerConfig -a {broker}")
    at("updateControllerConfig -a {broker} -k a -v b")
    at("electMaster -a {broker} -b 0 -bn broker-a -c DefaultCluster")
    at("cleanBrokerMetadata -a {broker} -bn broker-a -c DefaultCluster")
    at("addBroker -c {broker} -b /nosuch.conf")
    at("removeBroker -c {broker} -b DefaultCluster:broker-b:1")
    at("createUser -b {broker} -u somebody -p secret1")
    at("updateUser -b {broker} -u somebody -p secret2")
    at("getUser -b {broker} -u somebody")
    at("listUser -b {broker}")
    at("copyUser -f {broker} -t {dead} -u somebody")
    at("deleteUser -b {broker} -u somebody")
    at("createAcl -b {broker} -s User:somebody -r Topic:many -a PUB -d ALLOW")
    at("updateAcl -b {broker} -s User:somebody -r Topic:many -a SUB -d ALLOW")
    at("getAcl -b {broker} -s User:somebody")
    at("listAcl -b {broker}")
    at("copyAcl -f {broker} -t {dead} -s User:somebody")
    at("deleteAcl -b {broker} -s User:somebody")
    at("exportPopRecord -b {broker} -d true")
    at("rocksDBConfigToJson -t topics -b {broker}")
    at("checkRocksdbCqWriteProgress -c DefaultCluster")
    at("getBrokerLiteInfo -b {broker}", any_number)
    at("getParentTopicInfo -p many")
    at("getLiteTopicInfo -p many -l one")
    at("getLiteClientInfo -p many -g live -c {live}")
    at("getLiteGroupInfo -p many -g live")
    at("triggerLiteDispatch -p many -g live -b broker-a")
    at("switchTimerEngine -b {broker} -e F")


def any_number(lines: list[str]) -> Facts:
    return [re.sub(r"(?<= )\d+\b", printed.N, line) for line in lines]


def monitoring(at: Session) -> None:
    """The monitor stays in the process; what can be seen at once is its member of a group."""
    at("startMonitoring", until="endRound")
    at("consumerConnection -g __MONITOR_CONSUMER", counted)


def now() -> str:
    """The present, with a pause on both sides: what is sent before or after has another millisecond."""
    time.sleep(0.01)
    present = str(int(time.time() * 1000))
    time.sleep(0.01)
    return present


PARTS = (
    frame,
    topics,
    order,
    permissions,
    messages,
    groups,
    looking,
    troubles,
    progress,
    queues,
    settings,
    export,
    statistics,
    offsets,
    sending,
    name_server,
    maintenance,
    endless,
    removing,
    commands_of_5,
    monitoring,
)
