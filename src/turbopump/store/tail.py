"""Sets the end of a stopped store's log aside: for a broker whose last records its new master never had.

In: a store that is not in use, and the offset of the first record to go. Out: a store that ends there, and
the files that keep the rest. The wheel and the log of timers are moved too, since they name log offsets that
other records will have: a broker builds them again from the log when it is a master. Nothing is deleted.
"""

import os
from dataclasses import dataclass

from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Workers
from turbopump.store.config import StoreConfig
from turbopump.store.errors import UnusableStore
from turbopump.store.stopped_log import StoppedLog
from turbopump.store.store import Store

TIMER_FILES = ("timerwheel", "timerlog", "config/timercheck", "config/timercheck.bak")


@dataclass(frozen=True, slots=True)
class Tail:
    """Extent of the end of a log: where it begins and ends, number of records, offset of the last one."""

    begin: int
    end: int
    records: int
    last: int
    """Log offset of the last record; -1 without one."""

    @property
    def bytes(self) -> int:
        return self.end - self.begin


def tail_of(log: StoppedLog, begin: int) -> Tail:
    """Counts the records from `begin` on, where a record begins or the log ends."""
    records, last = 0, -1
    for offset, _ in log.records(begin) if begin < log.end else ():
        records, last = records + 1, offset
    return Tail(begin, log.end, records, last)


async def set_aside(config: StoreConfig, begin: int, disk: Disk, clock: Clock, workers: Workers) -> list[str]:
    """Ends the log at `begin`, durably; returns the files that keep what was behind it.

    Raises AlreadyLocked while a broker uses the store. With `begin` at the start of the log all of it is set
    aside, and the log may begin anywhere.
    """
    store = Store.open(config, disk, clock, workers)
    try:
        await store.start()
        if begin > store.commit_log.end:
            raise UnusableStore(f"the log ends at {store.commit_log.end}, so it cannot be cut at {begin}")
        if begin == store.commit_log.end:
            return []
        timers = _set_timers_aside(config, disk)  # first: after a crash in between they are built again
        if begin <= store.commit_log.min_offset:
            return [*await store.upkeep.set_log_aside(), *timers]
        return [*await store.upkeep.cut_log(begin), *timers]
    finally:
        await store.close()


def _set_timers_aside(config: StoreConfig, disk: Disk) -> list[str]:
    kept = []
    for name in TIMER_FILES:
        path = os.path.join(config.root_dir, name)
        if disk.exists(path):
            target = _free_name(os.path.join(config.set_aside_dir, os.path.basename(name)), disk)
            disk.make_dirs(config.set_aside_dir)
            disk.rename(path, target)
            disk.sync_dir(os.path.dirname(path))
            disk.sync_dir(config.set_aside_dir)
            kept.append(target)
    return kept


def _free_name(path: str, disk: Disk) -> str:
    number, free = 0, path
    while disk.exists(free):
        number += 1
        free = f"{path}.{number}"
    return free
