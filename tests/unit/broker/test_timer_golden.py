"""Stores that Apache's 5.5.0 left with timers: bytes as we write them, and each that waits fires once."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.store.kit import STORES, apache_store
from tests.writers import writer_of

from turbopump.broker.config import BrokerIdentity, TimerRules, TopicRules
from turbopump.broker.delay.timers import FILE, TimedMessages
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol.record import Record
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.store import timer_check
from turbopump.store.config import StoreConfig
from turbopump.store.config_files import ConfigFiles
from turbopump.store.store import Store
from turbopump.store.timer_log import UNIT, UNIT_SIZE, TimerLog
from turbopump.store.timer_wheel import SLOT, SLOTS, Slot, TimerWheel
from turbopump.store.tools import rebuild, run
from turbopump.testing.loop import VirtualClock, run_virtual

NAMES = ["5.5.0-timers-clean", "5.5.0-timers-kill9"]
KNOWN: dict[str, Any] = json.loads((STORES / "timers.json").read_bytes())
UNITS = 12  # three that were fired, seven that wait, one that was recalled, and its recall
pytestmark = pytest.mark.parametrize("name", NAMES)


async def resume(root: str, now_ms: int, until_ms: int) -> list[Record]:
    """What is delivered until then by timers that go on at that time."""
    clock, disk = VirtualClock(start_ms=now_ms), SystemDisk()
    config = StoreConfig(
        root_dir=root,
        commit_log_file_size=1 << 18,
        consume_queue_file_size=6000,
        max_message_size=1 << 16,
        index_enabled=False,
    )
    workers = SystemWorkers()
    store = Store.open(config, disk, clock, workers)
    end = store.log.end
    topics = TopicTable(TopicRules(), BrokerIdentity(broker_name="broker-a"), clock)
    topics.update(Topic("TimerT", 4, 4), {})
    files = ConfigFiles(config.config_dir, disk)
    timers = TimedMessages(
        store, topics, writer_of(store, clock), files.save, workers, clock, disk, TimerRules()
    )
    files.load(FILE, lambda data: timers.load(data) >= 0)
    timers.open()
    running = asyncio.create_task(timers.run())
    await asyncio.sleep((until_ms - now_ms) / 1000)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    store.flusher.start()
    await timers.close()
    await store.close()
    delivered = []
    log = Store.open(config, disk, clock, workers)
    while (found := log.log.look_up(end)) is not None:
        delivered.append(found)
        end += found.size
    log.commit_log.close()
    log._lock.release()
    return [record for record in delivered if record.topic == "TimerT"]


@pytest.mark.parametrize("off_s", [0, 45, 3600, 300_000])
def test_each_that_waits_fires_once_and_none_is_early(name: str, off_s: int, tmp_path: Path) -> None:
    """Apache keeps the second, not the millisecond: what it took fires when its second is over."""
    root, due = apache_store(name, tmp_path), KNOWN[name]["due"]
    began_ms = KNOWN[name]["stoppedMs"] + 1000 * off_s
    last_ms = max(*due.values(), began_ms) + 5_000
    found = run_virtual(resume(root, began_ms, last_ms))
    assert sorted(record.body.decode() for record in found) == sorted(due)
    for record in found:
        due_ms = due[record.body.decode()]
        latest_ms = max(due_ms + 1000, began_ms + 1000)
        assert due_ms <= record.store_timestamp <= latest_ms
    assert run_virtual(resume(root, last_ms + 5_000, last_ms + 100_000)) == []


@pytest.mark.parametrize("late_s", [5, 60, 86_400])
def test_what_apache_delivered_after_it_wrote_its_file_does_not_come_again(
    name: str, late_s: int, tmp_path: Path
) -> None:
    """It writes timercheck once a second, on a busy machine later; its copies do not name their originals."""
    root, due = apache_store(name, tmp_path), KNOWN[name]["due"]
    path = Path(root, "config", FILE)
    check = timer_check.decode(path.read_bytes())
    path.write_bytes(replace(check, read_ms=check.read_ms - 1000 * late_s).encode())
    began_ms = KNOWN[name]["stoppedMs"]
    found = run_virtual(resume(root, began_ms, max(due.values()) + 5_000))
    assert sorted(record.body.decode() for record in found) == sorted(due)


@pytest.mark.parametrize("lost", ["timerlog", "config/timercheck"])
def test_what_waits_comes_back_when_damaged_files_were_removed_by_a_rebuild(
    name: str, lost: str, tmp_path: Path
) -> None:
    root, due = apache_store(name, tmp_path), KNOWN[name]["due"]
    path = Path(root, lost) if lost != "timerlog" else Path(root, lost, "0" * 20)
    path.write_bytes(b"?")
    assert run(rebuild(root)).damaged_timers > 0
    found = run_virtual(resume(root, KNOWN[name]["stoppedMs"], max(due.values()) + 5_000))
    assert sorted(record.body.decode() for record in found) == sorted(due)


def test_the_timer_log_is_read_and_written_byte_for_byte(name: str, tmp_path: Path) -> None:
    root = apache_store(name, tmp_path)
    log = TimerLog(f"{root}/timerlog", 1 << 16, SystemDisk())
    units = list(log.scan())
    assert [at for at, _ in units] == [UNIT_SIZE * number for number in range(UNITS)]
    assert [unit.offset for _, unit in units] == sorted(unit.offset for _, unit in units)
    assert sum(unit.rolls for _, unit in units) == 2
    assert sum(unit.recalls for _, unit in units) == 1
    again = TimerLog(str(tmp_path / "again"), 1 << 16, SystemDisk())
    assert [again.append(unit) for _, unit in units] == [at for at, _ in units]
    again.write_out()
    theirs = Path(root, "timerlog", "0" * 20).read_bytes()
    assert Path(tmp_path, "again", "0" * 20).read_bytes()[: UNIT_SIZE * UNITS] == theirs[: UNIT_SIZE * UNITS]
    assert UNIT.unpack_from(theirs, UNIT_SIZE * UNITS)[0] == 0


def test_the_wheel_is_read_and_written_byte_for_byte(name: str, tmp_path: Path) -> None:
    root = apache_store(name, tmp_path)
    theirs = Path(root, "timerwheel").read_bytes()
    assert len(theirs) == SLOTS * SLOT.size
    slots: dict[int, Slot] = {}
    for time, first, last, count, _ in SLOT.iter_unpack(theirs):
        if time:
            slots[time * 1000] = Slot(first, last, count)
    ours = TimerWheel(str(tmp_path / "wheel"), SystemDisk(), 1000)
    ours.begin(slots)
    assert (tmp_path / "wheel").read_bytes() == theirs
    assert {time_ms: ours.get(time_ms) for time_ms in slots} == slots
    assert ours.next_after(min(slots) - 1000) == min(slots)


def test_timercheck_is_read_and_written_byte_for_byte(name: str, tmp_path: Path) -> None:
    data = Path(apache_store(name, tmp_path), "config", FILE).read_bytes()
    check = timer_check.decode(data)
    assert (check.log_end, check.queue_offset, check.note) == (UNIT_SIZE * UNITS, UNITS, None)
    assert check.encode() == data
