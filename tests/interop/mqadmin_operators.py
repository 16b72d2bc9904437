"""Commands about brokers, name servers and figures; wrong use; and the commands that came with 5.x."""

from __future__ import annotations

import re
import time

from . import mqadmin_shapes as shapes
from . import printed
from .mqadmin_session import Session
from .printed import counted

SAMPLES_S = 25.0
OVERVIEW = "the commands that there are"


def frame(at: Session) -> None:
    at.keep(OVERVIEW, sorted(re.findall(r"^ {3}(\w+) ", at.tool.mqadmin().text, re.MULTILINE)))
    at("nosuchcommand")
    at("updateTopic -t plain")
    at("updateTopic -b {broker}")
    at("updateTopic -b {broker} -c DefaultCluster -t plain")
    at("topicRoute")
    at("topicRoute -t")
    at("topicStatus -t plain --nosuchoption")
    at("topicStatus -h")


def settings(at: Session) -> None:
    at("getBrokerConfig -b {broker}", shapes.equations)
    at("getBrokerConfig -c DefaultCluster", shapes.equations)
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
    at("getBrokerConfig -b {broker}", shapes.changed_settings)


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


def statistics(at: Session) -> None:
    await_statistics(at)
    at("statsAll", shapes.sums)
    at("statsAll -a", shapes.sums)
    at("statsAll -t many", shapes.sums)
    at("statsAll -t nowhere", shapes.sums)
    at("exportMetrics -c DefaultCluster -f {work}")
    at.file("metrics.json")
    at("exportMetrics -c nowhere -f {work}")
    at("clusterList", counted)
    at("clusterList -m", shapes.more_statistics)
    at.newer("clusterList -c DefaultCluster", counted)
    at.newer("clusterList -c nowhere")
    at("brokerStatus -b {broker}", shapes.figures)
    at("brokerStatus -c DefaultCluster", shapes.figures)
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


def name_server(at: Session) -> None:
    at("updateKvConfig -s things -k color -v red")
    at("updateKvConfig -s things -k color")
    at("deleteKvConfig -s things -k color")
    at("deleteKvConfig -s things -k color")
    at("deleteKvConfig -s nothing -k color")
    at("getNamesrvConfig", shapes.equations)
    at("updateNamesrvConfig -k orderMessageEnable -v true")
    at("updateNamesrvConfig -k nosuchkey -v 1")
    at("updateNamesrvConfig -k kvConfigPath -v /tmp/other")
    at("updateNamesrvConfig -k orderMessageEnable")
    at("getNamesrvConfig", shapes.equations)
    at("topicRoute -t ordered")
    at("wipeWritePerm -b nobroker")
    at("wipeWritePerm -b broker-a", shapes.how_many)
    at("topicRoute -t plain -l")
    at("sendMessage -t plain -p body")
    at("addWritePerm -b broker-a", shapes.how_many)
    at("topicRoute -t plain -l")
    at("addWritePerm -b nobroker")


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
    at("clusterRT -a 3 -s 10 -i 60 -c DefaultCluster -p true -m roomA", shapes.round_trips, until="broker-a")
    at("clusterRT -a 3 -s 10 -i 60 -c nowhere", until="not exist")
    at("clusterList -i 60", until="broker-a")


def removing(at: Session) -> None:
    at("deleteSubGroup -b {broker} -g barred")
    at("getConsumerConfig -g barred", shapes.equations)
    at("deleteSubGroup -c DefaultCluster -g gone -r true")
    at("consumerProgress -g gone", shapes.progress_rows)
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
    at("getConsumerConfig -g listed", shapes.equations)
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
    at("haStatus -b {broker}", shapes.any_number)
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
    at("getBrokerLiteInfo -b {broker}", shapes.any_number)
    at("getParentTopicInfo -p many")
    at("getLiteTopicInfo -p many -l one")
    at("getLiteClientInfo -p many -g live -c {live}")
    at("getLiteGroupInfo -p many -g live")
    at("triggerLiteDispatch -p many -g live -b broker-a")
    at("switchTimerEngine -b {broker} -e F")


def monitoring(at: Session) -> None:
    """The monitor stays in the process; what can be seen at once is its member of a group."""
    at("startMonitoring", until="endRound")
    at.act("route", "%RETRY%__MONITOR_CONSUMER")
    at("consumerConnection -g __MONITOR_CONSUMER", counted)
