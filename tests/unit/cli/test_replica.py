"""Lines of `turbopump replica`."""

import errno

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.store.lab import ROOT, fill, new_disk, open_store, records, small

from turbopump.cli.replica import Compared, ResyncPlan, set_tail_aside, status_text
from turbopump.protocol.bodies import ReplicaStatus, SlaveStatus
from turbopump.replication.comparison import Extent
from turbopump.replication.progress import FILE, CopyState
from turbopump.store.config_files import ConfigFiles
from turbopump.store.stopped_log import StoppedLog
from turbopump.store.tail import Tail, tail_of
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock


def test_the_status_of_a_master_names_its_slaves() -> None:
    status = ReplicaStatus(
        brokerName="broker-a", role="SYNC_MASTER", begin=0, end=900, synced=800, dispatched=900,
        slaves=[
            SlaveStatus(address="10.0.0.6:4711", brokerId=1, received=900, synced=850, isInSync=True),
            SlaveStatus(address="10.0.0.7:4712", received=100, behindBytes=800, behindMs=1500),
        ],
    )  # fmt: skip
    assert status_text("10.0.0.5:10911", status).splitlines() == [
        "10.0.0.5:10911  broker-a id 0  SYNC_MASTER",
        "  log         0 to 900, on disk up to 800, in queues up to 900",
        "  slave       10.0.0.6:4711 id 1: in sync, has the log up to 900, on disk up to 850, "
        "behind by 0 bytes, 0 ms",
        "  slave       10.0.0.7:4712 Apache's: not in sync, has the log up to 100, "
        "behind by 800 bytes, 1500 ms",
    ]
    status.slaves = []
    assert "no slave is connected" in status_text("10.0.0.5:10911", status)


def test_the_status_of_a_slave_says_what_it_lacks() -> None:
    status = ReplicaStatus(
        brokerName="broker-a", brokerId=1, role="SLAVE", state="stopped", trouble="not a copy",
        missing="it lacks the last 7 bytes", master="10.0.0.5:10911",
    )  # fmt: skip
    text = status_text("10.0.0.6:10911", status)
    assert "state       stopped: not a copy" in text
    assert "master      10.0.0.5:10911, last heard never" in text
    assert "copy        incomplete: it lacks the last 7 bytes" in text


def compared(slave_end: int, difference: int | None) -> Compared:
    return Compared("10.0.0.6:10911", 0, slave_end, "10.0.0.5:10911", 0, 900, difference)


def test_a_comparison_says_whether_the_slave_is_a_copy() -> None:
    assert compared(800, None).is_copy
    assert "Equal up to 800; the slave lacks 100 bytes." in compared(800, None).lines()
    ahead = compared(950, None)
    assert not ahead.is_copy
    assert "Equal up to 900; the slave has 50 bytes that the master does not." in ahead.lines()
    different = compared(800, 300)
    assert not different.is_copy
    assert "They differ from log offset 300 on." in different.lines()
    assert any("turbopump replica resync" in line for line in different.lines())


def test_a_plan_names_the_records_that_go() -> None:
    plan = ResyncPlan(Tail(300, 800, 4, 700), 0, Extent(0, 900))
    assert plan.lines("/store", "10.0.0.5:10911") == [
        "/store: log 0 to 800; master 10.0.0.5:10911: 0 to 900",
        "Both have the records before 300. Behind it this store alone has 4 records (500 bytes): "
        "log offsets 300 to 700.",
    ]


# --- a disk that fails while the tail is set aside ---------------------------------------------------------


async def _diverged() -> tuple[SimulatedDisk, ResyncPlan]:
    """A stopped store whose last 20 of 60 records its master does not have; the master's log ends there."""
    disk = new_disk()
    store = open_store(disk, VirtualClock())
    await store.start()
    fill(store, 60)
    cut = list(records(store))[40].physical_offset
    await store.close()
    return disk, ResyncPlan(tail_of(StoppedLog(ROOT, disk), cut), 0, Extent(0, cut))


def _state(disk: SimulatedDisk) -> CopyState:
    data = ConfigFiles(small().config_dir, disk).load(FILE)
    assert data is not None
    return msgspec.json.decode(data, type=CopyState)


@virtual
async def test_a_tail_that_could_not_be_cut_off_keeps_the_store_from_being_promoted() -> None:
    disk, plan = await _diverged()
    disk.fail_sync(path_part="set-aside")
    with pytest.raises(OSError, match="simulated sync failure"):
        await set_tail_aside(small(), plan, disk, VirtualClock(), SimulatedWorkers(disk))
    end = StoppedLog(ROOT, disk).end
    assert end > plan.tail.begin  # the tail is there
    assert "replica resync" in _state(disk).missing(end)
    assert _state(disk).differs
    kept = await set_tail_aside(
        small(), plan, disk, VirtualClock(), SimulatedWorkers(disk)
    )  # again, on a disk that works
    assert kept
    assert (_state(disk).missing(StoppedLog(ROOT, disk).end), _state(disk).differs) == ("", False)


@virtual
async def test_nothing_is_cut_off_when_the_doubt_cannot_be_saved() -> None:
    disk, plan = await _diverged()
    disk.capacity = 0
    with pytest.raises(OSError, match="full") as error:
        await set_tail_aside(small(), plan, disk, VirtualClock(), SimulatedWorkers(disk))
    assert error.value.errno == errno.ENOSPC
    assert StoppedLog(ROOT, disk).end == plan.tail.end


@virtual
async def test_a_tail_that_was_cut_off_leaves_a_doubt_when_its_end_cannot_be_saved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk, plan = await _diverged()
    disk.fail_sync(after=1, path_part=FILE)  # the second of the two
    kept = await set_tail_aside(small(), plan, disk, VirtualClock(), SimulatedWorkers(disk))
    assert kept
    assert StoppedLog(ROOT, disk).end == plan.tail.begin
    assert "replica.json" in capsys.readouterr().err
    assert _state(disk).missing(plan.tail.begin)
