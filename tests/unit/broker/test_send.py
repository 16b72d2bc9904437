"""What a producer is told, and what is stored."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.desk import CONFIG, Desk, in_broker, letters, records, with_broker

from turbopump.broker.config import BrokerIdentity
from turbopump.protocol import batch, properties
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.ids import parse_offset_id
from turbopump.testing.loop import START_MS

UNIQUE = "7F000001000100000000000000000001"


@in_broker()
async def test_the_answer_has_what_clients_unbox_and_the_receipt(desk: Desk) -> None:
    answer = await desk.send("T", queue_id=2)
    assert answer.code == ResponseCode.SUCCESS
    ext = answer.ext or {}
    assert parse_offset_id(ext.pop("msgId")) == ("127.0.0.1", 10911, 0)
    assert ext == {
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": UNIQUE,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "durability": "memory",
        "replicas": "1",
    }


@in_broker()
async def test_the_broker_adds_its_properties_and_keeps_the_producers(desk: Desk) -> None:
    await desk.send("T", pairs={"TAGS": "A", "own": "wert", "CLUSTER": "forged", "POP_CK": "x"})
    (record,) = records(await desk.pull("T", 0))
    assert record.property_map() == {
        "UNIQ_KEY": UNIQUE,
        "WAIT": "true",
        "TAGS": "A",
        "own": "wert",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


@in_broker()
async def test_a_message_without_a_unique_key_gets_one(desk: Desk) -> None:
    answer = await desk.send("T", i="TAGS\x01A")
    (record,) = records(await desk.pull("T", 0))
    assert record.unique_key == (answer.ext or {})["transactionId"]
    assert record.tags == "A"


@in_broker()
async def test_an_unknown_topic_is_created_by_the_rules_of_its_default_topic(desk: Desk) -> None:
    assert (await desk.send("New", queue_id=3)).code == ResponseCode.SUCCESS
    assert (await desk.send("New", queue_id=4)).code == ResponseCode.INVALID_PARAMETER
    answer = await desk.send("Other", c="NoSuchDefault")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.ext == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}


@in_broker()
async def test_a_topic_without_a_queue_to_write_to_refuses_whoever_takes_any(desk: Desk) -> None:
    for code, body in ((310, b"body"), (320, batch.join([(0, b"body", b"")]))):
        answer = await desk.ask(code, letters("Narrow", -1, d=0, m=str(code == 320).lower()), body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "the topic[Narrow] has no queue to write to"
    topic = {"topic": "ReadOnly", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 0}
    more = {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic | more)).code == 0
    answer = await desk.send("ReadOnly", queue_id=2, pairs={"_SYS_MSG_PRIORITY_": "3"})
    assert (answer.code, (answer.ext or {})["queueId"]) == (ResponseCode.SUCCESS, "0")


def test_before_its_time_a_broker_takes_nothing() -> None:
    """startAcceptSendRequestTimeStamp"""
    until = START_MS + 5_000

    async def scenario(desk: Desk) -> None:
        answer = await desk.send("BenchmarkTest")  # which is there from the first
        assert (answer.code, answer.remark) == (1, f"broker unable to service, until {until}")
        await desk.disk.clock.sleep(5)
        assert (await desk.send("BenchmarkTest")).code == ResponseCode.SUCCESS

    with_broker(scenario, config=replace(CONFIG, sending=replace(CONFIG.sending, accept_from_ms=until)))


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        ("SCHEDULE_TOPIC_XXXX", 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 16, "Sending message to topic[RMQ_SYS_TRANS_HALF_TOPIC] is forbidden."),
        ("bad topic!", 29, "The specified topic: bad topic!, contains illegal characters"),
        ("y" * 128, 29, f"The specified topic: {'y' * 128}, is longer than topic max length: 127"),
        ("", 29, "The specified topic is blank."),
    ],
)
@in_broker()
async def test_names_that_are_refused(desk: Desk, topic: str, code: int, remark: str) -> None:
    answer = await desk.send(topic)
    assert answer.code == code
    assert (answer.remark or "").startswith(remark)


@in_broker()
async def test_the_longest_topic_is_accepted(desk: Desk) -> None:
    assert (await desk.send("y" * 127)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("size", "code"), [(0, 13), (1, 0), (4095, 0), (4096, 0), (4097, 13)])
@in_broker(max_message_size=4096)
async def test_bodies_up_to_the_limit(desk: Desk, size: int, code: int) -> None:
    assert (await desk.send("T", b"x" * size)).code == code


@in_broker()
async def test_properties_up_to_the_limit(desk: Desk) -> None:
    added = len("MSG_REGION DefaultRegion TRACE_ON true CLUSTER DefaultCluster ")
    room = properties.MAX_BYTES - added - len(properties.pack({"UNIQ_KEY": UNIQUE, "p": ""}) + "p..")
    for more, code in ((0, ResponseCode.SUCCESS), (1, ResponseCode.MESSAGE_ILLEGAL)):
        answer = await desk.send("T", i=properties.pack({"UNIQ_KEY": UNIQUE, "p": "v" * (room + more)}))
        assert answer.code == code


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ({"INNER_NUM": "5"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
@in_broker()
async def test_a_kind_that_is_not_served_is_refused_not_stored_as_a_plain_message(
    desk: Desk, pairs: dict[str, str], code: ResponseCode
) -> None:
    assert (await desk.send("T", pairs=pairs)).code == code
    assert (await desk.pull("T", 0)).remark == "NO_MESSAGE_IN_QUEUE"


@pytest.mark.parametrize("code", [310, 320])
@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (b"x\1a\0b\2", ResponseCode.SUCCESS),
        (b"x\1" + bytes(511) + b"\2", ResponseCode.SUCCESS),
        (b"x\1" + bytes(512) + b"\2", ResponseCode.MESSAGE_ILLEGAL),
        (b"x\1b\0", None),
    ],
)
def test_properties_that_recovery_would_take_for_lost_are_refused(
    code: int, stored: bytes, expected: ResponseCode | None
) -> None:
    """The ones of a message of its own are stored with a separator at their end, those of a batch are not."""
    if expected is None:
        expected = ResponseCode.SUCCESS if code == 310 else ResponseCode.MESSAGE_ILLEGAL

    async def scenario(desk: Desk) -> None:
        is_batch = code == 320
        unique = properties.pack({"UNIQ_KEY": UNIQUE})
        fields = letters("T", m=str(is_batch).lower())
        fields["i"] = unique if is_batch else unique + stored.decode()
        answer = await desk.ask(code, fields, batch.join([(0, b"body", stored)]) if is_batch else b"body")
        assert answer.code == expected
        if expected != ResponseCode.SUCCESS:
            assert "NUL" in (answer.remark or "")
            assert desk.store.queues.queue("T", 0).max_offset == 0

    with_broker(scenario)


@pytest.mark.parametrize(
    ("asked", "level"), [("1", 1), ("18", 18), ("19", 18), ("2147483647", 18), ("+3", 3)]
)
@in_broker()
async def test_a_delayed_message_is_kept_in_the_queue_of_its_level(
    desk: Desk, asked: str, level: int
) -> None:
    pairs = {"DELAY": asked, "TAGS": "A", "TIMER_DELAY_SEC": "9", "REAL_TOPIC": "forged"}
    answer = await desk.send("T", b"later", queue_id=2, pairs=pairs)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    ext = answer.ext or {}
    assert (ext["queueId"], ext["queueOffset"], ext["transactionId"]) == ("2", "0", UNIQUE)
    assert (await desk.pull("T", 0, 2)).remark == "NO_MESSAGE_IN_QUEUE"
    (record,) = records(await desk.pull("SCHEDULE_TOPIC_XXXX", 0, level - 1))
    assert record.property_map() == {
        "UNIQ_KEY": UNIQUE,
        "WAIT": "true",
        "TAGS": "A",
        "DELAY": str(level),
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    queue = desk.store.queues.queue("SCHEDULE_TOPIC_XXXX", level - 1)
    assert queue.entry(0) == (0, record.size, record.store_timestamp + desk.store.delays.delay_ms(level))


@pytest.mark.parametrize("level", ["0", "-1", "-2147483648"])
@in_broker()
async def test_no_level_is_no_delay(desk: Desk, level: str) -> None:
    assert (await desk.send("T", pairs={"DELAY": level})).code == ResponseCode.SUCCESS
    (record,) = records(await desk.pull("T", 0))
    assert record.property_map()["DELAY"] == level


@pytest.mark.parametrize("level", ["soon", "1.5", "2147483648", "9" * 5000, "\u0663"])
@in_broker()
async def test_a_level_that_is_no_number_is_refused(desk: Desk, level: str) -> None:
    assert (await desk.send("T", pairs={"DELAY": level})).code == ResponseCode.SYSTEM_ERROR


@in_broker()
async def test_a_message_of_a_batch_is_never_delayed(desk: Desk) -> None:
    outer, inner = properties.pack({"DELAY": "3"}), properties.pack({"UNIQ_KEY": "k", "DELAY": "0"})
    plain = batch.join([(0, b"a", inner.encode())])
    delayed = batch.join([(0, b"a", outer.encode())])
    for fields, body, code in (({}, plain, 0), ({}, delayed, 13), ({"i": outer}, plain, 13)):
        ext = letters("T", m="true", i="") | fields
        assert (await desk.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)).code == code


def messages(*bodies: bytes) -> bytes:
    pairs = [properties.pack({"UNIQ_KEY": f"key{number}", "TAGS": "A"}) for number in range(len(bodies))]
    rows = zip(bodies, pairs, strict=True)
    return batch.join([(0, body, text.encode()) for body, text in rows])


@in_broker()
async def test_a_batch_is_stored_as_messages_of_their_own(desk: Desk) -> None:
    ext: dict[str, Any] = letters("T", m="true", i="WAIT\x01true\x02")
    answer = await desk.ask(RequestCode.SEND_BATCH_MESSAGE, ext, messages(b"a", b"bb", b"ccc"))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert len((answer.ext or {})["msgId"].split(",")) == 3
    assert "transactionId" not in (answer.ext or {})
    found = records(await desk.pull("T", 0))
    assert [record.body for record in found] == [b"a", b"bb", b"ccc"]
    assert [record.unique_key for record in found] == ["key0", "key1", "key2"]
    assert found[0].property_map() == {"UNIQ_KEY": "key0", "TAGS": "A"}


@pytest.mark.parametrize(
    ("topic", "body", "code"),
    [("T", b"\0\0\0\7garbage", 1), ("%RETRY%G", messages(b"a"), 13), ("T", b"", 13)],
)
@in_broker()
async def test_a_batch_that_cannot_be_stored(desk: Desk, topic: str, body: bytes, code: int) -> None:
    answer = await desk.ask(RequestCode.SEND_BATCH_MESSAGE, letters(topic, m="true"), body)
    assert answer.code == code


@in_broker()
async def test_a_retry_beyond_the_maximum_becomes_a_dead_letter(desk: Desk) -> None:
    assert (await desk.send("%RETRY%G", b"again", j=3, l=3)).code == ResponseCode.SUCCESS
    assert (await desk.send("%RETRY%G", b"enough", j=4, l=3)).code == ResponseCode.SUCCESS
    assert [r.body for r in records(await desk.pull("%RETRY%G", 0))] == [b"again"]
    (dead,) = records(await desk.pull("%DLQ%G", 0))
    assert (dead.body, dead.reconsume_times) == (b"enough", 4)


def test_a_sync_master_without_a_slave_says_so() -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.send("T")
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert (answer.ext or {})["queueOffset"] == "0"
        assert (await desk.send("T", pairs={"WAIT": "false"})).code == ResponseCode.SUCCESS

    identity = BrokerIdentity(broker_name="broker-a", role="SYNC_MASTER")
    with_broker(scenario, config=replace(CONFIG, identity=identity))


@in_broker(flush_disk_type="SYNC_FLUSH")
async def test_with_sync_flush_the_answer_comes_from_the_disk(desk: Desk) -> None:
    answer = await desk.send("T")
    assert (answer.code, (answer.ext or {})["durability"]) == (ResponseCode.SUCCESS, "disk")
    hurried = await desk.send("T", pairs={"WAIT": "false"})
    assert (hurried.ext or {})["durability"] == "memory"


@in_broker(flush_disk_type="SYNC_FLUSH")
async def test_a_sync_that_fails_is_not_called_a_success(desk: Desk) -> None:
    await desk.send("T")
    desk.disk.fail_sync(path_part="commitlog")
    answer = await desk.send("T")
    assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert (answer.ext or {})["durability"] == "memory"


@in_broker(transient_pool=True)
async def test_with_the_transient_pool_the_receipt_says_buffer(desk: Desk) -> None:
    answer = await desk.send("T")
    assert (answer.ext or {})["durability"] == "buffer"


def test_a_broker_that_is_known_by_name_stamps_the_address_on_records() -> None:
    async def scenario(desk: Desk) -> None:
        assert desk.broker.address == "broker.example:10911"
        answer = await desk.send("T")
        assert parse_offset_id((answer.ext or {})["msgId"]) == ("127.0.0.1", 10911, 0)

    listening = replace(CONFIG.listening, advertised_address="broker.example")
    with_broker(scenario, config=replace(CONFIG, listening=listening))


@in_broker()
async def test_a_topic_with_fewer_queues_takes_no_more_sends_to_the_others(desk: Desk) -> None:
    assert (await desk.send("T", queue_id=3)).code == ResponseCode.SUCCESS
    fields = {"topic": "T", "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
    fewer = fields | {"readQueueNums": 2, "writeQueueNums": 2, "order": "false"}
    answer = await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fewer)
    assert answer.code == ResponseCode.SUCCESS
    assert (await desk.send("T", queue_id=3)).code == ResponseCode.INVALID_PARAMETER
    await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert (await desk.send("T", queue_id=3)).code == ResponseCode.SUCCESS  # created anew


def test_a_one_way_send_that_is_refused_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Its producer hears nothing."""

    async def scenario(desk: Desk) -> None:
        visitor = desk.visitor()
        for topic, body in (("T", b""), ("no topic", b"x"), ("T", b"fine")):
            fields = {name: str(value) for name, value in letters(topic).items()}
            sent = Command(RequestCode.SEND_MESSAGE_V2, ext=fields, body=body)
            await visitor.send_oneway(desk.address, sent)
        await desk.send("T")
        assert len(records(await desk.pull("T", 0))) == 2

    with_broker(scenario)
    lines = [line for line in caplog.messages if line.startswith("One-way send of 127.0.0.1 is refused: ")]
    assert len(lines) == 2
    assert "the message body is empty" in lines[0]
