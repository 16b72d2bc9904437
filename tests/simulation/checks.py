"""Checks the guarantees of a store that was just opened."""

from collections import defaultdict

from tests.simulation.model import Model, SentMessage

from turbopump.protocol.light import places, takes_part
from turbopump.protocol.record import Record, decode, decode_all, measure
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.queue_ext import is_address
from turbopump.store.store import Store
from turbopump.store.tools import run, verify
from turbopump.testing.disk import SimulatedDisk

QUERY_LIMIT = 64


def check_recovered(store: Store, model: Model, least_end: int, why: str) -> None:
    """Checks a recovered store. `least_end`: the log must not end before it; `why`: the reason, as text."""
    records = read_log(store)
    check_log(store, model, records, least_end, why)
    model.forget_from(store.log.end)
    model.forget_before(store.log.min_offset)
    model.synced = max(model.synced, store.log.synced)
    check_queues(store, model, {record.physical_offset: record for record in records})
    check_lights(store, model)
    check_index(store, model)


def check_files(disk: SimulatedDisk, config: StoreConfig, model: Model, failures: int) -> None:
    """Checks that the files of a closed store are consistent, without opening the store."""
    shape = (config.index_slots, config.index_items)
    report = run(verify(config.root_dir, disk, index_shape=shape))
    assert report.is_clean or failures, "a clean stop left its abort file"
    deleted = tuple(model.deleted_topics)  # the queues of their old records are deleted, as expected
    problems = [problem for problem in report.problems if not problem.text.startswith(deleted)]
    assert not problems, f"the files disagree: {problems[:3]}"


def read_log(store: Store) -> list[Record]:
    """Returns every record of the log, read from the bytes of the files."""
    records = []
    offset = store.log.min_offset
    while offset < store.log.end:
        at = offset % store.commit_log.file_size
        buffer = store.commit_log.files.mapped(offset - at).buffer
        size = measure(buffer, at, store.commit_log.file_size, True)
        assert size >= 0, f"no record at {offset}, but the log ends at {store.log.end}"
        if size == 0:
            offset += store.commit_log.file_size - at
            continue
        records.append(decode(buffer, at))
        offset += size
    assert offset == store.log.end, f"the last record ends at {offset}, the log at {store.log.end}"
    return records


def check_log(store: Store, model: Model, records: list[Record], least_end: int, why: str) -> None:
    first, end = store.log.min_offset, store.log.end
    assert end >= least_end, f"the log ends at {end}, but should reach {least_end} ({why})"
    for lost in model.sent:
        if lost.end > end and lost.on_disk:
            raise AssertionError(
                f"message at {lost.offset} was promised to be on disk; the log ends at {end}"
            )
    expected = [sent for sent in model.sent if first <= sent.offset < end]
    found = {record.physical_offset: record for record in records}
    for sent in expected:
        record = found.pop(sent.offset, None)
        assert record is not None, (
            f"message at {sent.offset} is gone from the middle of the log ({first}..{end})"
        )
        assert not (why := sent.differences(record)), f"another message is at {sent.offset}: {why}"
    assert not found, f"records that were never appended, or were forgotten: {sorted(found)[:5]}"


def check_queues(store: Store, model: Model, records: dict[int, Record]) -> None:
    by_queue: dict[tuple[str, int], list[SentMessage]] = defaultdict(list)
    for sent in model.sent:
        if sent.in_queue and not sent.is_deleted:
            by_queue[sent.topic, sent.queue_id].append(sent)
    for (topic, queue_id), sent in by_queue.items():
        queue = store.queues.find(topic, queue_id)
        assert queue is not None, f"no queue {topic}/{queue_id}"
        name = f"{topic}/{queue_id}"
        assert queue.max_offset == sent[-1].queue_offset + sent[-1].count, (
            f"{name} ends at {queue.max_offset}, its last message is {sent[-1].queue_offset}"
        )
        kept = [one for one in sent if one.offset >= model.deleted_below]
        first = kept[0].queue_offset if kept else queue.max_offset
        assert queue.min_offset <= first, f"{name} begins at {queue.min_offset}, should at {first}"
        for one in sent:
            if one.queue_offset < queue.min_offset:
                continue
            record = records[one.offset]
            expected = (one.offset, one.size, one.tags_code(record.store_timestamp))
            entry = queue.entry(one.queue_offset)
            if entry is not None and is_address(entry[2]):
                entry = (*entry[:2], queue.tags_code(entry[2]))
            assert entry == expected, f"{name}[{one.queue_offset}] is {entry}, should be {expected}"
        assert queue.next_offset == queue.max_offset, f"{name} goes on at {queue.next_offset}"


def check_lights(store: Store, model: Model) -> None:
    """Checks that every message is in the light queues it names, at the offset in its record."""
    by_name: dict[str, list[tuple[int, SentMessage]]] = defaultdict(list)
    for sent in model.sent:
        for name, queue_offset in places(sent.properties) if takes_part(sent.topic) else ():
            by_name[name].append((queue_offset, sent))
    for name, found in by_name.items():
        queue = store.queues.find(name, 0)
        assert queue is not None, f"no queue {name}"
        end = found[-1][0] + 1
        assert queue.max_offset == queue.next_offset == end, f"{name} ends at {queue.max_offset}, not {end}"
        for queue_offset, sent in found:
            expected = (sent.offset, sent.size, sent.tags_code(0))
            entry = queue.entry(queue_offset)
            is_old = queue_offset < queue.min_offset
            assert is_old or entry == expected, f"{name}[{queue_offset}] is {entry}, should be {expected}"


def check_readable(store: Store, model: Model, queue: ConsumeQueue, offset: int) -> None:
    """Checks that a consumer reads what was sent, in order; under SYNC_FLUSH only what cannot be lost."""
    found = store.reader.get(queue, offset, 32, 1 << 20, None)
    sent = {one.offset: one for one in model.sent}
    for number, record in enumerate(decode_all(found.body)):
        assert (record.topic, record.queue_id) == (queue.topic, queue.queue_id), "read from another queue"
        assert record.queue_offset == offset + number, (
            f"{record.queue_offset} where {offset + number} was due"
        )
        one = sent[record.physical_offset]
        assert not (why := one.differences(record)), f"read: {why}"
        assert not store.flusher.syncs_each or one.end <= store.log.synced, "read before it was on the medium"


def check_index(store: Store, model: Model) -> None:
    if store.index is None:
        return
    expected: dict[tuple[str, str], set[int]] = defaultdict(set)
    for sent in model.sent:
        if sent.offset >= model.deleted_below:
            for key in sent.keys:
                expected[sent.topic, key].add(sent.offset)
    for (topic, key), offsets in expected.items():
        result = store.queries.query(topic, key, 0, 1 << 62, QUERY_LIMIT)
        found = [decode(record).physical_offset for record in result.records]
        newest = sorted(offsets)[-QUERY_LIMIT:]
        assert [offset for offset in found if offset >= model.deleted_below] == newest, (
            f"{topic}#{key} is found at {found}, should be at {newest}"
        )
