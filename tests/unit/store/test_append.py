import asyncio
import struct
import zlib

import pytest
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import HOST, HOST_V6, check, draft, fill, new_disk, numbers, open_store, records

from turbopump.protocol.errors import MessageIllegal, Refused, ServiceNotAvailable
from turbopump.protocol.record import BLANK, MAGIC_V1, MAGIC_V2, Record, encode
from turbopump.protocol.sysflag import COMMIT, PREPARED, ROLLBACK
from turbopump.store.flags import Reason


def test_a_message_is_read_back_from_its_queue_and_by_its_offset():
    store = open_store(new_disk())
    queue = store.queues.queue("T", 3)
    [(offset, queue_offset, size)] = store.log.append([draft(queue, b"body", key="K1", tag="red", flag=7)])
    assert (offset, queue_offset) == (0, 0)
    record = store.log.look_up(offset)
    assert record is not None
    assert (record.topic, record.queue_id, record.body, record.flag) == ("T", 3, b"body", 7)
    assert (record.tags, record.unique_key, record.size) == ("red", "K1", size)
    assert record.body_crc == zlib.crc32(b"body") & 0x7FFFFFFF
    assert store.reader.get(queue, 0, 32).body == store.log.read(offset, size)


def test_both_ways_of_appending_give_the_bytes_of_the_record_codec():
    clock = HandClock()
    for host, queue_topic in ((HOST, "T"), (HOST_V6, "T"), (HOST, "%RETRY%" + "g" * 130)):
        for store_host in (HOST, HOST_V6):
            store = open_store(new_disk(), clock)
            store.log.store_host = store_host
            queue = store.queues.queue(queue_topic, 5)
            given = draft(queue, b"some body", key="K", born_host=host, reconsume_times=3, flag=-9)
            [(offset, _, size)] = store.log.append([given])
            expected = Record(
                queue_topic, 5, -9, 0, offset, 0, given.born_timestamp, host, clock.now, store_host, 3, 0,
                b"some body", given.properties,
            )  # fmt: skip
            assert store.log.read(offset, size) == encode(expected)


def test_a_client_cannot_claim_ipv6_hosts_that_are_not_there():
    store = open_store(new_disk())
    store.log.append([draft(store.queues.queue("T", 0), sys_flag=0x30 | 0x1)])
    [record] = records(store)
    assert record.sys_flag == 0x1
    assert record.born_host == HOST


@pytest.mark.parametrize("sys_flag", [-(1 << 31), -(1 << 31) | 0x1, -64])
def test_a_negative_sys_flag_is_stored_as_it_is(sys_flag):
    store = open_store(new_disk())
    store.log.append([draft(store.queues.queue("T", 0), sys_flag=sys_flag)])
    [record] = records(store)
    assert record.sys_flag == sys_flag


def test_long_topics_get_the_second_magic_and_only_group_topics_may_be_long():
    store = open_store(new_disk())
    store.log.append(
        [draft(store.queues.queue("T" * 127, 0)), draft(store.queues.queue("%RETRY%" + "g" * 248, 0))]
    )
    assert [record.magic for record in records(store)] == [MAGIC_V1, MAGIC_V2]
    for name in ("T" * 128, "%RETRY%" + "g" * 249, ""):
        with pytest.raises(MessageIllegal):
            store.queues.queue(name, 0)
    check(store)


def test_queue_offsets_count_per_queue():
    store = open_store(new_disk())
    appended = store.log.append([draft(store.queues.queue("T", number % 2)) for number in range(6)])
    assert [queue_offset for _, queue_offset, _ in appended] == [0, 0, 1, 1, 2, 2]
    check(store)


def test_half_and_rollback_messages_get_offset_zero_and_no_entry():
    store = open_store(new_disk())
    queue = store.queues.queue("T", 0)
    kinds = [0, PREPARED, ROLLBACK, COMMIT, 0]
    appended = store.log.append([draft(queue, sys_flag=kind, key=f"K{kind}") for kind in kinds])
    assert [queue_offset for _, queue_offset, _ in appended] == [0, 0, 0, 1, 2]
    assert queue.max_offset == 3
    assert len(store.queries.query("T", f"K{PREPARED}", 0, 1 << 62, 9).records) == 1
    assert store.queries.query("T", f"K{ROLLBACK}", 0, 1 << 62, 9).records == []


def test_a_delayed_message_has_its_time_of_delivery_in_the_entry():
    clock = HandClock()
    store = open_store(new_disk(), clock)
    queue = store.queues.queue("SCHEDULE_TOPIC_XXXX", 2)
    store.log.append([draft(queue, delay_ms=10_000)])
    assert queue.entry(0)[2] == clock.now + 10_000


def test_a_file_ends_with_a_blank_and_the_record_goes_to_the_next():
    store = open_store(new_disk(), commit_log_file_size=1024)
    queue = store.queues.queue("T", 0)
    size = 92
    body = b"x" * (1024 - 8 - 10 * size - size)  # fills the first file to the last byte that may be used
    for _ in range(10):
        store.log.append([draft(queue, b"")])
    store.log.append([draft(queue, body)])
    assert store.log.end == 1016
    [(offset, _, _)] = store.log.append([draft(queue, b"")])
    assert offset == 1024
    assert struct.unpack_from(">ii", store.commit_log.files.mapped(0).buffer, 1016) == (8, BLANK)
    assert len(check(store)) == 12


def test_one_byte_too_many_goes_to_the_next_file():
    store = open_store(new_disk(), commit_log_file_size=1024)
    queue = store.queues.queue("T", 0)
    store.log.append([draft(queue, b"x" * 800)])
    used = store.log.end
    store.log.append([draft(queue, b"x" * (1024 - 8 - used - 92 + 1))])
    assert struct.unpack_from(">ii", store.commit_log.files.mapped(0).buffer, used) == (1024 - used, BLANK)
    assert [record.physical_offset for record in check(store)] == [0, 1024]


def test_a_list_of_messages_may_cross_files_but_a_batch_does_not():
    for together, expected in ((False, [0, 392, 1024]), (True, [1024, 1416, 2048])):
        store = open_store(new_disk(), commit_log_file_size=1024)
        queue = store.queues.queue("T", 0)
        if together:
            store.log.append([draft(queue, b"x" * 300)])
        appended = store.log.append(
            [draft(queue, b"x" * 300)] * 2 + [draft(queue, b"x")] * 0, together=together
        )
        more = store.log.append([draft(queue, b"x" * 300)])
        assert [offset for offset, _, _ in appended + more] == expected
        check(store)


def test_a_batch_too_large_for_a_file_is_refused_and_nothing_of_it_is_stored():
    store = open_store(new_disk(), commit_log_file_size=1024)
    queue = store.queues.queue("T", 0)
    with pytest.raises(MessageIllegal):
        store.log.append([draft(queue, b"x" * 300)] * 4, together=True)
    with pytest.raises(MessageIllegal):
        store.log.append([draft(queue, b"ok"), draft(queue, b"x" * 1000)])
    assert (store.log.end, queue.max_offset, queue.next_offset) == (0, 0, 0)


@pytest.mark.parametrize(
    ("body", "properties", "fits"), [(5000, 9, True), (5001, 9, False), (9, 32_767, True), (9, 32_768, False)]
)
def test_limits_of_body_and_properties(body, properties, fits):
    store = open_store(new_disk(), max_message_size=5000, commit_log_file_size=1 << 16)
    given = draft(store.queues.queue("T", 0), b"x" * body)
    given.properties = b"p" * properties
    if fits:
        store.log.append([given])
        assert len(check(store)) == 1
    else:
        with pytest.raises(MessageIllegal, match="body length limit 5000B"):
            store.log.append([draft(store.queues.queue("T", 0)), given])
        assert store.log.end == 0


def test_a_number_that_fits_no_field_is_refused_and_what_was_before_it_stays_whole():
    store = open_store(new_disk())
    queue = store.queues.queue("T", 0)
    with pytest.raises(MessageIllegal):
        store.log.append([draft(queue, b"one"), draft(queue, b"two", flag=1 << 40)])
    store.log.append([draft(queue, b"three")])
    assert [record.body for record in check(store)] == [b"one", b"three"]


def test_without_room_for_the_next_file_messages_are_refused_until_there_is_room():
    clock = HandClock()
    disk = new_disk()
    store = open_store(disk, clock)
    fill(store, 10)
    used = disk.capacity - disk.usage("/").free
    disk.capacity = used
    with pytest.raises(ServiceNotAvailable, match="no space"):
        fill(store, 30, start=10)
    stored = numbers(store)
    assert store.flags.reason is not None
    disk.capacity = 1 << 40
    with pytest.raises(ServiceNotAvailable):
        fill(store, 1, start=len(stored))  # it is tried once a second
    clock.now += 1001
    fill(store, 30, start=len(stored))
    assert store.flags.reason is None
    assert numbers(store) == list(range(len(stored) + 30))
    check(store)


def test_a_full_disk_a_stopped_store_and_a_busy_disk_have_their_own_words():
    store = open_store(new_disk())
    queue = store.queues.queue("T", 0)
    for reason, code, words in (
        (Reason.BUSY, 2, "[PC_SYNCHRONIZED]broker busy"),
        (Reason.DISK_FULL, 14, "disk is full [CL: 0.93]"),
        (Reason.STOPPED, 14, "shut down"),
    ):
        store.flags.set(reason, "[CL: 0.93]" if reason is Reason.DISK_FULL else "")
        with pytest.raises(Refused) as refused:
            store.log.append([draft(queue)])
        assert refused.value.code == code
        assert words in refused.value.remark
    for reason in (Reason.STOPPED, Reason.DISK_FULL, Reason.BUSY):
        store.flags.clear(reason)
    assert store.flags.reason is None
    store.log.append([draft(queue)])


def test_offsets_beyond_four_gibibytes():
    disk = new_disk()
    start = 1 << 33
    disk.create_mapped(f"/store/commitlog/{start:020d}", 4096)
    store = open_store(disk)
    assert (store.log.min_offset, store.log.end) == (start, start)
    fill(store, 60)
    records = check(store)
    assert records[0].physical_offset == start
    assert [record.queue_offset for record in records[:4]] == [0, 0, 1, 1]
    queue = store.queues.queue("T", 0)
    assert store.reader.get(queue, 20, 5).count == 5
    asyncio.run(store.close())
    again = open_store(disk)
    assert check(again) == records


def test_the_broker_hears_of_every_entry_once_and_in_order():
    store = open_store(new_disk())
    heard = []
    store.log.on_arrival = lambda queue, next_offset, tags_code: heard.append(
        (queue.queue_id, next_offset, tags_code)
    )
    queues = [store.queues.queue("T", 0), store.queues.queue("T", 1)]
    store.log.append(
        [
            draft(queues[0], tags_code=5),
            draft(queues[1]),
            draft(queues[0], sys_flag=PREPARED),
            draft(queues[0]),
        ]
    )
    assert heard == [(0, 1, 5), (1, 1, 0), (0, 2, 0)]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_messages_before_an_illegal_one_are_announced(flush: str) -> None:
    """They are stored: a pull that waits for them, and slaves, must not wait for the next append."""
    store = open_store(new_disk(), flush_disk_type=flush)
    queue, other = store.queues.queue("T", 0), store.queues.queue("T", 1)
    store.log.append([draft(queue, b"before")])
    arrived: list[tuple[int, int]] = []
    grown: list[int] = []
    store.log.on_arrival = lambda queue, next_offset, tags_code: arrived.append((queue.queue_id, next_offset))
    store.log.on_growth = lambda: grown.append(store.log.end)
    with pytest.raises(MessageIllegal):
        store.log.append([draft(queue, b"one"), draft(other, b"two"), draft(queue, b"illegal", flag=1 << 40)])
    assert grown == [store.log.end]
    assert arrived == [(0, 2), (1, 1)]
    with pytest.raises(MessageIllegal):
        store.log.append([draft(queue, b"illegal", flag=1 << 40)])
    assert len(grown) == 1
