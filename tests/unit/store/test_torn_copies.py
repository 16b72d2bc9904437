"""A slave's log whose unsynced end was torn, at any byte: recovery leaves whole records of its master only.

A slave syncs what has come, which may end inside of a record; and a page that the kernel writes unasked holds
what was copied until then.
"""

import asyncio

import pytest
from tests.unit.store.lab import draft, new_disk
from tests.unit.store.replica_kit import bytes_of, copy, queues_of, slave_on, written

from turbopump.protocol import properties as props
from turbopump.store.segment import file_name
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.simulated_files import Survival

FILE = 4096


def master_with(last_properties: bytes) -> tuple[Store, int]:
    """Returns a master's store and the log offset of its last record, which has these properties."""
    master = written(20)
    begin = master.log.end
    one = draft(master.queues.queue("T", 0), b"last")
    one.properties = last_properties
    master.log.append([one])
    return master, begin


def copied(master: Store, checkpoint_at: int | None = None) -> SimulatedDisk:
    """Returns the disk of a killed slave that had copied everything; perhaps with a checkpoint on the way."""
    disk = new_disk()
    slave = slave_on(disk)
    if checkpoint_at is not None:
        copy(master, slave, until=checkpoint_at)
        asyncio.run(slave.upkeep.take_checkpoint())
    copy(master, slave)
    return disk.crash(Survival.KEPT)


def tear(disk: SimulatedDisk, at: int, until: int) -> None:
    """Replaces log bytes [at, until), in one file, by zeros."""
    buffer = disk.open_mapped(f"/store/commitlog/{file_name(at - at % FILE)}").buffer
    buffer[at % FILE : at % FILE + until - at] = bytes(until - at)


LONG = props.pack({"UNIQ_KEY": "0A000001" * 4, "WAIT": "true", "note": "x" * 40}).encode()


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_record_torn_at_any_byte_is_cut_off_and_copied_again(has_checkpoint: bool) -> None:
    master, begin = master_with(LONG)
    for at in range(begin, master.log.end):
        disk = copied(master, begin if has_checkpoint else None)
        tear(disk, at, master.log.end)
        slave = slave_on(disk)
        assert slave.replica.end == begin, f"torn at {at - begin}"
        copy(master, slave)
        assert bytes_of(slave) == bytes_of(master)
        assert queues_of(slave) == queues_of(master)


def test_a_disk_that_lost_the_end_of_a_record_after_its_sync_costs_that_record_only() -> None:
    master, begin = master_with(LONG)
    for lost in range(1, len(LONG) + 3):
        disk = copied(master, checkpoint_at=master.log.end)
        tear(disk, master.log.end - lost, master.log.end)
        slave = slave_on(disk)
        assert slave.replica.end == begin, f"the last {lost} bytes are missing"
        copy(master, slave)
        assert bytes_of(slave) == bytes_of(master)
        assert queues_of(slave) == queues_of(master)


def test_zeros_inside_of_the_properties_do_not_end_the_log() -> None:
    master, _ = master_with(b"\0\0\0\x01zeros\x02")
    slave = slave_on(copied(master))
    assert slave.replica.end == master.log.end


def test_a_zero_that_apache_stored_at_the_end_of_properties_does_not_cost_the_records_behind_it() -> None:
    master, _ = master_with(b"a\x01zero\0")
    master.log.append([draft(master.queues.queue("T", 0), b"behind")])
    slave = slave_on(copied(master))
    assert slave.replica.end == master.log.end
