"""Light queues and batch queues: made with the messages, made again from the log, and as Apache made them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.store.kit import HandClock, apache_store
from tests.unit.store.lab import Workers, draft, new_disk, open_store
from tests.unit.store.queue_kinds_kit import TOPICS, batch_of, fill_batches

from turbopump.protocol import inner
from turbopump.protocol.record import decode_all
from turbopump.runtime.disk import SystemDisk
from turbopump.store.append import Draft
from turbopump.store.batch_queue import BATCH, BatchQueue
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ENTRY
from turbopump.store.errors import UnusableStore
from turbopump.store.store import Store
from turbopump.store.times import Boundary
from turbopump.store.tools import rebuild, run, verify
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.simulated_files import Survival

LIGHT = {"light_queues": True, "multi_dispatch": True}
GOLDEN = ["5.5.0-queues-clean", "5.5.0-queues-kill9"]


def store_on(disk: SimulatedDisk, **settings: Any) -> Store:
    disk.make_dirs("/store/config")
    disk.write("/store/config/topics.json", TOPICS)
    return open_store(disk, **{"batch_queue_file_size": 46 * 3, **LIGHT, **settings})


def named(store: Store, number: int, lights: str, topic: str = "T") -> Draft:
    found = draft(store.queues.queue(topic, 0), b"%06d" % number, key=f"K{number}", tag=f"t{number % 2}")
    found.properties += f"INNER_MULTI_DISPATCH\x01{lights}\x02".encode()
    return found


def fill_lights(store: Store, count: int) -> None:
    for number in range(count):
        lights = "%LMQ%every,%LMQ%odd" if number % 2 else "%LMQ%every"
        store.log.append([named(store, number, lights)])


def light_bodies(store: Store, name: str) -> list[int]:
    queue = store.queues.find(name, 0)
    assert queue is not None
    assert queue.next_offset == queue.max_offset
    found, offset = [], queue.min_offset
    while offset < queue.max_offset:
        result = store.reader.get(queue, offset, 32)
        found += [int(record.body) for record in decode_all(result.body)]
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def inner_bodies(
    store: Store, topic: str = "B", queue_id: int = 0, most: int = 32
) -> list[tuple[int, bytes]]:
    """Offset and body of each message, by pulls."""
    queue = store.queues.find(topic, queue_id)
    assert isinstance(queue, BatchQueue)
    found, offset = [], queue.min_offset
    while offset < queue.max_offset:
        result = store.reader.get(queue, offset, most)
        for record in decode_all(result.body):
            if inner.is_wrapped(record.sys_flag):
                taken = inner.unwrapped(record.body, record.properties, record.queue_offset)
                found += [(at, body) for at, (_, body, _) in taken]
            else:
                found.append((record.queue_offset, record.body))
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def test_a_message_is_in_every_light_queue_that_it_names() -> None:
    store = store_on(new_disk())
    fill_lights(store, 20)
    assert light_bodies(store, "%LMQ%every") == list(range(20))
    assert light_bodies(store, "%LMQ%odd") == list(range(1, 20, 2))
    assert [number.queue.topic for number in store.queues.take_counts()] == ["T"]  # counted once


def test_messages_of_one_append_get_offsets_one_after_the_other() -> None:
    store = store_on(new_disk())
    store.log.append([named(store, number, "%LMQ%a,%LMQ%b,%LMQ%a") for number in range(5)])
    assert light_bodies(store, "%LMQ%a") == light_bodies(store, "%LMQ%b") == list(range(5))


def test_who_waits_for_a_light_queue_hears_of_its_messages() -> None:
    for flush in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        store = store_on(new_disk(), flush_disk_type=flush)
        heard: list[tuple[str, int]] = []
        store.log.on_arrival = lambda queue, offset, _, heard=heard: heard.append((queue.topic, offset))
        fill_lights(store, 2)
        store._dispatcher.advance(store.log.end)
        wanted = [("T", 1), ("%LMQ%every", 1), ("T", 2), ("%LMQ%every", 2), ("%LMQ%odd", 1)]
        assert sorted(heard) == sorted(wanted)


def test_a_message_that_waits_gets_its_light_offsets_when_it_is_delivered() -> None:
    store = store_on(new_disk())
    waiting = named(store, 1, "%LMQ%a", topic="SCHEDULE_TOPIC_XXXX")
    store.log.append([waiting])
    assert store.queues.find("%LMQ%a", 0) is None
    store.log.append([named(store, 1, "%LMQ%a")])
    assert light_bodies(store, "%LMQ%a") == [1]


def test_without_the_setting_the_names_are_only_properties() -> None:
    store = store_on(new_disk(), light_queues=False)
    fill_lights(store, 4)
    assert store.queues.find("%LMQ%every", 0) is None


def test_there_are_only_so_many_light_queues() -> None:
    store = store_on(new_disk(), max_light_queues=2)
    assert store.lights is not None
    store.log.append([named(store, 0, "%LMQ%a,%LMQ%b")])
    assert store.lights.has_capacity_for(["%LMQ%a", "%LMQ%b"])
    assert not store.lights.has_capacity_for(["%LMQ%c"])
    store.log.append(
        [named(store, 1, "%LMQ%c,%LMQ%b")]
    )  # one that waited comes all the same, to where it can
    assert light_bodies(store, "%LMQ%b") == [0, 1]
    assert store.queues.find("%LMQ%c", 0) is None
    store.queues.delete_topic("%LMQ%a")
    assert store.lights.has_capacity_for(["%LMQ%c"])


def test_pulls_of_light_queues_that_are_not_there_take_a_bounded_memory(monkeypatch) -> None:
    monkeypatch.setattr("turbopump.store.queues.MAX_AWAITED", 10)
    store = store_on(new_disk())
    fill_lights(store, 2)
    for number in range(100):
        assert store.queues.light(f"%LMQ%{number}").max_offset == 0
    assert len(store.queues.opened()) <= 10 + 3
    assert light_bodies(store, "%LMQ%every") == [0, 1]


def test_batches_count_their_messages_and_are_found_at_every_offset() -> None:
    store = store_on(new_disk())
    fill_batches(store)
    queue = store.queues.find("B", 0)
    assert isinstance(queue, BatchQueue)
    found = inner_bodies(store)
    assert [at for at, _ in found] == list(range(15))
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (0, 15, 15)
    for most in (1, 2, 5):
        assert inner_bodies(store, most=most) == found
    first = {at: next(decode_all(store.reader.get(queue, at, 1).body)).queue_offset for at in range(15)}
    assert first == {
        0: 0,
        1: 1,
        2: 1,
        3: 3,
        4: 4,
        5: 4,
        6: 4,
        7: 7,
        8: 8,
        9: 9,
        10: 9,
        11: 11,
        12: 11,
        13: 11,
        14: 14,
    }
    assert store.reader.get(queue, 0, 3).count == 3
    assert [(one.messages, one.queue.topic) for one in store.queues.take_counts()] == [(15, "B")]


def test_batches_by_time() -> None:
    clock = HandClock(1_000_000)
    disk = new_disk()
    disk.make_dirs("/store/config")
    disk.write("/store/config/topics.json", TOPICS)
    store = open_store(disk, clock, **LIGHT)
    for _ in range(3):
        store.log.append([batch_of(store, b"a", b"b")])
        clock.now += 1_000
    queue = store.queues.queue("B", 0)
    assert [store.times.offset_by_time(queue, at, Boundary.LOWER) for at in (0, 1_000_001, 1_002_000)] == [
        0,
        2,
        4,
    ]
    assert store.times.offset_by_time(queue, 2_000_000, Boundary.LOWER) == 6


@pytest.mark.parametrize("survival", [Survival.KEPT, Survival.LOST])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_after_a_crash_both_kinds_are_those_of_the_log(survival: Survival, flush: str) -> None:
    disk = new_disk()
    store = store_on(disk)
    fill_lights(store, 30)
    fill_batches(store)
    before = light_bodies(store, "%LMQ%every"), light_bodies(store, "%LMQ%odd"), inner_bodies(store)
    asyncio.run(store.flusher.wait_durable(store.log.end)) if flush == "SYNC_FLUSH" else None
    again = store_on(disk.crash(Survival.KEPT if flush == "ASYNC_FLUSH" else survival), flush_disk_type=flush)
    assert (light_bodies(again, "%LMQ%every"), light_bodies(again, "%LMQ%odd"), inner_bodies(again)) == before
    fill_lights(again, 2)
    assert light_bodies(again, "%LMQ%every") == [*range(30), 0, 1]


@pytest.mark.parametrize("lost", ["consumequeue", "batchconsumequeue"])
@pytest.mark.parametrize("stopped", [True, False])
def test_queues_that_are_missing_come_back(lost: str, stopped: bool) -> None:
    disk = new_disk()
    store = store_on(disk)
    fill_lights(store, 30)
    fill_batches(store)
    before = light_bodies(store, "%LMQ%every"), light_bodies(store, "%LMQ%odd"), inner_bodies(store)
    asyncio.run(store.close())
    disk.remove_tree(f"/store/{lost}")
    if not stopped:
        disk.write("/store/abort", b"")
    again = store_on(disk)
    assert (light_bodies(again, "%LMQ%every"), light_bodies(again, "%LMQ%odd"), inner_bodies(again)) == before


def test_when_the_log_loses_its_beginning_both_kinds_begin_later() -> None:
    disk = new_disk()
    store = store_on(disk, commit_log_file_size=2048)
    fill_lights(store, 30)
    fill_batches(store)
    asyncio.run(store.upkeep.take_checkpoint())
    while len(store.commit_log.files.starts) > 2:
        store.commit_log.delete_first()
    for queue in store.queues.every():
        while queue.delete_first_before(store.log.min_offset):
            pass
        queue.delete_extension_before_first()
    every, lights = store.queues.find("%LMQ%every", 0), light_bodies(store, "%LMQ%every")
    assert every is not None
    assert lights == list(range(30 - len(lights), 30))
    assert every.min_offset == 30 - len(lights) > 0
    batches = inner_bodies(store)
    asyncio.run(store.close())
    for name in ("consumequeue", "batchconsumequeue"):
        disk.remove_tree(f"/store/{name}")
    again = store_on(disk, commit_log_file_size=2048)
    assert light_bodies(again, "%LMQ%every") == lights
    assert inner_bodies(again) == batches


def test_a_topic_that_is_made_anew_may_have_the_other_kind_of_queues() -> None:
    store = store_on(new_disk())
    fill_batches(store)
    store.queues.delete_topic("B")
    store.queues.set_kind("B", False)
    store.log.append([draft(store.queues.queue("B", 0), b"plain")])
    assert not store.queues.queue("B", 0).is_batch
    store.queues.delete_topic("B")
    store.queues.set_kind("B", True)
    fill_batches(store)
    assert len(inner_bodies(store)) == 15


def test_a_topic_with_queues_keeps_their_kind_and_what_to_do_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A slave may copy messages of a new topic before the table of topics that names its kind."""
    disk = new_disk()
    store = store_on(disk)
    store.log.append([draft(store.queues.queue("P", 0), b"one")])
    store.queues.set_kind("P", True)
    store.log.append([draft(store.queues.queue("P", 0), b"two")])
    store.queues.write_out(100)
    assert [queue.is_batch for queue in store.queues.of("P")] == [False]
    assert disk.exists("/store/consumequeue/P/0")
    assert not disk.exists("/store/batchconsumequeue/P")
    assert len(caplog.messages) == 1
    assert "/store/consumequeue/P" in caplog.text


def test_the_kind_may_be_named_again_while_messages_are_there(caplog: pytest.LogCaptureFixture) -> None:
    store = store_on(new_disk())
    fill_batches(store)
    store.queues.set_kind("B", True)
    assert len(inner_bodies(store)) == 15
    assert not caplog.messages


def test_queues_of_the_wrong_kind_are_refused_with_what_to_do() -> None:
    disk = new_disk()
    store_on(disk)._lock.release()
    disk.make_dirs("/store/consumequeue/B/0")
    with pytest.raises(UnusableStore, match=r"BatchCQ.*Remove"):
        store_on(disk)


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_golden(apache_store(request.param, tmp_path))


def open_golden(root: str) -> Store:
    config = StoreConfig(
        root_dir=root,
        commit_log_file_size=1 << 17,
        consume_queue_file_size=400,
        batch_queue_file_size=46 * 4,
        index_slots=50,
        index_items=60,
        **LIGHT,
    )
    return Store.open(config, SystemDisk(), HandClock(), Workers())


def light_messages(store: Store, name: str) -> list[bytes]:
    queue = store.queues.find(name, 0)
    assert queue is not None
    found, offset = [], 0
    while offset < queue.max_offset:
        result = store.reader.get(queue, offset, 32)
        found += [record.body for record in decode_all(result.body)]
        offset = result.next_offset
    return found


@pytest.mark.parametrize("golden", GOLDEN, indirect=True)
def test_stores_of_apache_with_both_kinds_are_read(golden: Store) -> None:
    every = [b"light %d" % number for number in range(30)]
    assert light_messages(golden, "%LMQ%every") == every
    assert light_messages(golden, "%LMQ%even") == every[::2]
    assert light_messages(golden, "%LMQ%third") == every[::3]
    ends = {queue_id: golden.queues.queue("Batches", queue_id).max_offset for queue_id in (0, 1)}
    assert ends == {0: 18, 1: 21}
    for queue_id, end in ends.items():
        found = inner_bodies(golden, "Batches", queue_id)
        assert [at for at, _ in found] == list(range(end))
    assert (7, b"m0 of batch5") in inner_bodies(golden, "Batches", 1)


@pytest.mark.parametrize("name", GOLDEN)
def test_queue_files_made_anew_are_those_of_apache(name: str, tmp_path: Path) -> None:
    root = Path(apache_store(name, tmp_path))
    (root / "abort").unlink(missing_ok=True)
    kinds = [root / "consumequeue", root / "batchconsumequeue"]
    before = {path: path.read_bytes() for kind in kinds for path in kind.rglob("*") if path.is_file()}
    assert len(before) == 14
    assert run(verify(str(root))).problems == []
    run(rebuild(str(root)))
    after = {path: path.read_bytes() for kind in kinds for path in kind.rglob("*") if path.is_file()}
    assert after == before
    assert run(verify(str(root))).problems == []


@pytest.mark.parametrize(
    ("file", "layout", "what"),
    [
        ("consumequeue/%LMQ%even/0", ENTRY, "wrong entry"),
        ("batchconsumequeue/Batches/1", BATCH, "wrong entry"),
    ],
)
def test_verify_finds_a_wrong_entry_of_either_kind(file: str, layout: Any, what: str, tmp_path: Path) -> None:
    root = Path(apache_store(GOLDEN[0], tmp_path))
    path = root / file / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[layout.size + 11] ^= 1  # the size of the second record
    path.write_bytes(data)
    assert {problem.kind for problem in run(verify(str(root))).problems} == {what}


@pytest.mark.parametrize("file", ["consumequeue/%LMQ%even/0", "batchconsumequeue/Batches/1"])
def test_verify_finds_missing_entries_of_either_kind(file: str, tmp_path: Path) -> None:
    root = Path(apache_store(GOLDEN[0], tmp_path))
    path = max((root / file).iterdir())
    path.write_bytes(bytes(path.stat().st_size))
    assert {problem.kind for problem in run(verify(str(root))).problems} == {"missing entry"}


def test_light_queues_that_recovery_made_are_kept_however_many_are_asked_for(monkeypatch) -> None:
    monkeypatch.setattr("turbopump.store.queues.MAX_AWAITED", 2)
    disk = new_disk()
    fill_lights(store_on(disk), 4)
    again = store_on(disk.crash(Survival.KEPT))
    for number in range(5):
        again.queues.light(f"%LMQ%{number}")
    fill_lights(again, 1)
    assert light_bodies(again, "%LMQ%every") == [0, 1, 2, 3, 0]


def test_offsets_that_are_in_no_log_are_passed_over() -> None:
    store = store_on(new_disk())
    queue = store.queues.queue("B", 0)
    for _ in range(3):  # fills a file
        store.log.append([batch_of(store, b"a", b"b")])
    queue.skip_to(10)
    queue.next_offset = 10
    store.log.append([batch_of(store, b"c", b"d")])
    result = store.reader.get(queue, 6, 32)
    assert (result.status.name, result.next_offset, result.count) == ("FOUND", 12, 2)
    assert queue.entry(7) is None
