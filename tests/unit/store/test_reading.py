import asyncio

import pytest
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import draft, fill, new_disk, open_store

from turbopump.protocol.hashing import java_hash
from turbopump.protocol.record import decode_all
from turbopump.store.reading import GetStatus
from turbopump.store.store import Store
from turbopump.store.times import Boundary

BIG = {"commit_log_file_size": 1 << 20, "consume_queue_file_size": 20_000}


def many(count: int, size: int = 10, tag: str = "", **settings: object) -> Store:
    store = open_store(new_disk(), **{**BIG, "index_enabled": False, **settings})
    queue = store.queues.queue("T", 0)
    store.log.append([draft(queue, b"%06d" % number + bytes(size), tag=tag) for number in range(count)])
    return store


def test_an_empty_queue_has_no_message_whatever_the_offset():
    store = open_store(new_disk())
    result = store.reader.get(store.queues.queue("T", 0), 17, 32)
    assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_offsets_outside_of_the_queue_are_put_right():
    store = many(10)
    queue = store.queues.queue("T", 0)
    at_end = store.reader.get(queue, 10, 32)
    assert (at_end.status, at_end.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 10)
    beyond = store.reader.get(queue, 11, 32)
    assert (beyond.status, beyond.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 10)
    before = store.reader.get(queue, -1, 32)
    assert (before.status, before.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)
    assert (before.min_offset, before.max_offset, before.chunks) == (0, 10, [])


def test_neighbours_come_in_one_piece_and_others_are_joined():
    store = open_store(new_disk(), **BIG)
    ones, twos = store.queues.queue("T", 1), store.queues.queue("T", 2)
    store.log.append([draft(ones, b"a"), draft(ones, b"b"), draft(twos, b"c"), draft(ones, b"d")])
    result = store.reader.get(ones, 0, 32)
    assert (result.status, result.count, len(result.chunks)) == (GetStatus.FOUND, 3, 2)
    assert [record.body for record in decode_all(result.body)] == [b"a", b"b", b"d"]
    assert result.next_offset == 3
    assert result.size == len(result.body)


@pytest.mark.parametrize(
    ("asked", "given"), [(1, 1), (5, 5), (32, 32), (33, 32), (1000, 32), (0, 1), (-3, 1)]
)
def test_a_pull_gets_what_it_asks_for_but_thirty_two_at_most(asked, given):
    assert many(100).reader.get(many(100).queues.queue("T", 0), 0, 32).count == 32
    store = many(100)
    result = store.reader.get(store.queues.queue("T", 0), 3, asked)
    assert (result.count, result.next_offset) == (given, 3 + given)


@pytest.mark.parametrize(
    ("bulk_bytes", "setting", "given"),
    [(1 << 20, 1 << 20, 5_000), (400_000, 1 << 20, 3_703), (1 << 20, 300_000, 2_777), (1 << 20, 0, 32)],
)
def test_who_asks_for_bulk_gets_more_within_a_limit_of_its_own(bulk_bytes, setting, given):
    store = many(5_000, max_bulk_bytes=setting, consume_queue_file_size=200_000)
    result = store.reader.get(store.queues.queue("T", 0), 0, 5_000, bulk_bytes, bulk_bytes=bulk_bytes)
    assert (result.count, result.next_offset) == (given, given)
    assert result.size <= max(min(bulk_bytes, setting), 262_144)


def test_bulk_is_limited_in_number_too():
    store = many(9_000, max_bulk_bytes=8 << 20, consume_queue_file_size=200_000)
    assert store.reader.get(store.queues.queue("T", 0), 0, 9_000, None, bulk_bytes=8 << 20).count == 8_192
    assert store.reader.get(store.queues.queue("T", 0), 0, 100, None, bulk_bytes=8 << 20).count == 100


@pytest.mark.parametrize(
    ("asked", "setting", "seen"),
    [(32, 32, 800), (5_000, 32, 5_000), (2**31 - 1, 32, 8_192), (2**31 - 1, 8_500, 8_500)],
)
def test_who_wants_another_tag_passes_over_no_more_messages_than_an_answer_can_have(asked, setting, seen):
    store = many(9_000, tag="A", max_count_in_memory=setting, consume_queue_file_size=200_000)
    result = store.reader.get(store.queues.queue("T", 0), 0, asked, accepts=lambda code: False)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, seen)


def test_bytes_are_limited_but_the_first_message_always_comes():
    store = many(5, size=100_000, commit_log_file_size=1 << 20)
    queue = store.queues.queue("T", 0)
    assert store.reader.get(queue, 0, 32).count == 2  # 256 KiB
    assert store.reader.get(queue, 0, 32, 1).count == 1
    assert store.reader.get(queue, 0, 32, 150_000).count == 1
    large = many(2, size=400_000, commit_log_file_size=1 << 20)
    assert large.reader.get(large.queues.queue("T", 0), 0, 32).count == 1


def test_messages_on_disk_come_in_smaller_helpings():
    store = many(100, access_in_memory_ratio=0)
    assert store.reader.get(store.queues.queue("T", 0), 0, 32).count == 8
    store = many(5, size=40_000, access_in_memory_ratio=0)
    assert store.reader.get(store.queues.queue("T", 0), 0, 32).count == 1


@pytest.mark.parametrize(("asked", "looked_for"), [(32, 8), (3, 3), (0, 1)])
def test_of_messages_on_disk_only_those_are_looked_for_that_will_be_handed_out(
    asked, looked_for, monkeypatch
):
    store = many(100, access_in_memory_ratio=0)
    asked_for = []
    monkeypatch.setattr(store.reader, "missing", lambda records: asked_for.extend(records))
    assert (
        store.reader.get(store.queues.queue("T", 0), 0, asked, may_wait=False).count
        == len(asked_for)
        == looked_for
    )


def test_a_filter_sees_eight_hundred_entries_at_most():
    store = many(2000, tag="blue", consume_queue_file_size=60_000)
    queue = store.queues.queue("T", 0)
    store.log.append([draft(queue, b"wanted", tag="red")])
    wanted = java_hash("red").__eq__
    result = store.reader.get(queue, 0, 32, None, wanted)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)
    result = store.reader.get(queue, 1600, 32, None, wanted)
    assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, 1, 2001)
    assert store.reader.get(queue, 0, 1000, None, wanted).next_offset == 1000


def test_one_pull_reads_one_file_of_the_queue():
    store = many(100, consume_queue_file_size=200)
    queue = store.queues.queue("T", 0)
    queue.write_out()
    for offset, count in ((0, 10), (7, 3), (10, 10), (95, 5)):
        assert store.reader.get(queue, offset, 32).count == count


def test_entries_in_files_and_in_memory_are_read_as_one():
    store = many(10)
    queue = store.queues.queue("T", 0)
    queue.write_out()
    store.log.append([draft(queue, b"%06d" % number) for number in range(10, 20)])
    result = store.reader.get(queue, 5, 32)
    assert [int(record.body[:6]) for record in decode_all(result.body)] == list(range(5, 20))


def test_what_left_the_log_is_passed_over():
    store = open_store(new_disk())
    fill(store, 100, queues=1)
    queue = store.queues.queue("T", 0)
    store.flusher.durable(store.log.end, lambda outcome: None)
    first = store.commit_log.files.starts[1]
    store.commit_log.delete_first()
    low = queue.min_offset
    assert queue.entry(low)[0] == first
    assert store.reader.get(queue, 0, 32).status is GetStatus.OFFSET_TOO_SMALL
    assert store.reader.get(queue, 0, 32).next_offset == low
    queue._floor = 0  # as if the file went between the two looks
    gone = store.reader.get(queue, 0, 32)
    assert gone.status in (GetStatus.MESSAGE_WAS_REMOVING, GetStatus.FOUND)
    assert gone.next_offset > 0
    for record in decode_all(gone.body):
        assert record.queue_offset >= low


def test_when_all_is_gone_the_queue_keeps_its_number():
    store = open_store(new_disk())
    fill(store, 10, queues=1)
    fill(store, 200, topic="Other")
    store.flusher.durable(store.log.end, lambda outcome: None)
    store.commit_log.delete_first()
    queue = store.queues.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (10, 10)
    store.log.append([draft(queue, b"next")])
    assert (queue.min_offset, queue.max_offset) == (10, 11)


def test_files_of_queues_and_index_follow_the_log():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 300, queues=1)
    store.queues.write_out(10)
    store.flusher.durable(store.log.end, lambda outcome: None)
    for _ in range(5):
        store.commit_log.delete_first()
    asyncio.run(store.upkeep.follow_log())
    queue = store.queues.queue("T", 0)
    first = int(disk.entries("/store/consumequeue/T/0")[0].name) // 20
    assert queue.min_offset - 10 < first <= queue.min_offset
    assert store.reader.get(queue, queue.min_offset, 1).status is GetStatus.FOUND
    assert store.reader.get(queue, 0, 1).next_offset == queue.min_offset


def test_look_up_takes_no_offset_for_a_record_that_is_none():
    store = many(10)
    size = store.reader.get(store.queues.queue("T", 0), 0, 1).size
    assert store.log.look_up(size) is not None
    for offset in (-1, 1, size - 1, size + 4, 10 * size, 1 << 40):
        assert store.log.look_up(offset) is None
    assert store.log.read(0, 10 * size) is not None
    assert store.log.read(0, 10 * size + 1) is None
    assert store.log.read(-1, 5) is None
    assert store.log.read(5, -1) is None


def test_offsets_by_time():
    clock = HandClock(1000)
    store = open_store(new_disk(), clock)
    queue = store.queues.queue("T", 0)
    assert store.times.offset_by_time(queue, 5) == 0
    assert store.times.earliest(queue) == -1
    for time in (1000, 2000, 2000, 2000, 4000):
        clock.now = time
        store.log.append([draft(queue, b"x")])
    lower = {0: 0, 1000: 0, 1500: 1, 2000: 1, 3000: 4, 4000: 4, 4001: 5}
    upper = {0: 0, 1000: 0, 1500: 0, 2000: 3, 3000: 3, 4000: 4, 9999: 4}
    assert {time: store.times.offset_by_time(queue, time) for time in lower} == lower
    assert {time: store.times.offset_by_time(queue, time, Boundary.UPPER) for time in upper} == upper
    assert store.times.earliest(queue) == 1000


def test_queries_leave_out_what_only_shares_the_hash():
    store = open_store(new_disk())
    queue = store.queues.queue("T", 0)
    store.log.append([draft(queue, b"1", key="Aa", keys="x  BB"), draft(queue, b"2", key="BB")])

    def bodies(key):
        found = store.queries.query("T", key, 0, 1 << 62, 9).records
        return [record.body for data in found for record in decode_all(data)]

    assert java_hash("Aa") == java_hash("BB")
    assert bodies("Aa") == [b"1"]
    assert bodies("BB") == [b"1", b"2"]
    assert bodies("x") == [b"1"]
    assert bodies("") == []
    assert store.queries.query("Other", "Aa", 0, 1 << 62, 9).records == []
