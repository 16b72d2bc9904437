import struct
import time
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import readable, relaxed

from turbopump.protocol import bodies
from turbopump.protocol.bodies import (
    BrokerData,
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    HeartbeatData,
    QueueData,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
    WireQueue,
    registration,
)
from turbopump.protocol.errors import BrokenBody

ASKED: dict[int, type[bodies.Body]] = {
    18: bodies.CreateTopicListRequestBody,
    34: bodies.HeartbeatData,
    41: bodies.LockBatchRequestBody,
    42: bodies.UnlockBatchRequestBody,
    46: bodies.CheckClientRequestBody,
    103: bodies.RegisterBrokerBody,
    200: bodies.SubscriptionGroupConfig,
    220: bodies.ResetOffsetBody,
    225: bodies.CreateSubscriptionGroupListRequestBody,
    400: bodies.QueryAssignmentRequestBody,
    401: bodies.SetMessageRequestModeRequestBody,
}
ANSWERED: dict[int, type[bodies.Body]] = {
    21: bodies.TopicConfigSerializeWrapper,
    28: bodies.KVTable,
    38: bodies.ConsumerListBody,
    41: bodies.LockBatchResponseBody,
    43: bodies.ConsumerOffsetSerializeWrapper,
    45: bodies.DelayOffsetSerializeWrapper,
    105: bodies.TopicRouteData,
    106: bodies.ClusterInfo,
    201: bodies.SubscriptionGroupWrapper,
    202: bodies.TopicStatsTable,
    203: bodies.ConsumerConnection,
    204: bodies.ProducerConnection,
    206: bodies.TopicList,
    208: bodies.ConsumeStats,
    219: bodies.KVTable,
    221: bodies.GetConsumerStatusBody,
    222: bodies.ResetOffsetBody,
    223: bodies.GetConsumerStatusBody,
    224: bodies.TopicList,
    300: bodies.GroupList,
    303: bodies.QueryConsumeTimeSpanBody,
    304: bodies.TopicList,
    305: bodies.TopicList,
    308: bodies.QueryCorrectionOffsetBody,
    309: bodies.ConsumeMessageDirectlyResult,
    315: bodies.BrokerStatsData,
    317: bodies.ConsumeStatsList,
    321: bodies.QueryConsumeQueueResponseBody,
    322: bodies.DataVersion,
    328: bodies.ProducerTableInfo,
    343: bodies.TopicList,
    345: bodies.QuerySubscriptionResponseBody,
    351: bodies.TopicConfig,
    352: bodies.SubscriptionGroupConfig,
    353: bodies.GroupForbidden,
    400: bodies.QueryAssignmentResponseBody,
    402: bodies.MessageRequestModeTable,
    901: bodies.GetBrokerMemberGroupResponseBody,
    907: bodies.HARuntimeInfo,
    3004: bodies.UserInfo,
    3009: bodies.AclInfo,
}


def test_bodies_of_5_5_are_written_again_byte_for_byte() -> None:
    """Also maps with integers and with queues as keys; the standard form of routes is for the name server."""
    seen = set()
    for row, _, command in readable():
        kind = ANSWERED.get(row.asked or 0) if command.is_response else ASKED.get(command.code)
        newest = "server-5.5.0" in row.file if command.is_response else "client-5.5.0" in row.file
        newest |= row.file in ("mqadmin-5.5.0", "register-5.5.0")
        newest |= row.file == "exchanges-5.5.0" and row.part == "resp"
        if not (row.by_java and newest and kind and command.body) or (command.is_response and command.code):
            continue
        if row.about == "307" or b'"brokerAddrs":{"' in command.body or command.body == b"{}":
            continue
        if kind is bodies.QueryConsumeQueueResponseBody and b"queueData" not in command.body:
            continue
        assert kind.decode(command.body).encode() == command.body, row
        seen.add(kind)
    assert len(seen) >= 38


def test_every_captured_body_is_read() -> None:
    for row, _, command in readable():
        kind = ANSWERED.get(row.asked or 0) if command.is_response else ASKED.get(command.code)
        if row.by_java and kind and command.body and not (command.is_response and command.code):
            again = kind.decode(kind.decode(command.body).encode())
            assert again == kind.decode(command.body), row


def all_bodies() -> list[type[bodies.Body]]:
    kinds = [bodies.Body]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return sorted(set(kinds) - {bodies.Body, bodies.DialectBody}, key=lambda kind: kind.__name__)


def test_an_empty_object_has_javas_defaults_and_keys_are_alphabetical() -> None:
    for kind in all_bodies():
        empty = kind.decode(b"{}")
        assert kind.decode(empty.encode()) == empty
        names = [name for name in kind.__struct_fields__ if name != "topicSynFlag"]
        assert names == sorted(names)


@pytest.mark.parametrize("data", [b"", b"[]", b"5", b"null", b"{", b"\xff", b'{"a":1}x', b"{'a':1}"])
def test_garbage_is_broken(data: bytes) -> None:
    for kind in all_bodies():
        with pytest.raises(BrokenBody):
            kind.decode(data)


def test_nulls_count_as_absent() -> None:
    for kind in all_bodies():
        nulls = msgspec.json.encode(dict.fromkeys(kind.__struct_fields__))
        found, empty = kind.decode(nulls), kind.decode(b"{}")
        for name in kind.__struct_fields__:
            assert getattr(found, name) in (None, getattr(empty, name))


def test_routes_have_unquoted_ids_and_no_blanks() -> None:
    route = TopicRouteData(
        brokerDatas=[BrokerData(brokerAddrs={0: "h:1", 2: "h:2"}, brokerName="b", cluster="c")],
        queueDatas=[QueueData(brokerName="b", perm=6, readQueueNums=4, writeQueueNums=4)],
    )
    assert route.encode() == (
        b'{"brokerDatas":[{"brokerAddrs":{0:"h:1",2:"h:2"},"brokerName":"b","cluster":"c"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,'
        b'"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert TopicRouteData.decode(route.encode()) == route
    assert TopicRouteData.decode(msgspec.json.encode(route)) == route  # the standard form


def test_the_old_spelling_of_the_topic_flag_is_read() -> None:
    assert QueueData.decode(b'{"topicSynFlag":2}') == QueueData(topicSysFlag=2)
    assert b"topicSynFlag" not in QueueData.decode(b'{"topicSynFlag":2}').encode()


def test_queues_are_keys_bare_or_as_text_and_values() -> None:
    queue = WireQueue("b", 0, "T")
    bare = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'
    as_text = b'{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":5}}'
    assert ResetOffsetBody({queue: 5}).encode() == bare
    assert ResetOffsetBody.decode(bare) == ResetOffsetBody.decode(as_text) == ResetOffsetBody({queue: 5})
    locks = bodies.LockBatchResponseBody([queue])
    assert locks.encode() == b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'
    assert bodies.LockBatchResponseBody.decode(locks.encode()) == locks


def test_queues_compare_hash_and_sort() -> None:
    first, second = WireQueue("b", 0, "A"), WireQueue("a", 1, "B")
    assert sorted([second, first]) == [first, second]
    assert {first, WireQueue("b", 0, "A")} == {first}
    assert first != second
    assert first != "A"
    assert repr(first) == "WireQueue('b', 0, 'A')"


@pytest.mark.parametrize("key", [b"5", b"[]", b'"x"', b'{"queueId":"x"}', b"{", b""])
def test_a_key_that_is_no_queue_is_broken(key: bytes) -> None:
    text = msgspec.json.encode(key.decode())
    with pytest.raises(BrokenBody):
        ResetOffsetBody.decode(b'{"offsetTable":{%b:5}}' % text)


def test_numbers_may_be_quoted_as_go_clients_do() -> None:
    data = b'{"codeSet":["2598919","-5"],"subVersion":"7","topic":"T"}'
    assert SubscriptionData.decode(data) == SubscriptionData(codeSet=[2598919, -5], subVersion=7, topic="T")


def test_a_heartbeat_without_anything_is_one() -> None:
    beat = HeartbeatData.decode(b"{}")
    assert (beat.clientID, beat.consumerDataSet, beat.heartbeatFingerprint) == (None, [], 0)


def test_a_group_has_apaches_defaults() -> None:
    assert SubscriptionGroupConfig(groupName="G").encode() == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G",'
        b'"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )


def test_defaults_are_not_shared() -> None:
    first = TopicConfigSerializeWrapper()
    first.topicConfigTable["T"] = TopicConfig(topicName="T")
    first.dataVersion.counter = 5
    assert TopicConfigSerializeWrapper() == TopicConfigSerializeWrapper.decode(b"{}")
    assert TopicConfigSerializeWrapper().topicConfigTable == {}
    assert TopicConfigSerializeWrapper().dataVersion.counter == 0


@given(
    st.dictionaries(st.text(max_size=5), st.dictionaries(st.integers(0, 9), st.integers(0, 99)), max_size=4)
)
@relaxed
def test_offset_tables_come_back(table: dict[str, dict[int, int]]) -> None:
    body = ConsumerOffsetSerializeWrapper(offsetTable=table)
    assert ConsumerOffsetSerializeWrapper.decode(body.encode()) == body


@given(st.dictionaries(st.builds(WireQueue, st.text(max_size=5), st.integers(0, 9), st.text(max_size=5)),
                       st.builds(TopicOffset, st.integers(0, 99)), max_size=4))  # fmt: skip
@relaxed
def test_tables_by_queue_come_back(table: dict[WireQueue, TopicOffset]) -> None:
    body = TopicStatsTable(offsetTable=table)
    assert TopicStatsTable.decode(body.encode()) == body


names = st.text("ABC%_-", min_size=1, max_size=8)
attributes = st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)


@given(
    st.dictionaries(
        names, st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 7), attributes), max_size=4
    ),
    st.lists(st.text(max_size=5), max_size=2),
    st.sampled_from([407, 513]),
)
@relaxed
def test_compressed_registrations_come_back(
    topics: dict[str, tuple[int, int, int, Any]], servers: list[str], version: int
) -> None:
    table = {
        name: TopicConfig(
            topicName=name, readQueueNums=reads, writeQueueNums=writes, perm=perm, attributes=more
        )
        for name, (reads, writes, perm, more) in topics.items()
    }
    wrapper = TopicConfigSerializeWrapper(dataVersion=DataVersion(3, 1, 2), topicConfigTable=table)
    if version == 513:
        wrapper.topicQueueMappingInfoMap = {name: {"topic": name, "currIdMap": {"0": 0}} for name in table}
    body = RegisterBrokerBody(servers, wrapper)
    assert RegisterBrokerBody.decode_compressed(body.encode_compressed(version), version) == body


def blocks(*parts: bytes | int) -> bytes:
    return zlib.compress(
        b"".join(
            struct.pack(">i", part) if isinstance(part, int) else struct.pack(">i", len(part)) + part
            for part in parts
        )
    )


def test_a_compressed_registration_of_4_9_has_no_mappings_at_its_end() -> None:
    data = blocks(b'{"counter":1}', 1, b"T 4 8 6 SINGLE_TAG", b"[]")
    body = RegisterBrokerBody.decode_compressed(data, 407)
    topic = body.topicConfigSerializeWrapper.topicConfigTable["T"]
    assert (topic.readQueueNums, topic.writeQueueNums, topic.perm) == (4, 8, 6)
    assert RegisterBrokerBody.decode_compressed(data, 513) == body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zlib",
        blocks(),
        blocks(b"{}"),
        blocks(b"{}", 1),
        blocks(b"{}", 1, b"T 4 8 6"),
        blocks(b"{}", 1, b"T four 8 6 SINGLE_TAG", b"[]"),
        blocks(b"{}", 1, b"T 99999999999 8 6 SINGLE_TAG", b"[]"),
        blocks(b"{}", 1, b"T 4_0 8 6 SINGLE_TAG", b"[]"),
        blocks(b"{}", 1, b"T 4 \t8 6 SINGLE_TAG", b"[]"),
        blocks(b"{}", 1, b"T 4 8 --6 SINGLE_TAG", b"[]"),
        blocks(b"{}", 1, b"T 4 8  SINGLE_TAG", b"[]"),
        blocks(b"{}", 1, b"T 4 8 -2147483649 SINGLE_TAG", b"[]"),
        blocks(b"{}", 1, b"T 4 8 6 \xff", b"[]"),
        blocks(b"{}", 1, b"T 4 8 6 SINGLE_TAG {", b"[]"),
        blocks(b"{}", -1, b"[]"),
        blocks(b"{}", 0, b"[]", -1),
        blocks(b"{}", 1, b"\xff 4 8 6 SINGLE_TAG", b"[]"),
        blocks(b"{}", 2, b"T 4 8 6 SINGLE_TAG", b"[]"),
        blocks(b"{}", 2147483647),
        blocks(b"{}", 0, b"{}"),
        blocks(b"{}", 0, b"[]", 1),
        blocks(b"{}", 0, b"[]", 1, b"5"),
        blocks(-1),
        blocks(2147483647),
        blocks(b"{}", 0, b"[]")[:-3],
    ],
)
def test_a_compressed_registration_that_does_not_add_up_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenBody):
        RegisterBrokerBody.decode_compressed(data)


def test_a_compressed_registration_does_not_grow_without_bound() -> None:
    with pytest.raises(BrokenBody, match="must expand to at most"):
        RegisterBrokerBody.decode_compressed(zlib.compress(bytes(17 * 1024 * 1024), 1))


@pytest.mark.parametrize("count", [registration.MAX_TOPICS + 1, 1_000_000])
def test_more_topics_than_a_broker_has_are_refused_before_they_are_parsed(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(registration, "_topic_of_text", parsed.append)
    topic = struct.pack(">i", 9) + b"T 1 1 6 S"
    data = struct.pack(">i", 2) + b"{}" + struct.pack(">i", count) + topic * count
    with pytest.raises(BrokenBody, match=f"a count of {count}"):
        RegisterBrokerBody.decode_compressed(zlib.compress(data, 1))
    assert not parsed


@pytest.mark.parametrize(
    "data",
    [
        blocks(b"{}", 5000, *[b"T 1 1 6 S"] * 1000),
        blocks(b"{}", 0, b"[]", 10_001, *[b"{}"] * 10_001),
        blocks(b"{}", 0, b"[]", 1, b'{"topic":"' + b"T" * registration.MAX_MAPPING_BYTES + b'"}'),
        blocks(b"{" + b" " * registration.MAX_JSON_BYTES + b"}", 0, b"[]"),
        blocks(b"{}", 0, b"[" + b" " * registration.MAX_JSON_BYTES + b"]"),
    ],
    ids=["more topics than follow", "mappings", "long mappings", "version", "servers"],
)
def test_a_compressed_registration_beyond_its_bounds_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenBody, match="in a compressed registration"):
        RegisterBrokerBody.decode_compressed(data)


def test_the_largest_compressed_registration_is_read_in_a_moment() -> None:
    names = [b"T%d 16 16 6 SINGLE_TAG" % number for number in range(registration.MAX_TOPICS)]
    data = blocks(b"{}", len(names), *names, b"[]", 0)
    began = time.process_time()
    body = RegisterBrokerBody.decode_compressed(data)
    assert time.process_time() - began < 3  # a quarter on an idle machine
    assert len(body.topicConfigSerializeWrapper.topicConfigTable) == registration.MAX_TOPICS
