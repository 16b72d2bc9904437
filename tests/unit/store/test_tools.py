import asyncio
import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.store.kit import HandClock, apache_store

from turbopump.protocol.record import BLANK_HEAD, Record, decode, measure
from turbopump.runtime.disk import AlreadyLocked, SystemDisk
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ENTRY
from turbopump.store.index_check import shape_of
from turbopump.store.index_file import HEADER
from turbopump.store.store import Store
from turbopump.store.tools import Progress, VerifyReport, dump, rebuild, run, verify
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.simulated_files import Survival

STORES = ["4.9.7-clean", "4.9.7-kill9", "5.5.0-clean", "5.5.0-kill9"]
RECORDS = {"4.9.7-clean": 155, "4.9.7-kill9": 155, "5.5.0-clean": 158, "5.5.0-kill9": 152}
ENDS = {"4.9.7-clean": 389275, "4.9.7-kill9": 388967, "5.5.0-clean": 409432, "5.5.0-kill9": 406964}
LOG_FILE = 131072


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: Path(apache_store(name, tmp_path_factory.mktemp(name))) for name in STORES}


@pytest.fixture
def copied(originals: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        shutil.copytree(originals[name], tmp_path / "store")
        return tmp_path / "store"

    return copy


@pytest.fixture
def store(copied: Callable[[str], Path]) -> Path:
    """Stopped cleanly, without queue extension."""
    directory = copied("4.9.7-kill9")
    (directory / "abort").unlink()
    return directory


def report(directory: Path) -> VerifyReport:
    return run(verify(str(directory)))


def kinds(directory: Path) -> tuple[set[str], set[str]]:
    found = report(directory)
    return {one.kind for one in found.problems}, {one.kind for one in found.notes}


def edit(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def log_file(store: Path, number: int = 0) -> Path:
    return store / "commitlog" / f"{number * LOG_FILE:020d}"


def records(store: Path) -> list[Record]:
    return list(dump(str(store)))


def entry_of(store: Path, record: Record) -> tuple[Path, int]:
    """The queue file and position of a record's entry; files have 20 entries."""
    position = record.queue_offset * 20
    directory = store / "consumequeue" / record.topic / str(record.queue_id)
    return directory / f"{position - position % 400:020d}", position % 400


@pytest.mark.parametrize("name", STORES)
def test_apaches_stores_are_found_good(name: str, originals: dict[str, Path]) -> None:
    found = report(originals[name])
    assert found.problems == []
    assert (found.records, found.log_begin, found.log_end) == (RECORDS[name], 0, ENDS[name])
    assert found.is_clean == ("clean" in name)
    assert sum(topic.records for topic in found.topics.values()) == found.records
    assert found.topics["Main"].queues == {0, 1}
    assert found.topics["Main"].records == 103


@pytest.mark.parametrize("name", STORES)
def test_a_check_changes_nothing(name: str, copied: Callable[[str], Path]) -> None:
    directory = copied(name)
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    report(directory)
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


def test_progress_ends_at_the_size_of_the_log(store: Path) -> None:
    seen: list[Progress] = []
    run(verify(str(store)), seen.append)
    assert seen[-1].done == seen[-1].total == sum(file.stat().st_size for file in store.glob("commitlog/*"))


def test_an_empty_directory_is_an_empty_store(tmp_path: Path) -> None:
    found = report(tmp_path)
    assert (found.is_good, found.records, found.log_end) == (True, 0, 0)


def test_a_changed_body_is_a_bad_checksum(store: Path) -> None:
    victim = records(store)[20]
    edit(log_file(store), victim.physical_offset + 88, b"\xff")
    assert kinds(store) == ({"bad checksum"}, set())


def test_a_lost_header_is_damage_and_the_rest_is_still_checked(store: Path) -> None:
    victim = records(store)[20]
    edit(log_file(store), victim.physical_offset, bytes(88))
    problems, _ = kinds(store)
    assert problems == {"damage", "offsets skipped", "extra item"}
    assert report(store).records == 154


def test_a_missing_file_of_the_log_is_a_gap(store: Path) -> None:
    log_file(store, 1).unlink()
    assert "gap between files" in kinds(store)[0]


def test_a_log_that_lost_its_oldest_file_is_good(store: Path) -> None:
    log_file(store, 0).unlink()
    found = report(store)
    assert (found.problems, found.log_begin) == ([], LOG_FILE)


@pytest.mark.parametrize("tail", [b"\1\2\3\4" * 50, None])
def test_a_torn_tail_is_noted(store: Path, tail: bytes | None) -> None:
    last = records(store)[-1]
    whole = log_file(store, 2).read_bytes()
    at = last.physical_offset % LOG_FILE
    torn = tail or whole[at : at + last.size - 5]  # a record that lacks its last bytes
    edit(log_file(store, 2), at + last.size, torn)
    assert kinds(store) == (set(), {"torn tail"})


def test_old_records_behind_the_end_are_left_overs(store: Path) -> None:
    """Apache forgets a tail in memory only, and writes over it later."""
    everything = records(store)
    cut = everything[-8]
    at = cut.physical_offset % LOG_FILE
    edit(log_file(store, 2), at, b"\1" * 40)  # what follows was written before, by another life
    file = log_file(store, 2)
    data = bytearray(file.read_bytes())
    older = everything[2]
    stale = bytearray(
        log_file(store).read_bytes()[older.physical_offset : older.physical_offset + older.size]
    )
    position = at + 100
    stale[28:36] = (2 * LOG_FILE + position).to_bytes(8, "big")
    data[position:] = bytes(len(data) - position)
    data[position : position + len(stale)] = stale
    file.write_bytes(data)
    (store / "abort").touch()
    found = report(store)
    assert "left-overs" in {note.kind for note in found.notes}
    assert (found.log_end, found.problems) == (cut.physical_offset, [])


def test_a_missing_entry_in_the_middle_is_a_problem(store: Path) -> None:
    path, at = entry_of(store, next(record for record in records(store) if record.queue_offset == 7))
    edit(path, at, bytes(20))
    assert kinds(store) == ({"missing entry"}, set())


def test_missing_entries_at_the_end_are_a_problem_only_after_a_clean_stop(store: Path) -> None:
    last = [record for record in records(store) if record.topic == "Main" and record.queue_id == 0][-1]
    path, at = entry_of(store, last)
    edit(path, at, bytes(20))
    assert kinds(store) == ({"missing entry"}, set())
    (store / "abort").touch()
    assert kinds(store) == (set(), {"entries not written yet"})


@pytest.mark.parametrize("field", [7, 11, 19])
def test_a_wrong_entry_is_a_problem(store: Path, field: int) -> None:
    path, at = entry_of(store, records(store)[20])
    edit(path, at + field, bytes([path.read_bytes()[at + field] ^ 1]))
    assert kinds(store) == ({"wrong entry"}, set())


def test_an_entry_behind_the_last_record_is_a_problem(store: Path) -> None:
    last = [record for record in records(store) if record.topic == "Main" and record.queue_id == 0][-1]
    path, at = entry_of(store, last)
    edit(path, at + 20, ENTRY.pack(last.physical_offset + 5000, 100, 0))
    assert kinds(store) == ({"extra entry"}, set())


def test_a_queue_without_records_is_a_problem(store: Path) -> None:
    queue = store / "consumequeue" / "Ghost" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(ENTRY.pack(0, 100, 0) + bytes(380))
    assert kinds(store) == ({"extra entry"}, set())


def test_a_deleted_topic_is_noted_when_it_is_configured_no_more(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Filt")
    assert kinds(store) == ({"missing entry"}, set())
    table = {"topicConfigTable": {"Main": {}, "Ret": {}}}
    (store / "config" / "topics.json").write_text(json.dumps(table))
    assert kinds(store) == (set(), {"records of deleted topics"})


def index_files(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


def items_at(store: Path) -> int:
    return HEADER.size + 50 * 4


def test_a_changed_item_is_foreign_and_its_key_is_missing(store: Path) -> None:
    edit(index_files(store)[1], items_at(store) + 20 * 5, b"\0\0\0\7")
    problems, _ = kinds(store)
    assert {"foreign item", "missing keys"} <= problems


def test_lost_slots_are_seen(store: Path) -> None:
    edit(index_files(store)[1], HEADER.size, bytes(200))
    assert kinds(store) == ({"wrong slots"}, set())


def test_a_lost_index_file_is_missing_keys(store: Path) -> None:
    index_files(store)[2].unlink()
    assert kinds(store) == ({"missing keys"}, set())


def test_keys_at_the_end_are_a_problem_only_after_a_clean_stop(store: Path) -> None:
    index_files(store)[-1].unlink()
    assert kinds(store) == ({"missing keys"}, set())
    (store / "abort").touch()
    assert kinds(store) == (set(), {"keys not written yet"})


def test_a_store_without_index_is_noted(store: Path) -> None:
    shutil.rmtree(store / "index")
    assert kinds(store) == (set(), {"no index"})


def test_items_that_point_behind_the_log_are_extra(store: Path) -> None:
    log_file(store, 2).write_bytes(bytes(LOG_FILE))
    shutil.rmtree(store / "consumequeue")
    assert "extra item" in kinds(store)[0]


def test_the_counts_of_an_index_file_are_found_in_it(store: Path) -> None:
    for file in index_files(store):
        data = file.read_bytes()
        assert shape_of(data, len(data), None) == (50, 60)


@pytest.mark.parametrize("name", ["4.9.7-kill9", "4.9.7-clean"])
def test_a_rebuilt_store_is_what_apache_wrote(name: str, copied: Callable[[str], Path]) -> None:
    directory = copied(name)
    queues = {path.relative_to(directory): path.read_bytes() for path in directory.glob("consumequeue/*/*/*")}
    index = [file.read_bytes() for file in index_files(directory)]
    config = {path: path.read_bytes() for path in directory.glob("config/*")}
    was_running = (directory / "abort").exists()
    rebuilt = run(rebuild(str(directory), clock=HandClock()))
    assert (rebuilt.records, rebuilt.log_end) == (RECORDS[name], ENDS[name])
    made = {path.relative_to(directory): path.read_bytes() for path in directory.glob("consumequeue/*/*/*")}
    assert sorted(made) == sorted(queues)
    if name == "4.9.7-kill9":  # the other has extension addresses in its entries
        delayed = "consumequeue/SCHEDULE_TOPIC_XXXX/"  # its levels were not the default ones
        assert {path: data for path, data in made.items() if not str(path).startswith(delayed)} == {
            path: data for path, data in queues.items() if not str(path).startswith(delayed)
        }
    assert [file.read_bytes() for file in index_files(directory)] == index
    assert {path: path.read_bytes() for path in directory.glob("config/*")} == config
    assert (directory / "abort").exists() == was_running
    assert not (directory / "consumequeue_ext").exists()
    assert report(directory).problems == []


@pytest.mark.parametrize("name", ["5.5.0-clean", "5.5.0-kill9"])
def test_what_a_rebuild_does_not_know_stays(name: str, copied: Callable[[str], Path]) -> None:
    directory = copied(name)
    kept = {path: path.read_bytes() for path in directory.rglob("timerlog/*")}
    run(rebuild(str(directory), clock=HandClock()))
    assert {path: path.read_bytes() for path in directory.rglob("timerlog/*")} == kept
    assert kept
    assert (directory / "timerwheel").exists()
    assert report(directory).problems == []


def test_a_rebuild_mends_what_a_check_found(store: Path) -> None:
    edit(index_files(store)[1], HEADER.size, bytes(400))
    shutil.rmtree(store / "consumequeue" / "Main" / "1")
    assert not report(store).is_good
    run(rebuild(str(store), clock=HandClock()))
    assert report(store).is_good


def test_a_rebuild_of_a_log_that_begins_above_zero(store: Path) -> None:
    log_file(store, 0).unlink()
    rebuilt = run(rebuild(str(store), clock=HandClock()))
    assert rebuilt.log_begin == LOG_FILE
    assert report(store).problems == []


def test_a_rebuild_stops_at_damage_and_says_what_it_left(store: Path) -> None:
    victim = records(store)[20]
    edit(log_file(store), victim.physical_offset, bytes(88))
    rebuilt = run(rebuild(str(store), clock=HandClock()))
    assert (rebuilt.records, rebuilt.log_end) == (20, victim.physical_offset)
    assert rebuilt.unread_files >= 2


def test_a_file_made_ahead_of_its_use_is_not_taken_for_unread(store: Path) -> None:
    last = log_file(store, len(list((store / "commitlog").iterdir())) - 1)
    ahead = last.with_name(f"{int(last.name) + LOG_FILE:020d}")
    ahead.write_bytes(bytes(LOG_FILE))
    assert run(rebuild(str(store), clock=HandClock())).unread_files == 0


def test_a_store_in_use_is_not_rebuilt(store: Path) -> None:
    class Locked(SystemDisk):
        def lock(self, path: str) -> None:  # type: ignore[override]
            raise AlreadyLocked(f"another process uses it: {path}")

    with pytest.raises(AlreadyLocked):
        run(rebuild(str(store), disk=Locked()))  # type: ignore[arg-type]
    assert report(store).is_good


def test_records_are_listed_in_log_order(store: Path) -> None:
    found = records(store)
    assert len(found) == 155
    assert [record.physical_offset for record in found] == sorted(record.physical_offset for record in found)
    data = log_file(store).read_bytes()
    assert measure(data, found[0].physical_offset, len(data), True) == found[0].size
    assert decode(data, found[0].physical_offset) == found[0]
    assert BLANK_HEAD.size == 8


def test_a_listing_can_be_narrowed(store: Path) -> None:
    everything = records(store)
    directory = str(store)
    wanted = [record for record in everything if record.topic == "Main" and record.queue_id == 1]
    assert list(dump(directory, topic="Main", queue_id=1)) == wanted
    assert list(dump(directory, topic="Main", queue_id=1, queue_begin=10, queue_end=13)) == wanted[10:13]
    assert list(dump(directory, count=3)) == everything[:3]
    assert list(dump(directory, count=0)) == []
    begin, end = everything[100].physical_offset, everything[110].physical_offset
    assert list(dump(directory, begin=begin, end=end)) == everything[100:110]
    assert list(dump(directory, topic="nobody")) == []


SMALL = StoreConfig(
    root_dir="/store", commit_log_file_size=4096, consume_queue_file_size=400, index_slots=50, index_items=60
)


def filled(disk: SimulatedDisk, count: int = 60) -> Store:
    """A store with messages in three queues, not started: nothing is written by itself."""
    store = Store.open(SMALL, disk, disk.clock, SimulatedWorkers(disk))
    for number in range(count):
        key = f"K{number}"
        draft = Draft(
            queue=store.queues.queue("orders", number % 3),
            body=b"message %d" % number,
            properties=f"UNIQ_KEY\x01{key}\x02".encode(),
            flag=0,
            sys_flag=0,
            born_timestamp=number,
            born_host=bytes(8),
            unique_key=key,
        )
        store.log.append([draft])
    return store


def entries(store: Store) -> list[object]:
    queues = [store.queues.queue("orders", queue_id) for queue_id in range(3)]
    return [queue.entry(offset) for queue in queues for offset in range(queue.max_offset)]


def test_a_store_in_use_is_found_good_with_what_is_not_written_yet() -> None:
    disk = SimulatedDisk(random.Random(1), HandClock())
    store = filled(disk)
    found = run(verify("/store", disk, index_shape=(50, 60)))
    assert (found.is_clean, found.problems, found.records) == (False, [], 60)
    assert found.counts["entries not written yet"] == 60
    store.queues.write_out(2)
    found = run(verify("/store", disk, index_shape=(50, 60)))
    assert (found.problems, found.counts["entries not written yet"]) == ([], 20)


@pytest.mark.parametrize("seed", range(25))
def test_an_interrupted_rebuild_is_finished_by_the_next_start(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(chance, HandClock())
    store = filled(disk)
    expected = entries(store)
    asyncio.run(store.close())
    disk.cut_power_after(chance.randint(0, 120))
    with contextlib.suppress(PowerCut):
        run(rebuild("/store", disk, disk.clock, SMALL))
    disk = disk.crash(chance.choice(list(Survival)))
    store = Store.open(SMALL, disk, disk.clock, SimulatedWorkers(disk))
    assert entries(store) == expected
    for number in range(60):
        assert len(store.queries.query("orders", f"K{number}", 0, 1 << 62, 9).records) == 1
    asyncio.run(store.close())
    assert run(verify("/store", disk, index_shape=(50, 60))).problems == []
