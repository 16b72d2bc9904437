"""Statistics: what is counted under which name, and Apache's windows."""

import asyncio
import tracemalloc

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import Desk, running
from tests.unit.broker.kit import Bench

from turbopump.broker.metrics.statistics import (
    DAY,
    HOUR,
    MINUTE,
    QUEUES_PER_TURN,
    WINDOWS,
    Figures,
    StatisticsItem,
)
from turbopump.protocol import batch
from turbopump.protocol.bodies import BrokerStatsData, BrokerStatsItem, ConsumeStats, KVTable, TopicStatsTable
from turbopump.protocol.codes import RequestCode, ResponseCode


async def minute(desk: Desk, name: str, key: str) -> tuple[int, float, float]:
    item = (await view(desk, name, key)).statsMinute
    return item.sum, item.tps, item.avgpt


async def view(desk: Desk, name: str, key: str) -> BrokerStatsData:
    answer = await desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return BrokerStatsData.decode(answer.body)


def per_second(sum_: int, seconds: int) -> float:
    return pytest.approx(sum_ / seconds)


# Windows


def reference(history: list[tuple[int, int]], window: int) -> Figures:
    """Apache's way: a snapshot of everything each time, the first preceded by a zero one."""
    every, kept = WINDOWS[window].every, WINDOWS[window].kept
    snapshots: list[tuple[int, int, int]] = []
    for tick, (value, times) in enumerate(history, 1):
        if tick % every == 0:
            if not snapshots:
                snapshots.append((tick - every, 0, 0))
            snapshots = [*snapshots, (tick, value, times)][-kept:]
    if not snapshots:
        return Figures()
    (begin, value_before, times_before), (end, value, times) = snapshots[0], snapshots[-1]
    total, count = value - value_before, times - times_before
    return Figures(total, total / ((end - begin) * 10), total / count if count else 0.0)


@pytest.mark.parametrize("window", [MINUTE, HOUR, DAY])
@pytest.mark.parametrize("busy", [(1, 1), (3, 2), (50, 7), (400, 5), (9000, 100)])
def test_windows_are_apaches_though_quiet_items_are_not_touched(window: int, busy: tuple[int, int]) -> None:
    """An item that changes in the first `on` of every `period` ticks."""
    period, on = busy
    item = StatisticsItem(born=0)
    history, changed = [], False
    for tick in range(1, 12_000):
        if tick % period < on:
            item.value += 3 * tick
            item.times += 2
            changed = True
        history.append((item.value, item.times))
        every = WINDOWS[window].every
        if tick % every == 0 and changed:
            item.snapshot(window, tick // every)
            changed = False
        if tick % 397 == 0 or tick < 80:
            assert item.figures(window, tick // every) == reference(history, window), tick


def test_an_item_that_begins_late_has_a_short_window() -> None:
    item = StatisticsItem(born=100)
    item.value, item.times = 60, 3
    assert item.figures(MINUTE, 100) == Figures()
    item.snapshot(MINUTE, 101)
    assert item.figures(MINUTE, 101) == Figures(60, 6.0, 20.0)
    assert item.figures(MINUTE, 106) == Figures(60, 1.0, 20.0)
    assert item.figures(MINUTE, 107) == Figures()


@virtual
async def test_many_busy_queues_are_counted_in_slices() -> None:
    bench = Bench()
    queues = [bench.store.queues.queue("T", queue_id) for queue_id in range(10)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(others())
    for work in (
        bench.statistics.fold,
        bench.statistics.tick,
        lambda: bench.statistics.forget_group("G"),
        lambda: bench.statistics.forget_topic("T"),
    ):
        for number in range(500):
            for queue in queues:
                bench.traffic.got(queue, f"group-{number}", 1, 100, 1)
        turns = 0
        await work()
        assert turns >= 5000 // QUEUES_PER_TURN - 1
    other.cancel()


@virtual
async def test_two_who_count_at_once_count_everything_once() -> None:
    bench = Bench()
    queue = bench.store.queues.queue("T", 0)
    for number in range(3 * QUEUES_PER_TURN):
        bench.traffic.got(queue, f"group-{number}", 1, 100, 1)
    await asyncio.gather(bench.statistics.tick(), bench.statistics.forget_group("group-7"))
    totals = bench.statistics.totals("GROUP_GET_NUMS")
    assert len(totals) == 3 * QUEUES_PER_TURN - 1
    assert bench.statistics.get_total.now == sum(totals.values()) + 1


@virtual
async def test_a_queue_that_a_group_reads_costs_little_memory() -> None:
    bench = Bench()
    queue = bench.store.queues.queue("T", 0)
    groups = [f"group-{number}" for number in range(500)]
    tracemalloc.start()
    for _ in range(2 * WINDOWS[MINUTE].kept):
        for group in groups:
            bench.traffic.got(queue, group, 1, 100, 1)
        await bench.statistics.tick()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 500 * 5 * 800  # five items each: of the queue and of the topic


@virtual
async def test_items_of_a_queue_that_was_idle_for_longer_than_a_day_go() -> None:
    bench = Bench()
    bench.put("T", 0)
    idle, busy = bench.store.queues.queue("T", 0), bench.store.queues.queue("T", 1)
    bench.traffic.got(idle, "G", 1, 100, 1)
    view = bench.statistics.view
    for _ in range(24 * 360):
        bench.traffic.got(busy, "G", 1, 100, 1)
        await bench.statistics.tick()
    assert view("QUEUE_GET_NUMS", "T@0@G") is not None
    for _ in range(3 * 360):
        bench.traffic.got(busy, "G", 1, 100, 1)
        await bench.statistics.tick()
    for name, key in (("QUEUE_GET_NUMS", "T@{}@G"), ("GROUP_GET_FALL_SIZE", "{}@T@G")):
        assert (view(name, key.format(0)), view(name, key.format(1)) is None) == (None, False)
    assert view("QUEUE_PUT_SIZE", "T@0") is None
    assert bench.statistics.totals("TOPIC_PUT_NUMS") == {"T": 1}
    assert bench.statistics.put_total.now == 1


# What is counted


@virtual
async def test_puts_are_counted_by_topic_and_queue() -> None:
    async with running() as desk:
        for queue_id in (0, 0, 1):
            await desk.send("T", b"x" * 100, queue_id=queue_id)
        assert await minute(desk, "TOPIC_PUT_NUMS", "T") == (0, 0.0, 0.0)  # known, no snapshot yet
        await asyncio.sleep(10)
        assert await minute(desk, "TOPIC_PUT_NUMS", "T") == (3, 0.3, 1.0)
        assert await minute(desk, "QUEUE_PUT_NUMS", "T@0") == (2, 0.2, 1.0)
        size, _, average = await minute(desk, "TOPIC_PUT_SIZE", "T")
        assert size == desk.broker._store.log.end
        assert average == size / 3
        assert await minute(desk, "TOPIC_PUT_LATENCY", "0@T") == (0, 0.0, 0.0)
        assert await minute(desk, "BROKER_PUT_NUMS", "DefaultCluster") == (3, 0.3, 0.0)
        assert await minute(desk, "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster") == (
            3,
            0.3,
            0.0,
        )
        await asyncio.sleep(50)
        assert await minute(desk, "TOPIC_PUT_NUMS", "T") == (3, 0.05, 1.0)
        await asyncio.sleep(10)
        assert await minute(desk, "TOPIC_PUT_NUMS", "T") == (0, 0.0, 0.0)


@virtual
async def test_hours_and_days_are_shown_too() -> None:
    bench = Bench()
    peer = bench.connect()

    async def shown() -> tuple[BrokerStatsItem, BrokerStatsItem]:
        answer = await peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T")
        data = BrokerStatsData.decode(answer.body)
        return data.statsHour, data.statsDay

    bench.put("T", 0, 3)
    none = BrokerStatsItem()
    for _ in range(59):
        await bench.statistics.tick()
    assert await shown() == (none, none)
    await bench.statistics.tick()
    hour = BrokerStatsItem(sum=3, tps=3 / 600, avgpt=1.0)
    assert await shown() == (hour, none)
    for _ in range(300):
        await bench.statistics.tick()
    assert await shown() == (BrokerStatsItem(sum=3, tps=3 / 3600, avgpt=1.0),) * 2


@virtual
async def test_a_batch_is_many_messages_and_one_time() -> None:
    async with running() as desk:
        await desk.send("T")
        rows = [(0, b"one", b""), (0, b"two", b""), (0, b"three", b"")]
        body = batch.join(rows)
        await desk.send("T", body, code=RequestCode.SEND_BATCH_MESSAGE, m="true")
        await asyncio.sleep(10)
        assert await minute(desk, "TOPIC_PUT_NUMS", "T") == (4, 0.4, 2.0)


@virtual
async def test_gets_are_counted_by_topic_and_group() -> None:
    async with running() as desk:
        for queue_id in (0, 0, 1):
            await desk.send("T", queue_id=queue_id)
        pulled = [await desk.pull("T", 0, queue_id) for queue_id in (0, 1)]
        await desk.pull("T", 7, queue_id=1, sysFlag=6)  # finds nothing
        await asyncio.sleep(10)
        assert await minute(desk, "GROUP_GET_NUMS", "T@readers") == (3, 0.3, 1.5)
        assert await minute(desk, "QUEUE_GET_NUMS", "T@0@readers") == (2, 0.2, 2.0)
        size = sum(len(answer.body) for answer in pulled)
        assert await minute(desk, "GROUP_GET_SIZE", "T@readers") == (size, size / 10, size / 2)
        assert await minute(desk, "GROUP_GET_LATENCY", "0@T@readers") == (0, 0.0, 0.0)
        assert await minute(desk, "BROKER_GET_NUMS", "DefaultCluster") == (3, 0.3, 0.0)


@virtual
async def test_a_system_topic_counts_for_the_broker_but_not_for_its_daily_totals() -> None:
    bench = Bench()
    bench.put("T", 0, 2)
    bench.put("broker-a", 0, 3)
    bench.put("SCHEDULE_TOPIC_XXXX", 0, 4)
    await bench.statistics.tick()
    assert bench.statistics.put_total.now == 2
    figures, _, _ = bench.statistics.view("BROKER_PUT_NUMS", "DefaultCluster") or ()
    assert figures == Figures(9, 0.9, 0.0)


@virtual
async def test_messages_sent_back_are_counted_by_their_topic_and_dead_ones_apart() -> None:
    async with running() as desk:
        await desk.send("T")
        await desk.pull("T", 0)
        ext = {"offset": 0, "group": "readers", "originTopic": "T", "unitMode": "false"}
        for level in (0, -1):
            answer = await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext | {"delayLevel": level})
            assert answer.code == 0, answer.remark
        await asyncio.sleep(10)
        assert await minute(desk, "SNDBCK_PUT_NUMS", "T@readers") == (2, 0.2, 1.0)
        dead = await minute(desk, "SNDBCK2DLQ_TIMES", "null@T@readers@SEND_BACK_TO_DLQ")
        assert dead == (1, 0.1, 1.0)


@virtual
async def test_how_far_behind_a_pull_was() -> None:
    async with running() as desk:
        for _ in range(3):
            await desk.send("T")
        await asyncio.sleep(5)
        await desk.send("T")
        await desk.pull("T", 0, maxMsgNums=2)
        store = desk.broker._store
        queue = store.queues.find("T", 0)
        size, _, _ = await minute(desk, "GROUP_GET_FALL_SIZE", "0@T@readers")
        assert size == store.log.end - queue.entry(2)[0]
        milliseconds, _, _ = await minute(desk, "GROUP_GET_FALL_TIME", "0@T@readers")
        assert 5000 <= milliseconds < 6000
        await desk.pull("T", 2)
        assert await minute(desk, "GROUP_GET_FALL_SIZE", "0@T@readers") == (0, 0.0, 0.0)
        assert await minute(desk, "GROUP_GET_FALL_TIME", "0@T@readers") == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "never"),
        ("NO_SUCH_NAME", "T"),
        ("COMMERCIAL_SEND_TIMES", "T"),
        ("GROUP_GET_FALL_SIZE", "0@T@nobody"),
        ("GROUP_GET_FALL_TIME", "x@T@readers"),
        ("GROUP_GET_FALL_TIME", ""),
    ],
)
@virtual
async def test_what_was_never_counted_does_not_exist(name: str, key: str) -> None:
    async with running() as desk:
        await desk.send("T")
        ext = {"statsName": name, "statsKey": key}
        answer = await desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, ext)
        assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")


@virtual
async def test_a_put_that_waits_for_the_disk_is_measured_until_it_is_there() -> None:
    async with running(flush_disk_type="SYNC_FLUSH") as desk:
        await desk.send("T")
        for pairs in ({}, {"TRACE_ON": "false"}):  # the quick way, and the general one
            desk.workers.stall(0.7)
            await desk.send("T", pairs=pairs)
        await asyncio.sleep(10)
        total, _, average = await minute(desk, "TOPIC_PUT_LATENCY", "0@T")
        assert 1400 <= total < 1500
        assert average == total / 3
        answer = await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.decode(answer.body).table
        assert 700 <= int(table["putMessageEntireTimeMax"]) < 710
        assert "[500ms~1s]:2 " in table["putMessageDistributeTime"]
        assert 700 <= float(table["putLatency99"]) < 710


@virtual
async def test_returned_and_delayed_messages_are_measured_too() -> None:
    async with running(flush_disk_type="SYNC_FLUSH") as desk:
        await desk.send("T")
        await desk.pull("T", 0)
        desk.workers.stall(0.7)
        ext = {"offset": 0, "group": "readers", "originTopic": "T", "delayLevel": 1}
        answer = await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        assert answer.code == 0, answer.remark
        await asyncio.sleep(11)
        total, _, _ = await minute(desk, "TOPIC_PUT_LATENCY", "0@SCHEDULE_TOPIC_XXXX")
        assert 700 <= total < 750
        answer = await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.decode(answer.body).table
        counts = [int(text.rpartition(":")[2]) for text in table["putMessageDistributeTime"].split()]
        assert sum(counts) == int(table["putMessageTimesTotal"]) == 3


@virtual
async def test_nothing_is_kept_of_the_puts_of_a_deleted_queue() -> None:
    bench = Bench()
    bench.put("T", 0)
    queue = bench.store.queues.queue("T", 0)
    bench.store.queues.delete_topic("T")
    bench.traffic.took(5, [queue])
    await bench.statistics.tick()
    await bench.statistics.tick()
    assert (bench.traffic.slow_ms, bench.traffic.together) == ({}, {})


# Who shows it


@virtual
async def test_rates_of_topics_and_groups_are_shown_with_their_offsets() -> None:
    async with running() as desk:
        for number in range(20):
            await desk.send("T", queue_id=number % 4)
        await desk.pull("T", 0)
        await desk.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "readers", "topic": "T", "queueId": 0, "commitOffset": 5},
        )
        await asyncio.sleep(20)
        table = TopicStatsTable.decode(
            (await desk.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})).body
        )
        assert table.topicPutTps == per_second(20, 20)
        for ext in ({"consumerGroup": "readers"}, {"consumerGroup": "readers", "topic": "T"}):
            stats = ConsumeStats.decode((await desk.ask(RequestCode.GET_CONSUME_STATS, ext)).body)
            assert stats.consumeTps == per_second(5, 20)


@virtual
async def test_daily_totals_begin_at_midnight() -> None:
    bench = Bench()
    peer = bench.connect()

    async def totals() -> list[int]:
        table = KVTable.decode((await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        days = ("YesterdayMorning", "TodayMorning", "TodayNow")
        return [int(table[f"msg{what}Total{day}"]) for what in ("Put", "Get") for day in days]

    async def pass_midnight() -> None:
        await asyncio.sleep(24 * 3600)
        await bench.statistics.tick()

    bench.put("T", 0)
    bench.traffic.got(bench.store.queues.queue("T", 0), "G", 1, 100, 1)
    assert await totals() == [0, 0, 1, 0, 0, 1]
    await pass_midnight()
    bench.put("T", 0)
    assert await totals() == [0, 1, 2, 0, 1, 1]
    await pass_midnight()
    assert await totals() == [1, 2, 2, 1, 1, 1]


@virtual
async def test_items_go_with_their_topic() -> None:
    bench = Bench()
    peer = bench.connect()
    for topic in ("T", "T2"):
        bench.put(topic, 0)
        queue = bench.store.queues.queue(topic, 0)
        for group in ("G", "G2"):
            bench.traffic.got(queue, group, 1, 100, 1)
    await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    seen = {
        (name, key)
        for name, items in bench.statistics._table.items()
        for key in items
        if not name.startswith("BROKER")
    }
    assert {key.replace("@", " ").split().count("T2") for _, key in seen} == {1}
    assert ("GROUP_GET_LATENCY", "0@T2@G2") in seen
    assert ("TOPIC_PUT_LATENCY", "0@T2") in seen
    assert (bench.statistics.view("BROKER_PUT_NUMS", "DefaultCluster") or ()) != ()
    await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G2")
    groups = {
        key.split("@")[-1]
        for name, items in bench.statistics._table.items()
        if "GET" in name
        for key in items
    }
    assert groups == {"G", "DefaultCluster"}
    assert bench.statistics.view("GROUP_GET_FALL_SIZE", "0@T2@G2") is None
    assert bench.statistics.view("GROUP_GET_FALL_SIZE", "0@T2@G") is not None
