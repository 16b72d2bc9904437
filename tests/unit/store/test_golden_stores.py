"""Stores that Apache's brokers wrote: read as Apache's client read them, and written again byte for byte."""

import asyncio
import hashlib
import os
import struct
from pathlib import Path

import pytest
from tests.unit.store.golden_stores_kit import draft_of
from tests.unit.store.kit import HandClock, apache_store
from tests.unit.store.lab import EVER, Workers, check, config_of, expected_of, records

from turbopump.protocol import record as codec
from turbopump.protocol.hashing import java_hash
from turbopump.runtime.disk import SystemDisk
from turbopump.store.consume_queue import ENTRY
from turbopump.store.store import Store

NAMES = ["4.9.7-clean", "4.9.7-kill9", "5.5.0-clean", "5.5.0-kill9"]
pytestmark = pytest.mark.parametrize("name", NAMES)


def open_apache(name: str, tmp_path: Path) -> Store:
    root = apache_store(name, tmp_path)
    return Store.open(config_of(name, root), SystemDisk(), HandClock(), Workers())


def test_every_message_is_found_by_queue_by_offset_and_by_key(name, tmp_path):
    expected = expected_of(name)
    store = open_apache(name, tmp_path)
    assert store.log.end == expected["endOffset"]
    for place, max_offset in expected["queueMaxOffset"].items():
        topic, queue_id = place.rsplit("/", 1)
        queue = store.queues.find(topic, int(queue_id))
        assert (queue.min_offset, queue.max_offset) == (0, max_offset)
    for message in expected["messages"]:
        record = store.log.look_up(message["commitLogOffset"])
        queue = store.queues.queue(message["topic"], message["queueId"])
        assert codec.decode(store.reader.get(queue, message["queueOffset"], 1).body) == record
        assert_equal(record, message)
        if key := message["properties"].get("UNIQ_KEY"):
            found = [
                codec.decode(data) for data in store.queries.query(message["topic"], key, *EVER, 64).records
            ]
            assert record in found
    check(store)


def assert_equal(record: codec.Record, message: dict) -> None:
    assert (record.topic, record.queue_id, record.queue_offset) == (
        message["topic"],
        message["queueId"],
        message["queueOffset"],
    )
    assert record.property_map() == message["properties"]
    assert (record.flag, record.store_timestamp) == (message["flag"], message["storeTimestamp"])
    assert (record.body_crc, record.size) == (message["bodyCRC"], message["storeSize"])
    assert hashlib.sha256(codec.body_of(record)).hexdigest() == message["bodySha256"]


def test_it_is_opened_again_after_we_closed_it_and_after_we_crashed(name, tmp_path):
    store = open_apache(name, tmp_path)
    before = check(store)
    asyncio.run(store.close())
    again = Store.open(store.config, SystemDisk(), HandClock(), Workers())
    assert check(again) == before
    again._lock.release()  # as if killed
    third = Store.open(store.config, SystemDisk(), HandClock(), Workers())
    assert check(third) == before


def test_tags_are_found_in_extension_files_too(name, tmp_path):
    store = open_apache(name, tmp_path)
    for record in records(store):
        if record.topic == "SCHEDULE_TOPIC_XXXX" or record.sys_flag & 0x4:
            continue
        code = java_hash(record.tags) if record.tags else 0
        queue = store.queues.queue(record.topic, record.queue_id)
        assert queue.tags_code(queue.entry(record.queue_offset)[2]) == code
        assert store.reader.get(queue, record.queue_offset, 1, None, code.__eq__).count == 1
        assert codec.decode(store.reader.get(queue, record.queue_offset, 1).body) == record


def test_the_same_messages_give_the_same_bytes(name, tmp_path):
    """Apache's messages in our append: log, queues and index keys come out as Apache wrote them."""
    apache = open_apache(name, tmp_path / "apache")
    clock = HandClock()
    config = config_of(name, str(tmp_path / "ours"))
    ours = Store.open(config, SystemDisk(), clock, Workers())
    for record in records(apache):
        clock.now = record.store_timestamp
        ours.log.store_host = record.store_host
        ours.log.append([draft_of(record, ours, apache)])
    size = config.commit_log_file_size
    end = apache.log.end
    assert ours.log.end == end
    for start in apache.commit_log.files.starts:
        used = blank_at(apache, start) if start + size <= end else end - start
        wanted = apache.commit_log.files.mapped(start).buffer[:used]
        assert ours.commit_log.files.mapped(start).buffer[:used] == wanted
    ours.queues.write_out(1000)
    for queue in apache.queues.every():
        twin = ours.queues.find(queue.topic, queue.queue_id)
        if not queue.max_offset:
            continue
        units = [ENTRY.unpack(queue.units(n, 1)) for n in range(queue.max_offset)]
        plain = [(physical, length, queue.tags_code(code)) for physical, length, code in units]
        assert plain == [ENTRY.unpack(twin.units(n, 1)) for n in range(twin.max_offset)]


def blank_at(store: Store, start: int) -> int:
    """Where the blank of a full file ends: what follows its eight bytes is anything."""
    inside = [
        record
        for record in records(store)
        if start <= record.physical_offset < start + store.commit_log.file_size
    ]
    last = inside[-1]
    position = last.physical_offset - start + last.size
    buffer = store.commit_log.files.mapped(start).buffer
    assert struct.unpack_from(">ii", buffer, position) == (store.commit_log.file_size - position, codec.BLANK)
    return position + 8


def test_a_rebuild_from_the_log_alone_gives_the_same_queues(name, tmp_path):
    store = open_apache(name, tmp_path)
    before = check(store)
    spans = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues.every()}
    asyncio.run(store.close())
    for part in ("consumequeue", "consumequeue_ext", "index", "checkpoint"):
        path = os.path.join(store.config.root_dir, part)
        if os.path.isdir(path):
            SystemDisk().remove_tree(path)
        elif os.path.exists(path):
            os.remove(path)
    again = Store.open(store.config, SystemDisk(), HandClock(), Workers())
    assert check(again) == before
    assert {key: again.queues.queue(*key).max_offset for key in spans} == spans
