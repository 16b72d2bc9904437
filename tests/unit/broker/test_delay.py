"""Delayed messages: never early, once, wherever the broker is stopped or killed."""

import asyncio
import json
import lzma
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.kit import virtual
from tests.unit.broker.delay_kit import SCHEDULE, TICK_S, arrived, bodies, restarts, saved, send
from tests.unit.broker.desk import Desk, in_broker, records, running, with_broker

from turbopump.broker.delay import levels
from turbopump.broker.delay.levels import BATCH, BATCHES_PER_TURN, DelayedMessages
from turbopump.broker.delay.pending import QueuePosition
from turbopump.protocol.bodies import DelayOffsetSerializeWrapper, KVTable
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.record import Record
from turbopump.runtime.chance import Chance
from turbopump.store.append import Draft
from turbopump.store.config import DELAY_LEVELS
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import Survival

STORES = Path(__file__).parents[2] / "compat" / "stores"


@pytest.mark.parametrize(("level", "seconds"), [(1, 1), (2, 5), (3, 120), (4, 120), (99, 120)])
@in_broker(message_delay_levels="1s 5s 2m")
async def test_a_message_comes_when_its_time_has_come(desk: Desk, level: int, seconds: int) -> None:
    await send(desk, level=level)
    await asyncio.sleep(seconds - 0.02)
    assert await arrived(desk) == []
    await asyncio.sleep(0.02 + TICK_S)
    (record,) = await arrived(desk)
    waited = records(await desk.pull(SCHEDULE, 0, min(level, 3) - 1))[0]
    due_ms = waited.store_timestamp + 1000 * seconds
    assert 0 <= record.store_timestamp - due_ms <= 1000 * TICK_S


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_each_of_many_comes_in_time(flush: str) -> None:
    async def scenario(desk: Desk) -> None:
        for number in range(200):
            await send(desk, b"%d" % number, level=1 + number % 3)
            await asyncio.sleep(0.013)
        await asyncio.sleep(11)
        found = await arrived(desk)
        assert sorted(int(record.body) for record in found) == list(range(200))
        stored = {
            record.body: record.store_timestamp
            for level in (1, 2, 3)
            for record in await arrived(desk, SCHEDULE, level - 1)
        }
        for record in found:
            delay_ms = (1000, 5000, 10_000)[int(record.body) % 3]
            late_ms = record.store_timestamp - stored[record.body] - delay_ms
            assert 0 <= late_ms <= 1000 * TICK_S

    with_broker(scenario, flush_disk_type=flush)


@in_broker()
async def test_a_waiting_pull_is_answered_by_a_message_that_falls_due(desk: Desk) -> None:
    await send(desk)
    waiting = asyncio.create_task(desk.pull("T", 0, sysFlag=6, code=RequestCode.PULL_MESSAGE))
    await asyncio.sleep(0.9)
    assert not waiting.done()
    await asyncio.sleep(0.1 + TICK_S)
    assert [record.body for record in records(waiting.result())] == [b"later"]


@in_broker()
async def test_the_message_is_as_it_was_sent(desk: Desk) -> None:
    await desk.send(
        "T", b"later", 2, f=7, j=3, pairs={"DELAY": "1", "TAGS": "A", "KEYS": "k1 k2", "own": "x"}
    )
    (waited,) = records(await desk.pull(SCHEDULE, 0, 0))
    await asyncio.sleep(1 + TICK_S)
    (record,) = await arrived(desk, "T", 2)
    assert record.properties == waited.properties
    for field in (
        "body",
        "flag",
        "sys_flag",
        "born_timestamp",
        "born_host",
        "store_host",
        "reconsume_times",
    ):
        assert getattr(record, field) == getattr(waited, field)
    assert (record.queue_id, record.reconsume_times) == (2, 3)
    queue = desk.store.queues.queue("T", 2)
    assert queue.entry(0) == (record.physical_offset, record.size, java_hash("A"))
    by_key = await desk.ask(
        12, {"topic": "T", "key": "k2", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 2**62}
    )
    assert records(by_key) == [record]


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((STORES / "expected.json.xz").read_bytes()))[name]
    return found


def test_a_round_of_retries_stores_what_apache_stored() -> None:
    """Waiting, delivered, waiting longer, delivered, dead: the records of a store of 5.5.0, in this order."""
    theirs = [m for m in golden("5.5.0-clean")["messages"] if m["keys"] == "r1" and m["topic"] != "Ret"]
    first = next(m for m in golden("5.5.0-clean")["messages"] if m["keys"] == "r1" and m["topic"] == "Ret")

    async def scenario(desk: Desk) -> None:
        kept = ("CLUSTER", "MSG_REGION", "TRACE_ON", "ORIGIN_MESSAGE_ID")
        pairs = {name: value for name, value in first["properties"].items() if name not in kept}
        await desk.send("Ret", b"x", pairs=pairs | {"WAIT": first["properties"]["WAIT"]})
        offset, ours = 0, []
        for round_ in range(3):
            ext = {"offset": offset, "group": "GRetry", "delayLevel": 0, "maxReconsumeTimes": 2}
            assert (await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == ResponseCode.SUCCESS
            if round_ < 2:
                ours += await arrived(desk, SCHEDULE, 2 + round_)
                await asyncio.sleep(31)
                ours.append((await arrived(desk, "%RETRY%GRetry"))[round_])
                offset = ours[-1].physical_offset
        ours += await arrived(desk, "%DLQ%GRetry")
        assert [(r.topic, r.queue_id, r.reconsume_times) for r in ours] == [
            (m["topic"], m["queueId"], m["reconsumeTimes"]) for m in theirs
        ]
        for record, message in zip(ours, theirs, strict=True):
            changes = {"ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000000000"}
            assert record.property_map() == message["properties"] | changes
            assert (record.flag, record.sys_flag) == (message["flag"], message["sysFlag"])

    with_broker(scenario)


@in_broker()
async def test_a_copy_says_what_it_is_a_copy_of(desk: Desk) -> None:
    await send(desk, b"0")
    await send(desk, b"1")
    await asyncio.sleep(1 + TICK_S)
    waited = await arrived(desk, SCHEDULE)
    assert [~record.prepared_transaction_offset for record in await arrived(desk)] == [
        record.physical_offset for record in waited
    ]


# --- stops and crashes ---


@pytest.mark.parametrize("end", [None, Survival.KEPT])
def test_what_waits_is_delivered_after_a_restart(end: Survival | None) -> None:
    due_ms: list[int] = []

    async def before(desk: Desk) -> Survival | None:
        for number in range(5):
            await send(desk, b"%d" % number, level=4)
        due_ms.append(desk.disk.clock.now_ms() + 30_000)
        await asyncio.sleep(5)
        return end

    async def after(desk: Desk) -> None:
        await asyncio.sleep((due_ms[0] - desk.disk.clock.now_ms()) / 1000 - 0.02)
        assert await bodies(desk) == []
        await asyncio.sleep(0.02 + TICK_S)
        assert await bodies(desk) == [b"0", b"1", b"2", b"3", b"4"]
        await asyncio.sleep(60)
        assert len(await bodies(desk)) == 5

    restarts(before, after)


@pytest.mark.parametrize("end", [None, Survival.KEPT])
@pytest.mark.parametrize("pause_s", [0.0, 11.0])
def test_what_was_delivered_is_not_delivered_again(end: Survival | None, pause_s: float) -> None:
    """Apache delivers again what it delivered since it last wrote delayOffset.json."""

    async def before(desk: Desk) -> Survival | None:
        await asyncio.sleep(pause_s)
        for number in range(5):
            await send(desk, b"%d" % number, level=1 + number % 2)
        await asyncio.sleep(1 + TICK_S)
        assert await bodies(desk) == [b"0", b"2", b"4"]
        return end

    async def after(desk: Desk) -> None:
        await asyncio.sleep(100)
        assert await bodies(desk) == [b"0", b"2", b"4", b"1", b"3"]

    restarts(before, after, after)


def test_a_stop_before_everything_was_looked_at_again_brings_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levels, "ENTRIES_PER_TURN", 4)  # a turn of a queue of a million

    async def before(desk: Desk) -> Survival:
        for _ in range(200):
            await send(desk, level=2)
        await asyncio.sleep(11)  # written down
        await send(desk, b"soon", level=1, topic="S")
        await asyncio.sleep(2)
        assert await bodies(desk, "S") == [b"soon"]
        return Survival.KEPT

    async def short(desk: Desk) -> None:
        return

    async def after(desk: Desk) -> None:
        await asyncio.sleep(30)
        assert await bodies(desk, "S") == [b"soon"]

    restarts(before, short, after, message_delay_levels="1s 2h")


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_is_written_down_about_a_queue_that_is_gone_hides_no_message(flush: str) -> None:
    async def before(desk: Desk) -> None:
        for number in range(3):
            await send(desk, b"old %d" % number)
        await asyncio.sleep(20)

    async def after(desk: Desk) -> None:
        await send(desk, b"first")
        await send(desk, b"second")
        await asyncio.sleep(20)
        assert await bodies(desk) == [b"first", b"second"]

    async def story() -> None:
        disk = SimulatedDisk(Chance(1), VirtualClock())
        async with running(disk=disk, flush_disk_type=flush) as desk:
            await before(desk)
        for name in ("commitlog", "consumequeue", "index"):
            disk.remove_tree(f"/store/{name}")
        disk.remove("/store/checkpoint")
        async with running(disk=disk, flush_disk_type=flush) as desk:
            await after(desk)

    run_virtual(story())


@pytest.mark.parametrize("survival", [Survival.LOST, Survival.RANDOM, Survival.PREFIX])
def test_a_copy_that_the_power_took_is_made_again(survival: Survival) -> None:
    async def before(desk: Desk) -> Survival:
        for number in range(20):
            await send(desk, b"%d" % number)
        await asyncio.sleep(0.9)  # on the medium
        for _ in range(3):
            await asyncio.sleep(0.07)
            desk.workers.stall(5)
        return survival

    async def after(desk: Desk) -> None:
        await asyncio.sleep(100)
        assert sorted(map(int, await bodies(desk))) == list(range(20))

    restarts(before, after, flush_interval_ms=200, flush_least_pages=0)


def test_what_is_written_down_is_never_ahead_of_the_copies() -> None:
    async def before(desk: Desk) -> Survival:
        await send(desk)
        await asyncio.sleep(0.9)
        desk.disk.sync_failure = 1.0
        await asyncio.sleep(30)
        assert await bodies(desk) == [b"later"]
        desk.disk.sync_failure = 0.0
        return Survival.LOST

    async def after(desk: Desk) -> None:
        await asyncio.sleep(30)
        assert await bodies(desk) == [b"later"]

    restarts(before, after)


@in_broker()
async def test_what_is_done_is_on_disk_within_ten_seconds(desk: Desk) -> None:
    await asyncio.sleep(3)
    assert not desk.disk.exists("/store/config/delayOffset.json")  # there never was a delayed message
    await send(desk)
    await send(desk, level=3)
    await asyncio.sleep(10.5)
    file = saved(desk)
    assert file["offsetTable"] == {"1": 1, "3": 0}
    assert "waiting" not in file
    await asyncio.sleep(10)
    assert saved(desk)["offsetTable"] == {"1": 1, "3": 1}
    wire = DelayOffsetSerializeWrapper.decode(desk.disk.read("/store/config/delayOffset.json"))
    assert wire.offsetTable == {1: 1, 3: 1}
    answer = await desk.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert DelayOffsetSerializeWrapper.decode(answer.body).offsetTable == {1: 1, 3: 1}


@pytest.mark.parametrize(
    "text",
    [
        '{\n\t"offsetTable":{1:1,2:1,3:3,18:1\n\t}\n}',
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":1794734234072\n\t},'
        '\n\t"offsetTable":{\n\t\t1:1,\n\t\t2:1,\n\t\t3:3,\n\t\t18:1\n\t}\n}',
    ],
    ids=["4.9.7", "5.5.0"],
)
def test_apaches_files_are_read(text: str) -> None:
    delays = DelayedMessages(None, None, MagicMock(), *[None] * 3)  # type: ignore[arg-type]
    assert delays.load(text.encode()) == 4
    file = delays._file
    assert file is not None
    assert (file.position(3), file.position(4), file.logOffset) == (QueuePosition(3), QueuePosition(0), None)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"offsetTable":{"1":1},"waiting":{"1":[1,2]}}', b"null"]
)
def test_a_damaged_file_is_not_taken(text: bytes) -> None:
    delays = DelayedMessages(None, None, MagicMock(), *[None] * 3)  # type: ignore[arg-type]
    with pytest.raises(Exception):  # noqa: B017 - whatever it is, the copy beside it is used
        delays.load(text)
    assert delays._file is None


def test_offsets_of_apache_beyond_the_queue_are_brought_back() -> None:
    async def before(desk: Desk) -> None:
        await send(desk)

    async def between(desk: Desk) -> Survival:
        desk.disk.write("/store/config/delayOffset.json", b'{"offsetTable":{1:77}}')
        return Survival.KEPT

    async def after(desk: Desk) -> None:
        await send(desk, b"new")
        await asyncio.sleep(2)
        assert (await bodies(desk))[-1] == b"new"

    restarts(before, between, after)


# --- levels that change between restarts ---


def test_each_keeps_the_time_that_it_was_given() -> None:
    """Shortened, lengthened, added and removed. Apache delivers early or late, or never."""
    first = "10s 2m 20s 20s"
    second = "2m 10s 20s"

    async def before(desk: Desk) -> None:
        for level in (1, 2, 3, 4):
            await send(desk, b"old%d" % level, level=level)

    async def after(desk: Desk) -> None:
        for level in (1, 2, 3):
            await send(desk, b"new%d" % level, level=level)
        await asyncio.sleep(10 + TICK_S)
        assert sorted(await bodies(desk)) == [b"new2", b"old1"]
        await asyncio.sleep(10)
        assert sorted(await bodies(desk)) == [b"new2", b"new3", b"old1", b"old3", b"old4"]

    async def at_last(desk: Desk) -> None:
        await asyncio.sleep(100)
        assert sorted(await bodies(desk)) == [b"new1", b"new2", b"new3", b"old1", b"old2", b"old3", b"old4"]

    restarts(before, after, at_last, message_delay_levels=[first, second, DELAY_LEVELS])


@pytest.mark.parametrize("end", [None, Survival.KEPT])
def test_shorter_delays_overtake_what_waits_longer_and_nothing_comes_twice(end: Survival | None) -> None:
    async def before(desk: Desk) -> None:
        for number in range(3):
            await send(desk, b"slow%d" % number)

    async def after(desk: Desk) -> Survival | None:
        for number in range(3):
            await send(desk, b"fast%d" % number)
        await asyncio.sleep(2)
        assert await bodies(desk) == [b"fast0", b"fast1", b"fast2"]
        await asyncio.sleep(10)
        assert saved(desk)["offsetTable"] == {"1": 0}
        assert saved(desk)["waiting"] == {"1": [0, 3, 6]}
        await send(desk, b"last")
        await asyncio.sleep(2)
        return end

    async def at_last(desk: Desk) -> None:
        assert await bodies(desk) == [b"fast0", b"fast1", b"fast2", b"last"]
        await asyncio.sleep(100)
        assert (await bodies(desk))[4:] == [b"slow0", b"slow1", b"slow2"]

    restarts(before, after, at_last, message_delay_levels=["100s", "1s", "2h"])


def test_queues_made_anew_from_the_log_give_the_old_times() -> None:
    async def before(desk: Desk) -> None:
        await send(desk, b"first")

    async def between(desk: Desk) -> Survival:
        await send(desk, b"second")
        await asyncio.sleep(3)
        disk = desk.disk
        killed = disk.crash(Survival.KEPT)
        killed.remove_tree("/store/consumequeue")
        disk._names = killed._names  # the crash that follows finds no queue
        return Survival.KEPT

    async def after(desk: Desk) -> None:
        await send(desk, b"third")
        await asyncio.sleep(10 - 3 + TICK_S)
        assert sorted(await bodies(desk)) == [b"first", b"third"]
        await asyncio.sleep(20)
        assert sorted(await bodies(desk)) == [b"first", b"second", b"third"]

    restarts(before, between, after, message_delay_levels=["10s", "30s", "1s"])


# --- trouble ---


@in_broker()
async def test_nothing_is_lost_while_the_store_takes_nothing(desk: Desk) -> None:
    for number in range(3):
        await send(desk, b"%d" % number, level=4)
    desk.disk.used_ratio = 0.95
    await asyncio.sleep(40)
    assert await bodies(desk) == []
    desk.disk.used_ratio = 0.5
    await asyncio.sleep(10 + TICK_S)
    assert await bodies(desk) == [b"0", b"1", b"2"]


@in_broker()
async def test_a_topic_with_fewer_queues_gets_what_was_meant_for_the_others(desk: Desk) -> None:
    answer = await desk.send("T", b"later", 3, pairs={"DELAY": "1"})
    assert answer.code == ResponseCode.SUCCESS
    fields = {"topic": "T", "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
    fewer = fields | {"readQueueNums": 2, "writeQueueNums": 2, "order": "false"}
    assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fewer)).code == ResponseCode.SUCCESS
    await asyncio.sleep(1 + TICK_S)
    (record,) = await arrived(desk, "T", 1)
    assert (record.body, record.property_map()["REAL_QID"]) == (b"later", "3")


@in_broker()
async def test_a_deleted_topic_is_not_brought_back(desk: Desk) -> None:
    await send(desk, topic="Gone")
    await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})
    await asyncio.sleep(2)
    assert (await desk.pull("Gone", 0)).code == ResponseCode.TOPIC_NOT_EXIST


@virtual
async def test_the_state_of_the_broker_says_how_far_each_level_is() -> None:
    async with running() as desk:
        for level in (1, 1, 3):
            await send(desk, level=level)
        await asyncio.sleep(2)
        answer = await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.decode(answer.body).table
        found = {key: text for key, text in table.items() if key.startswith("scheduleMessageOffset")}
        assert found == {"scheduleMessageOffset_1": "2,2", "scheduleMessageOffset_3": "0,1"}


def as_waiting(desk: Desk, model: Record, properties: bytes) -> Draft:
    """One more message for the queue of level 1."""
    return Draft(
        queue=desk.store.queues.queue(SCHEDULE, 0),
        body=model.body,
        properties=properties,
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=model.born_host,
        delay_ms=1000,
    )


def test_a_message_that_says_no_destination_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(desk: Desk) -> None:
        schedule = desk.store.queues.queue(SCHEDULE, 0)
        await send(desk, b"before")
        (model,) = await arrived(desk, SCHEDULE)
        for number, topic in enumerate(["", "../../etc", "RMQ_SYS_TRANS_HALF_TOPIC"]):
            text = f"DELAY\x011\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02"
            desk.store.log.append([as_waiting(desk, model, text.encode())])
            assert schedule.max_offset == number + 2
        await send(desk, b"after")
        await asyncio.sleep(1 + TICK_S)
        assert await bodies(desk) == [b"before", b"after"]

    with_broker(scenario)
    told = [record.getMessage() for record in caplog.records if "has no destination" in record.getMessage()]
    assert [line.partition(": ")[2] for line in told] == [
        f"it has no destination ({number} skipped since the start)" for number in (1, 2, 3)
    ]


def test_a_smaller_limit_of_sizes_does_not_stop_what_was_accepted() -> None:
    async def before(desk: Desk) -> None:
        await send(desk, b"x" * 5000)
        await send(desk, b"small")

    async def after(desk: Desk) -> None:
        await asyncio.sleep(2)
        assert await bodies(desk) == [b"x" * 5000, b"small"]

    restarts(before, after, max_message_size=[4 << 20, 100])


def test_many_that_are_due_leave_others_their_turn() -> None:
    count = 5 * BATCH * BATCHES_PER_TURN

    async def before(desk: Desk) -> None:
        await send(desk, b"x")
        (model,) = await arrived(desk, SCHEDULE)
        desk.store.log.append([as_waiting(desk, model, model.properties)] * (count - 1))

    async def after(desk: Desk) -> None:
        turns = 0
        queue = desk.store.queues.queue("T", 0)
        while queue.max_offset < count:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 5

    restarts(before, after, pause_s=10)


@in_broker()
async def test_the_clock_set_forward_makes_them_due_within_a_second(desk: Desk) -> None:
    await send(desk, level=18)
    await asyncio.sleep(1)
    clock = desk.disk.clock
    assert isinstance(clock, VirtualClock)
    clock._start_ms += 7_200_000
    await asyncio.sleep(1 + TICK_S)
    assert await bodies(desk) == [b"later"]


def test_messages_that_are_not_in_memory_keep_nobody_waiting() -> None:
    async def before(desk: Desk) -> None:
        await send(desk, b"old", level=3)

    async def after(desk: Desk) -> None:
        desk.disk.cold = {f"/store/commitlog/{entry.name}" for entry in desk.disk.entries("/store/commitlog")}
        desk.workers.stall_reads(4.0)
        clock = desk.disk.clock
        await asyncio.sleep(10)
        assert await bodies_in_memory(desk) == []
        began = clock.monotonic()
        await send(desk, b"new")
        await asyncio.sleep(1 + TICK_S)
        assert clock.monotonic() - began < 1.5
        assert await bodies_in_memory(desk) == [b"new"]
        await asyncio.sleep(3)
        assert await bodies_in_memory(desk) == [b"new", b"old"]

    restarts(before, after)


async def bodies_in_memory(desk: Desk) -> list[bytes]:
    queue = desk.store.queues.queue("T", 0)
    entries = [queue.entry(offset) or (0, 0, 0) for offset in range(queue.max_offset)]
    return [record.body for at, _, _ in entries if (record := desk.store.log.look_up(at)) is not None]


@pytest.mark.parametrize(("first", "waiting"), [(51, "[]"), (0, "[0,30,51]"), (0, "[]")])
@in_broker()
async def test_what_is_written_down_says_nothing_about_later_messages(
    desk: Desk, first: int, waiting: str
) -> None:
    """A crash may cost the empty queue of messages that retention deleted: the next ones begin at 0 again."""

    await desk.send("T")
    log_end = desk.store.log.end
    for _ in range(3):
        await send(desk, level=3)
    delays = DelayedMessages(desk.store, None, MagicMock(), *[None] * 3)  # type: ignore[arg-type]
    text = f'{{"offsetTable":{{"3":{first}}},"logOffset":{log_end},"waiting":{{"3":{waiting}}}}}'
    delays.load(text.encode())
    delays.open()
    assert delays.progress() == {3: (0, 3)}
