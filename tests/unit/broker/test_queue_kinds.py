"""Light queues and inner batches: what Apache's 5.5.0 was asked, asked of ours; and where ours differs."""

import asyncio
import json
import lzma
from pathlib import Path
from typing import Any

from tests.kit import virtual
from tests.unit.broker.desk import Desk, records, running
from tests.unit.broker.golden_exchanges_kit import command_of
from tests.unit.broker.producers import COMMIT, end, prepare

from turbopump.protocol import batch, inner, properties
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.record import decode_all

CAPTURED = Path(__file__).parents[2] / "compat" / "wire" / "queues-5.5.0.jsonl.xz"
ROWS = [json.loads(line) for line in lzma.decompress(CAPTURED.read_bytes()).splitlines()]
LIGHT = {"light_queues": True, "multi_dispatch": True}
SIZES = {"consume_queue_file_size": 400, "batch_queue_file_size": 46 * 4}
SAID = (
    "queueId",
    "queueOffset",
    "batchUniqId",
    "transactionId",
    "nextBeginOffset",
    "maxOffset",
    "minOffset",
    "offset",
)
OWN = ("durability", "replicas")


@virtual
async def test_what_apache_was_asked_ours_answers_alike() -> None:
    async with running(**LIGHT, **SIZES) as desk:
        for row in ROWS:
            asked = command_of(row["req"])
            answer = await desk.ask(asked.code, dict(asked.ext or {}), asked.body)
            assert outcome(answer) == outcome(command_of(row["resp"])), row["name"]


def outcome(answer: Command) -> object:
    ext = {name: value for name, value in (answer.ext or {}).items() if name in SAID}
    ids = len((answer.ext or {}).get("msgId", "").split(","))
    found = [
        (record.queue_offset, record.sys_flag, properties.parse(record.properties), record.body, record.size)
        for record in decode_all(answer.body)
    ]
    return answer.code, ext, ids, found


async def create(desk: Desk, topic: str, attributes: str = "") -> None:
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    more = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "attributes": attributes}
    answer = await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext | more)
    assert answer.code == 0, answer.remark


async def send(desk: Desk, topic: str = "Parent", **pairs: str) -> Command:
    return await desk.send(topic, b"body", pairs=pairs)


async def lights_of(desk: Desk, name: str) -> list[bytes]:
    return [record.properties for record in records(await desk.pull(name, 0))]


@virtual
async def test_names_that_can_be_no_light_queue_are_refused() -> None:
    async with running(**LIGHT) as desk:
        for names in ("plain", "%LMQ%a,plain", "%LMQ%x/y", "%LMQ%", "%LMQ%" + "x" * 251):
            answer = await send(desk, INNER_MULTI_DISPATCH=names)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, names
        assert (await send(desk, INNER_MULTI_DISPATCH="%LMQ%" + "x" * 250)).code == 0
        assert (await send(desk, INNER_MULTI_DISPATCH=",")).code == 0


@virtual
async def test_more_light_queues_than_may_be_are_refused() -> None:
    async with running(**LIGHT, max_light_queues=2) as desk:
        assert (await send(desk, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")).code == 0
        answer = await send(desk, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%c")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "LMQ_CONSUME_QUEUE_NUM_EXCEEDED" in (answer.remark or "")
        assert (await send(desk, INNER_MULTI_DISPATCH="%LMQ%b")).code == 0


@virtual
async def test_a_light_queue_is_no_topic_to_send_to() -> None:
    async with running(**LIGHT) as desk:
        assert (await send(desk, "%LMQ%a")).code == ResponseCode.NO_PERMISSION
        assert desk.store.queues.find("%LMQ%a", 0) is None


@virtual
async def test_offsets_in_light_queues_are_the_brokers_to_give() -> None:
    async with running(**LIGHT) as desk:
        forged = {"INNER_MULTI_QUEUE_OFFSET": "77"}
        assert (await send(desk, INNER_MULTI_DISPATCH="%LMQ%a", **forged)).code == 0
        [stored] = await lights_of(desk, "%LMQ%a")
        assert properties.parse(stored)["INNER_MULTI_QUEUE_OFFSET"] == "0"
    async with running() as desk:
        assert (await send(desk, INNER_MULTI_DISPATCH="%LMQ%a", **forged)).code == 0
        [record] = records(await desk.pull("Parent", 0))
        assert properties.parse(record.properties)["INNER_MULTI_DISPATCH"] == "%LMQ%a"
        assert "INNER_MULTI_QUEUE_OFFSET" not in properties.parse(record.properties)


@virtual
async def test_half_messages_are_in_no_light_queue() -> None:
    async with running(**LIGHT) as desk:
        half = {"TRAN_MSG": "true", "PGROUP": "G", "INNER_MULTI_DISPATCH": "%LMQ%a"}
        assert (await send(desk, **half)).code == 0
        assert desk.store.queues.find("%LMQ%a", 0) is None


@virtual
async def test_messages_of_a_batch_are_in_light_queues_too() -> None:
    async with running(**LIGHT) as desk:
        pairs = properties.pack({"UNIQ_KEY": "A", "INNER_MULTI_DISPATCH": "%LMQ%a"}).encode()
        body = batch.join([(0, b"one", pairs), (0, b"two", pairs)])
        answer = await desk.send("Parent", body, code=RequestCode.SEND_BATCH_MESSAGE, m="true")
        assert answer.code == 0
        assert [record.body for record in records(await desk.pull("%LMQ%a", 0))] == [b"one", b"two"]


@virtual
async def test_offsets_of_light_groups_are_in_the_file_that_apache_reads_and_come_back() -> None:
    async with running(**LIGHT) as desk:
        await send(desk, INNER_MULTI_DISPATCH="%LMQ%a")
        where = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%a", "queueId": 0}
        assert (await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, where | {"commitOffset": 1})).code == 0
        disk = desk.disk
    file = json.loads(disk.read("/store/config/lmqConsumerOffset.json"))
    assert file["lmqOffsetTable"] == {"%LMQ%a@%LMQ%g": 1}
    async with running(disk=disk, **LIGHT) as desk:
        answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert (answer.ext or {})["offset"] == "1"
        assert len(await lights_of(desk, "%LMQ%a")) == 1


@virtual
async def test_a_pull_that_waits_at_a_light_queue_is_woken() -> None:
    async with running(**LIGHT) as desk:
        await send(desk)
        waiting = asyncio.ensure_future(desk.pull("%LMQ%a", 0, sysFlag=6))
        await asyncio.sleep(1)
        assert not waiting.done()
        await send(desk, INNER_MULTI_DISPATCH="%LMQ%a")
        assert [record.body for record in records(await waiting)] == [b"body"]


async def inner_send(desk: Desk, body: bytes, topic: str = "B", **pairs: str) -> Command:
    return await desk.send(topic, body, f=str(inner.FLAGS), pairs=pairs)


@virtual
async def test_what_says_that_it_is_an_inner_batch_is_one() -> None:
    body = batch.join([(0, b"one", b""), (0, b"two", b"")])
    async with running() as desk:
        await create(desk, "B", "+queue.type=BatchCQ")
        await create(desk, "Simple")
        assert (await inner_send(desk, body, INNER_NUM="2")).code == 0
        for wrong in ({}, {"INNER_NUM": "3"}, {"INNER_NUM": "x"}):
            assert (await inner_send(desk, body, **wrong)).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await inner_send(desk, b"no batch", INNER_NUM="1")).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await inner_send(desk, body, "Simple", INNER_NUM="2")).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await inner_send(desk, body, "Simple")).code == ResponseCode.MESSAGE_ILLEGAL
        waits = await inner_send(desk, body, INNER_NUM="2", DELAY="1")
        assert waits.code == ResponseCode.MESSAGE_ILLEGAL
        assert desk.store.queues.queue("B", 0).max_offset == 2


@virtual
async def test_a_message_of_an_inner_batch_is_not_taken_back() -> None:
    """Its consumer sends a copy of it then."""
    body = batch.join([(0, b"one", b""), (0, b"two", b"")])
    async with running() as desk:
        await create(desk, "B", "+queue.type=BatchCQ")
        assert (await inner_send(desk, body, INNER_NUM="2")).code == 0
        back: dict[str, Any] = {"offset": 0, "group": "readers", "delayLevel": 0, "originMsgId": "x"}
        answer = await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back | {"originTopic": "B"})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@virtual
async def test_the_kind_of_queues_is_kept_over_restarts() -> None:
    body = batch.join([(0, b"one", b""), (0, b"two", b"")])
    async with running() as desk:
        await create(desk, "B", "+queue.type=BatchCQ")
        sent = await desk.send("B", body, code=RequestCode.SEND_BATCH_MESSAGE, m="true")
        assert (sent.ext or {})["queueOffset"] == "0"
        disk = desk.disk
    async with running(disk=disk) as desk:
        sent = await desk.send("B", body, code=RequestCode.SEND_BATCH_MESSAGE, m="true")
        assert (sent.ext or {})["queueOffset"] == "2"
        assert disk.exists("/store/batchconsumequeue/B/0") or desk.store.queues.queue("B", 0).is_batch


@virtual
async def test_names_of_light_queues_that_nobody_uses_leave_nothing_behind() -> None:
    async with running(**LIGHT) as desk:
        await send(desk, INNER_MULTI_DISPATCH="%LMQ%used")
        for topic in ("%LMQ%used", "%LMQ%invented"):
            where = {"consumerGroup": "%LMQ%g", "topic": topic, "queueId": 0, "commitOffset": 5}
            assert (await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, where)).code == 0
            await desk.pull(topic, 0, sysFlag=5, commitOffset=3)
        disk = desk.disk
    file = json.loads(disk.read("/store/config/lmqConsumerOffset.json"))
    assert not [key for table in file.values() for key in table if "invented" in str(key)]
    assert file["lmqOffsetTable"] == {"%LMQ%used@%LMQ%g": 5}


@virtual
async def test_a_name_that_leads_elsewhere_is_no_light_queue() -> None:
    async with running(**LIGHT) as desk:
        for name in ("%LMQ%a/../../x", "%LMQ%", "%LMQ%" + "x" * 251):
            assert (await desk.pull(name, 0)).code == ResponseCode.TOPIC_NOT_EXIST


@virtual
async def test_a_delayed_message_and_a_committed_one_come_to_their_light_queues() -> None:
    async with running(**LIGHT) as desk:
        await send(desk, INNER_MULTI_DISPATCH="%LMQ%a", DELAY="1")
        assert desk.store.queues.find("%LMQ%a", 0) is None
        await asyncio.sleep(2)
        [stored] = await lights_of(desk, "%LMQ%a")
        assert properties.parse(stored)["INNER_MULTI_QUEUE_OFFSET"] == "0"
        half = await prepare(desk, topic="Parent", pairs={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        assert len(await lights_of(desk, "%LMQ%a")) == 1
        assert (await end(desk, half, COMMIT)).code == 0
        found = await lights_of(desk, "%LMQ%a")
        assert [properties.parse(one)["INNER_MULTI_QUEUE_OFFSET"] for one in found] == ["0", "1"]


@virtual
async def test_a_light_queue_whose_messages_are_gone_is_cleaned_unless_a_group_is_at_it() -> None:
    async with running(**LIGHT, commit_log_file_size=1 << 16) as desk:
        await send(desk, INNER_MULTI_DISPATCH="%LMQ%left,%LMQ%read")
        where = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%read", "queueId": 0, "commitOffset": 1}
        assert (await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, where)).code == 0
        for _ in range(3):
            assert (await desk.send("Parent", bytes(60_000))).code == 0
        await desk.store.upkeep.take_checkpoint()
        desk.store.commit_log.delete_first()
        assert (await desk.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert desk.store.queues.find("%LMQ%left", 0) is None
        kept = desk.store.queues.find("%LMQ%read", 0)
        assert kept is not None
        assert kept.max_offset == 1
