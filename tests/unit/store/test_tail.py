"""The log of a stopped store, and what is set aside from its end."""

import pytest
from tests.kit import virtual
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import ROOT, Workers, check, fill, new_disk, numbers, open_store, records, small

from turbopump.runtime.disk import AlreadyLocked
from turbopump.store.stopped_log import StoppedLog
from turbopump.store.tail import set_aside, tail_of
from turbopump.testing.disk import SimulatedDisk


async def stopped(count: int = 60) -> tuple[SimulatedDisk, list[int], int, bytes]:
    """A disk with a stopped store: its disk, the offsets of its records, its end and its bytes."""
    disk = new_disk()
    store = open_store(disk)
    await store.start()
    fill(store, count)
    places = [record.physical_offset for record in records(store)]
    end = store.log.end
    contents = store.replica.read(0, end)
    await store.close()
    return disk, places, end, contents


@virtual
async def test_a_stopped_log_is_read_as_the_store_reads_it() -> None:
    disk, places, end, contents = await stopped()
    log = StoppedLog(ROOT, disk)
    assert (log.min_offset, log.end) == (0, end)
    assert len(log.starts) > 2
    assert [offset for offset, _ in log.records(0)] == places
    assert log.read(0, end) == contents
    assert log.read(places[5] + 3, places[40]) == contents[places[5] + 3 : places[40]]
    for offset in (0, places[7], places[7] + 1, places[8] - 1, end - 1):
        assert log.boundary(offset) == max(place for place in places if place <= offset)
    assert log.boundary(end) == log.boundary(end + 100) == end
    found = log.record(places[9])
    assert found is not None
    assert found.body.startswith(b"000009")
    assert log.record(places[9] + 1) is None


@virtual
async def test_an_empty_log_has_no_records() -> None:
    log = StoppedLog(ROOT, new_disk())
    assert log.is_empty
    assert (log.min_offset, log.end, list(log.records(0)), log.boundary(0)) == (0, 0, [], 0)


@pytest.mark.parametrize("kept", [1, 20, 59])
@virtual
async def test_a_tail_is_set_aside_and_nothing_of_it_is_lost(kept: int) -> None:
    disk, places, end, contents = await stopped()
    cut = places[kept]
    tail = tail_of(StoppedLog(ROOT, disk), cut)
    assert (tail.begin, tail.end, tail.records, tail.last) == (cut, end, 60 - kept, places[-1])
    files = await set_aside(small(), cut, disk, HandClock(), Workers())
    found = bytearray(end)
    for path in files:
        start = int(path.rpartition("/")[2].partition(".")[0])
        data = disk.read(path)[: end - start]
        for position in range(len(data)):
            if data[position]:
                found[start + position] = data[position]
    assert bytes(found[cut:]) == contents[cut:]
    store = open_store(disk)
    assert numbers(store) == list(range(kept))
    assert store.log.end == cut
    check(store)


@virtual
async def test_a_log_with_nothing_in_common_is_set_aside_whole() -> None:
    disk, _, _, _ = await stopped()
    starts = StoppedLog(ROOT, disk).starts
    files = await set_aside(small(), 0, disk, HandClock(), Workers())
    assert sorted(int(path.rpartition("/")[2]) for path in files) == starts
    assert StoppedLog(ROOT, disk).is_empty


@virtual
async def test_timers_that_name_offsets_of_the_tail_are_set_aside_too() -> None:
    disk, places, _, _ = await stopped()
    disk.make_dirs(f"{ROOT}/config")
    for name in ("timerwheel", "config/timercheck"):
        disk.write(f"{ROOT}/{name}", b"wheel")
    disk.make_dirs(f"{ROOT}/set-aside")
    disk.write(f"{ROOT}/set-aside/timerwheel", b"older")
    files = await set_aside(small(), places[30], disk, HandClock(), Workers())
    assert f"{ROOT}/set-aside/timerwheel.1" in files
    assert f"{ROOT}/set-aside/timercheck" in files
    assert disk.read(f"{ROOT}/set-aside/timerwheel") == b"older"
    assert not disk.exists(f"{ROOT}/timerwheel")


@virtual
async def test_a_store_in_use_is_left_alone() -> None:
    disk, places, _, _ = await stopped()
    store = open_store(disk)
    with pytest.raises(AlreadyLocked):
        await set_aside(small(), places[3], disk, HandClock(), Workers())
    assert len(numbers(store)) == 60
