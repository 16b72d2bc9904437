"""What an operator may have tidied up: 306, 316, 329."""

import asyncio
from dataclasses import replace

from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, Desk, records, running
from tests.unit.broker.kit import Bench

from turbopump.protocol.codes import RequestCode
from turbopump.store.store import Store

SMALL_FILES = replace(CONFIG, store=replace(CONFIG.store, commit_log_file_size=8192, file_reserved_hours=0))
QUEUES = "/store/consumequeue"


def store_of(desk: Desk) -> Store:
    store = desk.broker._store
    assert store is not None
    return store


def names(desk: Desk, path: str) -> list[str]:
    return [entry.name for entry in desk.disk.entries(path)]


async def fill(desk: Desk, topic: str, count: int, queue_id: int = 0) -> None:
    for _ in range(count):
        assert (await desk.send(topic, b"x" * 1000, queue_id=queue_id)).code == 0


async def grow_old(desk: Desk) -> None:
    """All log files but the last are deleted."""
    await asyncio.sleep(60)
    await desk.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
    await asyncio.sleep(30)


@virtual
async def test_expired_files_of_the_log_go_at_any_hour_when_asked() -> None:
    async with running(replace(SMALL_FILES, store=replace(SMALL_FILES.store, delete_when="12"))) as desk:
        await fill(desk, "T", 30)
        before = names(desk, "/store/commitlog")
        assert len(before) > 3
        await asyncio.sleep(90)
        assert len(names(desk, "/store/commitlog")) >= len(before)  # the hour has not come
        assert (await desk.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
        await asyncio.sleep(30)
        assert names(desk, "/store/commitlog")[0] > before[2]
        assert store_of(desk).log.min_offset > 0


@virtual
async def test_a_queue_that_its_topic_has_goes_on_where_it_was() -> None:
    """Apache removes it whole; its next message gets offset 0, and a consumer that was at 12 skips it."""

    async with running(SMALL_FILES) as desk:
        await fill(desk, "T", 12)
        await fill(desk, "Other", 20)
        await grow_old(desk)
        queue = store_of(desk).queues.queue("T", 0)
        assert queue.is_empty
        assert (await desk.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert names(desk, f"{QUEUES}/T") == ["0"]
        assert (await desk.send("T")).ext["queueOffset"] == "12"
        assert [one.queue_offset for one in records(await desk.pull("T", 12))] == [12]


@virtual
async def test_an_empty_queue_that_nobody_wants_goes() -> None:
    async with running(SMALL_FILES) as desk:
        for queue_id in (0, 1, 2, 3):
            await fill(desk, "T", 3, queue_id)
        await desk.pull("T", 0, 3)
        offset = {"consumerGroup": "readers", "topic": "T", "queueId": 3, "commitOffset": 3}
        await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
        await fill(desk, "Other", 20)
        for count in (4, 2):
            change = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": count, "perm": 6}
            change |= {"writeQueueNums": count, "topicFilterType": "SINGLE_TAG", "order": "false"}
            assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, change)).code == 0
        await desk.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        await asyncio.sleep(11)
        assert names(desk, f"{QUEUES}/T") == ["0", "1", "2", "3"]  # their messages are there
        await grow_old(desk)
        await desk.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert names(desk, f"{QUEUES}/T") == ["0", "1", "3"]  # 3: a group has an offset there
        disk = desk.disk
    async with running(SMALL_FILES, disk=disk.crash()) as desk:  # and recovery takes it for no loss
        assert names(desk, f"{QUEUES}/T") == ["0", "1", "3"]


@virtual
async def test_queues_of_a_topic_that_is_in_no_table_go() -> None:
    bench = Bench()
    peer = bench.connect()
    bench.topics.for_send("T", "TBW102", 4, False, ("127.0.0.1", 1))
    for topic in ("T", "Left", "SCHEDULE_TOPIC_XXXX"):
        bench.put(topic, 0, 2)
    bench.offsets.commit("G", "Left", 0, 1)
    assert (await peer.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
    found = [entry.name for entry in bench.disk.entries(QUEUES)]
    assert found == ["SCHEDULE_TOPIC_XXXX", "T"]
    assert bench.store.queues.find("Left", 0) is None
    assert bench.offsets.groups_of_topic("Left") == []
    assert bench.statistics.view("TOPIC_PUT_NUMS", "Left") is None
    bench.put("Left", 0)  # as a new one
    assert bench.store.queues.queue("Left", 0).max_offset == 1
