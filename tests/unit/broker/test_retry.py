"""A message that could not be handled: how it comes again, and where it ends."""

import json
import lzma
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.desk import CONFIG, Desk, in_broker, records

from turbopump.protocol import properties
from turbopump.protocol.bodies import SubscriptionGroupConfig
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, decode
from turbopump.protocol.frame import Frame, cut
from turbopump.protocol.ids import offset_id, pack_host, parse_offset_id
from turbopump.protocol.record import Record
from turbopump.store.append import Draft

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
EXCHANGES = Path(__file__).parents[2] / "compat" / "wire" / "exchanges-5.5.0.jsonl.xz"
BEFORE_COUNTING = 120  # the version before clients knew a group's maximum


async def sent(desk: Desk, body: bytes = b"hello", topic: str = "T", **changes: Any) -> int:
    """Sends a message; its offset in the log."""
    answer = await desk.send(topic, body, **changes)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return parse_offset_id((answer.ext or {})["msgId"])[2]


async def send_back(desk: Desk, offset: int, level: int = 0, **changes: Any) -> Command:
    ext = {"offset": offset, "group": "G", "delayLevel": level, "originTopic": "T", "unitMode": "false"}
    return await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext | {"maxReconsumeTimes": 16} | changes)


async def waiting(desk: Desk, level: int) -> list[Record]:
    return records(await desk.pull(SCHEDULE, 0, level - 1))


async def only(desk: Desk, topic: str, queue_id: int = 0) -> Record:
    (found,) = records(await desk.pull(topic, 0, queue_id))
    return found


async def set_group(desk: Desk, **config: Any) -> None:
    body = SubscriptionGroupConfig(groupName="G", **config).encode()
    assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0


@in_broker()
async def test_a_message_sent_back_waits_with_everything_that_brings_it_back(desk: Desk) -> None:
    offset = await sent(desk, pairs={"TAGS": "A", "KEYS": "k", "own": "wert"})
    first = await only(desk, "T")
    answer = await send_back(desk, offset)
    assert (answer.code, answer.remark, answer.ext) == (ResponseCode.SUCCESS, None, None)
    (record,) = await waiting(desk, 3)
    assert record.property_map() == first.property_map() | {
        "WAIT": "false",
        "DELAY": "3",
        "RETRY_TOPIC": "T",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
        "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000000000",
    }
    assert (record.body, record.flag, record.sys_flag) == (first.body, first.flag, first.sys_flag)
    assert (record.born_timestamp, record.born_host) == (first.born_timestamp, first.born_host)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (1, 0)


@pytest.mark.parametrize(
    ("asked", "times", "level"), [(0, 0, 3), (0, 1, 4), (0, 15, 18), (0, 16, 18), (2, 5, 2), (99, 0, 18)]
)
@in_broker()
async def test_each_round_waits_longer_unless_the_consumer_says_how_long(
    desk: Desk, asked: int, times: int, level: int
) -> None:
    offset = await sent(desk, j=times)
    assert (await send_back(desk, offset, asked, maxReconsumeTimes=100)).code == ResponseCode.SUCCESS
    (record,) = await waiting(desk, level)
    assert record.reconsume_times == times + 1
    assert record.property_map()["DELAY"] == str(level)


@pytest.mark.parametrize(("level", "times", "most"), [(-1, 0, 16), (0, 16, 16), (5, 3, 3), (0, 0, 0)])
@in_broker()
async def test_what_was_tried_often_enough_is_a_dead_letter(
    desk: Desk, level: int, times: int, most: int
) -> None:
    offset = await sent(desk, j=times, pairs={"TAGS": "A"})
    assert (await send_back(desk, offset, level, maxReconsumeTimes=most)).code == ResponseCode.SUCCESS
    dead = await only(desk, "%DLQ%G")
    assert dead.reconsume_times == times + 1
    pairs = dead.property_map()
    assert (pairs["DELAY"], pairs["RETRY_TOPIC"], pairs["TAGS"]) == ("0", "T", "A")
    topic = json.loads((await desk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "%DLQ%G"})).body)
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (1, 1, 6)


@in_broker()
async def test_the_group_says_how_often_to_clients_that_do_not(desk: Desk) -> None:
    await set_group(desk, retryMaxTimes=2)
    offset = await sent(desk, j=2)
    ext = {"offset": offset, "group": "G", "delayLevel": 0, "maxReconsumeTimes": 100}
    fields = {name: str(value) for name, value in ext.items()}
    old = Command(36, ext=fields, language="JAVA", version=BEFORE_COUNTING)
    assert (await desk.client.call("127.0.0.1:10911", old, 3)).code == ResponseCode.SUCCESS
    assert (await only(desk, "%DLQ%G")).reconsume_times == 3
    del ext["maxReconsumeTimes"]
    assert (await desk.ask(36, ext)).code == ResponseCode.SUCCESS
    assert len(records(await desk.pull("%DLQ%G", 0))) == 2


@in_broker()
async def test_the_retry_topic_has_as_many_queues_as_the_group_says_and_all_are_used(desk: Desk) -> None:
    await set_group(desk, retryQueueNums=3)
    offset = await sent(desk)
    for _ in range(30):
        assert (await send_back(desk, offset)).code == ResponseCode.SUCCESS
    topic = json.loads((await desk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "%RETRY%G"})).body)
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (3, 3, 6)
    assert {record.property_map()["REAL_QID"] for record in await waiting(desk, 3)} == {"0", "1", "2"}


@in_broker()
async def test_a_group_without_retry_queues_wants_no_retries(desk: Desk) -> None:
    await set_group(desk, retryQueueNums=0)
    assert (await send_back(desk, await sent(desk))).code == ResponseCode.SUCCESS
    assert await waiting(desk, 3) == []


@in_broker()
async def test_later_rounds_keep_where_the_message_was_first(desk: Desk) -> None:
    pairs = {"RETRY_TOPIC": "First", "ORIGIN_MESSAGE_ID": "7F00000100002A9F00000000000000FF"}
    offset = await sent(desk, topic="%RETRY%G", pairs=pairs)
    assert (await send_back(desk, offset)).code == ResponseCode.SUCCESS
    (record,) = await waiting(desk, 3)
    found = record.property_map()
    assert {name: found[name] for name in pairs} == pairs


@in_broker()
async def test_a_message_sent_back_is_stored_by_this_broker(desk: Desk) -> None:
    """Its first copy may be of another one: a store that was moved, or a delayed message."""

    elsewhere = pack_host("10.1.2.3", 10911)
    await sent(desk)
    queue = desk.store.queues.queue("T", 0)
    draft = Draft(queue, b"moved", b"", 0, 0, 0, elsewhere, store_host=elsewhere)
    [(offset, _, _)] = desk.store.log.append([draft])
    assert (await send_back(desk, offset)).code == ResponseCode.SUCCESS
    (record,) = await waiting(desk, 3)
    assert (record.store_host, record.born_host) == (desk.store.log.store_host, elsewhere)
    assert record.property_map()["ORIGIN_MESSAGE_ID"] == offset_id(elsewhere, offset)


@in_broker()
async def test_an_old_dead_letter_topic_keeps_its_permission(desk: Desk) -> None:
    """4.5.1 makes it with perm 2: written to, but not to be read before an operator allows it."""

    fields = {"topic": "%DLQ%G", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
    old = fields | {"readQueueNums": 1, "writeQueueNums": 1, "order": "false"}
    assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, old | {"perm": 2})).code == 0
    assert (await send_back(desk, await sent(desk), -1)).code == ResponseCode.SUCCESS
    assert (await desk.pull("%DLQ%G", 0)).code == ResponseCode.NO_PERMISSION
    assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, old | {"perm": 6})).code == 0
    assert (await only(desk, "%DLQ%G")).body == b"hello"


@in_broker()
async def test_what_cannot_be_sent_back_is_said_in_apaches_words(desk: Desk) -> None:
    offset = await sent(desk)
    for bad in (offset + 1, 10**12, -1):
        answer = await send_back(desk, bad)
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {bad}")
    fields = {"topic": "%RETRY%G", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "perm": 4}
    more = {"readQueueNums": 1, "writeQueueNums": 1, "order": "false"}
    assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | more)).code == 0
    answer = await send_back(desk, offset)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the topic[%RETRY%G] sending message is forbidden"


@in_broker(config=replace(CONFIG, topics=replace(CONFIG.topics, permission=4)))
async def test_a_broker_that_may_not_be_written_to_takes_nothing_back(desk: Desk) -> None:
    answer = await send_back(desk, 0)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the broker[127.0.0.1] sending message is forbidden"


@in_broker(flush_disk_type="SYNC_FLUSH")
async def test_success_is_not_said_of_a_copy_that_is_not_stored(desk: Desk) -> None:
    """apache/rocketmq-client-go#976: the offset moved on although the send-back had failed."""

    offset = await sent(desk)
    desk.disk.fail_sync(path_part="commitlog")
    answer = await send_back(desk, offset)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "FLUSH_DISK_TIMEOUT")
    refused = await send_back(desk, offset)  # nothing is accepted until a sync succeeds
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "the last sync of the commit log failed" in (refused.remark or "")


@in_broker(flush_disk_type="SYNC_FLUSH")
async def test_with_sync_flush_success_means_on_disk(desk: Desk) -> None:
    offset = await sent(desk)
    assert (await send_back(desk, offset)).code == ResponseCode.SUCCESS
    assert desk.store.log.synced == desk.store.log.end


# --- the other way round: a client whose send-back failed sends the message itself ---


@in_broker()
async def test_a_retry_sent_by_the_client_waits_like_one_sent_back(desk: Desk) -> None:
    pairs = {"DELAY": "4", "RETRY_TOPIC": "T", "TRAN_MSG": "true"}  # the last one by clients before 4.6.1
    assert (await desk.send("%RETRY%G", b"again", j=1, l=16, pairs=pairs)).code == ResponseCode.SUCCESS
    (record,) = await waiting(desk, 4)
    assert (record.body, record.reconsume_times) == (b"again", 1)
    found = record.property_map()
    assert (found["REAL_TOPIC"], found["REAL_QID"], found["RETRY_TOPIC"]) == ("%RETRY%G", "0", "T")


@pytest.mark.parametrize(("times", "is_dead"), [(16, False), (17, True)])
@in_broker()
async def test_beyond_the_maximum_it_is_a_dead_letter_at_once(desk: Desk, times: int, is_dead: bool) -> None:
    answer = await desk.send("%RETRY%G", b"enough", j=times, l=16, pairs={"DELAY": "18"})
    assert answer.code == ResponseCode.SUCCESS
    if not is_dead:
        assert len(await waiting(desk, 18)) == 1
        return
    dead = await only(desk, "%DLQ%G")
    assert dead.property_map()["DELAY"] == "-1"
    assert await waiting(desk, 18) == []


# --- the same requests, and Apache's answers ---


@cache
def captured() -> dict[str, dict[str, Any]]:
    lines = lzma.decompress(EXCHANGES.read_bytes()).splitlines()
    return {row["name"]: row for row in map(json.loads, lines) if row["name"].startswith("36")}


def command_of(text: str) -> Command:
    frames: list[Frame] = []
    cut(bytes.fromhex(text), frames)
    return decode(frames[0])


@pytest.mark.parametrize(
    "name",
    ["36", "36 level 2", "36 dlq", "36 max 0", "36 unknown group", "36 bad offset", "36 missing unitMode"],
)
@in_broker()
async def test_answers_are_apaches(desk: Desk, name: str) -> None:
    assert_same(name, await ask_again(desk, name))


@in_broker(config=replace(CONFIG, groups=replace(CONFIG.groups, auto_create=False)))
async def test_the_answer_about_a_missing_group_is_apaches(desk: Desk) -> None:
    assert_same("36 group not exist", await ask_again(desk, "36 group not exist"))


async def ask_again(desk: Desk, name: str) -> Command:
    """The request as it was captured, about a message of ours."""
    offset = await sent(desk)
    request = command_of(captured()[name]["req"])
    fields = dict(request.ext or {})
    if name != "36 bad offset":
        fields["offset"] = str(offset)
    return await desk.ask(request.code, fields)


def assert_same(name: str, ours: Command) -> None:
    theirs = command_of(captured()[name]["resp"])
    assert (ours.code, ours.remark, ours.ext) == (theirs.code, theirs.remark, theirs.ext)
    assert ours.body == theirs.body == b""


@in_broker()
async def test_properties_of_a_round_stay_within_the_limit(desk: Desk) -> None:
    """A message that is full of properties cannot carry more: the consumer hears of it."""

    room = properties.MAX_BYTES - 200
    offset = await sent(desk, pairs={"p": "v" * room})
    answer = await send_back(desk, offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "properties length limit 32KB" in (answer.remark or "")
