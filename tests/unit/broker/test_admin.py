import json
from typing import Any

import msgspec
from tests.kit import virtual
from tests.unit.broker.kit import SMALL_STORE, Bench

from turbopump.broker.admin.runtime import lasted, size
from turbopump.broker.topics import Topic
from turbopump.protocol import dialect
from turbopump.protocol.bodies import KVTable
from turbopump.protocol.conf import parse_properties
from turbopump.protocol.names import SYSTEM_GROUPS
from turbopump.store.flags import Reason

CREATE, CREATE_LIST, ALL_TOPICS, TOPIC, DELETE, STATS = 17, 18, 21, 351, 215, 202
UPDATE_GROUPS, ALL_GROUPS, DELETE_GROUP, PROGRESS = 225, 201, 207, 208
UPDATE_CONFIG, SHOW_CONFIG, RUNTIME = 25, 26, 28

NEW = {"readQueueNums": 2, "writeQueueNums": 3, "perm": 6, "topicFilterType": "SINGLE_TAG"}


@virtual
async def test_a_created_topic_is_where_it_has_to_be_before_the_answer() -> None:
    bench = Bench()
    peer = bench.connect()
    answer = await peer.ask(CREATE, topic="T", **NEW)
    assert (answer.code, answer.remark, bench.settled) == (0, "not set any response code", 1)
    assert bench.topics.find("T") == Topic("T", 2, 3)
    await peer.ask(CREATE, topic="T", **NEW)
    assert bench.settled == 1


@virtual
async def test_a_topic_without_a_name_differs_from_one_with_a_blank_name() -> None:
    peer = Bench().connect()
    assert (await peer.ask(CREATE, **NEW)).code == 1
    assert (await peer.ask(CREATE, topic="", **NEW)).code == 29


@virtual
async def test_a_list_of_topics_is_created_with_their_attributes() -> None:
    bench = Bench()
    peer = bench.connect()
    configs = [
        {"topicName": "A"},
        {"topicName": "B", "readQueueNums": 1, "attributes": {"+message.type": "FIFO"}},
    ]
    answer = await peer.ask(CREATE_LIST, msgspec.json.encode({"topicConfigList": configs}))
    assert (answer.code, bench.settled) == (0, 1)
    assert bench.topics.find("B") == Topic("B", 1, 16, attributes={"message.type": "FIFO"})
    configs = [{"topicName": "C"}, {"topicName": "bad one"}]
    answer = await peer.ask(CREATE_LIST, msgspec.json.encode({"topicConfigList": configs}))
    assert answer.code == 29
    assert bench.topics.find("C") is None


@virtual
async def test_all_topics_come_at_once_or_in_pages() -> None:
    bench = Bench()
    peer = bench.connect()
    answer = await peer.ask(ALL_TOPICS)
    everything = json.loads(answer.body)
    names = sorted(everything["topicConfigTable"])
    assert answer.ext == {"totalTopicNum": str(len(names))}
    assert everything["topicQueueMappingInfoMap"] == everything["topicQueueMappingDetailMap"] == {}
    version = json.dumps(everything["dataVersion"])
    seen: list[str] = []
    while len(seen) < len(names):
        answer = await peer.ask(ALL_TOPICS, topicSeq=len(seen), dataVersion=version, maxTopicNum=4)
        seen += json.loads(answer.body)["topicConfigTable"]
    assert sorted(seen) == names
    for changed in ("", "nonsense", '{"counter":99}'):
        answer = await peer.ask(ALL_TOPICS, topicSeq=4, dataVersion=changed, maxTopicNum=4)
        assert sorted(json.loads(answer.body)["topicConfigTable"]) == names[:4]


@virtual
async def test_a_deleted_topic_takes_its_queues_and_offsets_with_it() -> None:
    bench = Bench()
    peer = bench.connect()
    await peer.ask(CREATE, topic="T", **NEW)
    bench.put("T", 0)
    bench.offsets.commit("G", "T", 0, 1)
    assert (await peer.ask(DELETE, topic="T")).code == 0
    assert bench.topics.find("T") is None
    assert bench.offsets.query("G", "T", 0) == -1
    assert bench.store.queues.find("T", 0) is None
    assert bench.settled == 2


@virtual
async def test_a_delete_of_what_is_no_topic_touches_no_directory() -> None:
    bench = Bench()
    bench.put("T", 0)
    for name in ("../commitlog", "..", ".", "/", "T/0", "unknown"):
        assert (await bench.connect().ask(DELETE, topic=name)).code == 0
    assert bench.store.queues.find("T", 0) is not None
    assert bench.disk.exists("/store/commitlog")


@virtual
async def test_what_is_left_of_a_topic_that_is_gone_can_still_be_deleted() -> None:
    bench = Bench()
    bench.put("T", 0)
    assert (await bench.connect().ask(DELETE, topic="T")).code == 0
    assert bench.store.queues.find("T", 0) is None


@virtual
async def test_statistics_of_a_topic_show_the_bounds_of_each_queue() -> None:
    bench = Bench()
    peer = bench.connect()
    await peer.ask(CREATE, topic="T", **NEW)
    bench.put("T", 1, 4)
    stored_ms = bench.clock.now_ms()
    answer = await peer.ask(STATS, topic="T")
    assert answer.body.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{')
    table = {
        json.loads(queue)["queueId"]: found
        for queue, found in dialect.loads(answer.body)["offsetTable"].items()
    }
    assert table == {
        0: {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
        1: {"lastUpdateTimestamp": stored_ms, "maxOffset": 4, "minOffset": 0},
        2: {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
    }


@virtual
async def test_groups_are_listed_changed_together_and_deleted_with_their_offsets() -> None:
    bench = Bench()
    peer = bench.connect()
    body = msgspec.json.encode(
        {"groupConfigList": [{"groupName": "G"}, {"groupName": "H", "retryMaxTimes": 2}]}
    )
    assert (await peer.ask(UPDATE_GROUPS, body)).code == 0
    answer = await peer.ask(ALL_GROUPS)
    table = json.loads(answer.body)
    assert set(table["subscriptionGroupTable"]) == {"G", "H"} | SYSTEM_GROUPS
    assert answer.ext == {"totalGroupNum": str(len(table["subscriptionGroupTable"]))}
    assert "forbiddenTable" in table
    bench.offsets.commit("G", "T", 0, 1)
    bench.offsets.commit("H", "T", 0, 1)
    await peer.ask(DELETE_GROUP, groupName="G", removeOffset="true")
    await peer.ask(DELETE_GROUP, groupName="H")
    assert [bench.offsets.query(group, "T", 0) for group in ("G", "H")] == [-1, 1]
    assert bench.settled == 3


@virtual
async def test_the_progress_of_a_group_is_shown_for_the_topics_it_reads() -> None:
    bench = Bench()
    peer = bench.connect()
    await peer.ask(CREATE, topic="T", **NEW)
    bench.put("T", 0, 5)
    bench.offsets.commit("G", "T", 0, 2)
    expected: dict[int, Any] = {
        0: {"brokerOffset": 5, "consumerOffset": 2, "lastTimestamp": bench.clock.now_ms(), "pullOffset": 2},
        1: {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0},
    }
    for fields in ({}, {"topic": "T"}, {"topicList": "T;"}):
        answer = await peer.ask(PROGRESS, consumerGroup="G", **fields)
        found = dialect.loads(answer.body)["offsetTable"]
        assert {json.loads(queue)["queueId"]: progress for queue, progress in found.items()} == expected
    answer = await peer.ask(PROGRESS, consumerGroup="stranger")
    assert dialect.loads(answer.body) == {"consumeTps": 0.0, "offsetTable": {}}


@virtual
async def test_the_configuration_is_shown_as_properties_with_its_version() -> None:
    answer = await Bench("regionId=north\\\\west").connect().ask(SHOW_CONFIG)
    assert answer.ext is not None
    assert set(json.loads(answer.ext["version"])) == {"counter", "stateVersion", "timestamp"}
    found = {entry.key: entry.value for entry in parse_properties(answer.body)}
    assert found["brokerName"] == "broker-a"
    assert found["regionId"] == "north\\west"
    assert found["flushDiskType"] == "ASYNC_FLUSH"


@virtual
async def test_few_values_change_while_the_broker_runs() -> None:
    bench = Bench()
    peer = bench.connect()
    assert (await peer.ask(UPDATE_CONFIG, b"brokerPermission=4\nautoCreateTopicEnable=false\n")).code == 0
    assert [(config.topics.permission, config.topics.auto_create) for config in bench.applied] == [(4, False)]
    answer = await peer.ask(SHOW_CONFIG)
    assert b"brokerPermission=4\n" in answer.body
    assert json.loads((answer.ext or {})["version"])["counter"] == 1


@virtual
async def test_other_changes_are_refused_whole_and_say_why() -> None:
    bench = Bench()
    peer = bench.connect()
    for body, code, remark in (
        (b"flushDiskType=SYNC_FLUSH", 1, "flushDiskType cannot change while the broker runs"),
        (b"brokerPermission=4\nlistenPort=1234", 1, "listenPort cannot change while the broker runs"),
        (b"brokerPermission=9", 1, "brokerPermission: must be a whole number from 0 to 7, got '9'"),
        (b"aclEnable=true", 16, "Can not update config in black list."),
        (b"authAuditGrants=true", 16, "Can not update config in black list."),
        (b"timerWheelEnable=false", 1, "timerWheelEnable cannot change while the broker runs"),
        (b"reviveInterval=5", 1, "reviveInterval=5 is not supported yet"),
        (b"rocketmqHome=/x", 16, "Can not update config in black list."),
        (b"zzz=1", 1, "zzz is an unknown key, nothing was changed"),
        (b"a=\\u12", 1, "four hexadecimal digits"),
    ):
        answer = await peer.ask(UPDATE_CONFIG, body)
        assert answer.code == code, body
        assert remark in (answer.remark or "")
    for body in (
        b"",
        b"flushDiskType=ASYNC_FLUSH",
        b"aclEnable=false",
        b"sendMessageThreadPoolNums=8",
    ):
        assert (await peer.ask(UPDATE_CONFIG, body)).code == 0, body
    assert bench.applied == []


@virtual
async def test_the_state_of_the_broker_has_every_key_that_tools_read() -> None:
    bench = Bench()
    bench.put("T", 0, 3)
    table = json.loads((await bench.connect().ask(RUNTIME)).body)["table"]
    assert set(TOOLS_READ) - set(table) == set()
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerVersionDesc"] == "V5_5_0"
    assert table["msgPutTotalTodayNow"] == "3"
    assert table["commitLogMaxOffset"] == str(bench.store.log.end)
    assert table["earliestMessageTimeStamp"] == str(bench.clock.now_ms())
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    assert [
        len(table[rate].split(" ")) for rate in TOOLS_READ if rate.endswith("Tps") and "timer" not in rate
    ] == [3] * 6
    assert f"commitLogDiskRatio_{SMALL_STORE.log_dir}" in table
    assert table["putMessageDistributeTime"].split(" ")[0] == "[<=0ms]:0"


@virtual
async def test_bytes_that_a_slave_has_copied_and_not_dispatched_are_behind() -> None:
    bench = Bench()
    bench.store.replica.open()
    bench.store.replica.append(memoryview(bytes(100)))
    table = KVTable.decode((await bench.connect().ask(RUNTIME)).body).table
    assert table["dispatchBehindBytes"] == "100"


def test_durations_and_sizes_read_as_apache_prints_them() -> None:
    assert lasted(((26 * 60 + 3) * 60 + 4) * 1000 + 999) == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert [size(count) for count in (0, 1023, 1024, 1536 * 1024, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "5.0 TiB",
    ]


@virtual
async def test_a_broker_that_takes_no_messages_says_so_and_why() -> None:
    bench = Bench()
    table = KVTable.decode((await bench.connect().ask(RUNTIME)).body).table
    assert (table["brokerActive"], table.get("storeTrouble")) == ("true", None)
    bench.store.flags.set(Reason.DISK_FULL, "(95 % used)")
    table = KVTable.decode((await bench.connect().ask(RUNTIME)).body).table
    assert table["brokerActive"] == "false"
    assert table["storeTrouble"] == "service not available now: the broker's disk is full (95 % used)"


TOOLS_READ = """
putTps getTransferredTps getTransferedTps getTotalTps getFoundTps getMissTps brokerVersionDesc brokerVersion
brokerActive earliestMessageTimeStamp commitLogDiskRatio pageCacheLockTimeMills sendThreadPoolQueueSize
pullThreadPoolQueueSize ackThreadPoolQueueSize litePullThreadPoolQueueSize queryThreadPoolQueueSize
sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity ackThreadPoolQueueCapacity
litePullThreadPoolQueueCapacity queryThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills
ackThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueHeadWaitTimeMills timerReadBehind
timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps msgPutTotalYesterdayMorning
msgPutTotalTodayMorning msgPutTotalTodayNow msgGetTotalYesterdayMorning msgGetTotalTodayMorning
msgGetTotalTodayNow bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes
putMessageSizeTotal putMessageDistributeTime putMessageAverageSize dispatchMaxBuffer getMessageEntireTimeMax
putLatency99 putLatency999 consumeQueueDiskRatio commitLogMinOffset commitLogMaxOffset dispatchBehindBytes
startAcceptSendRequestTimeStamp remainTransientStoreBufferNumbs remainHowManyDataToFlush
commitLogDirCapacity EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
""".split()  # noqa: SIM905
