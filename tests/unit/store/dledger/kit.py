"""What the tests of DLedger's files share."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.unit.store.kit import HandClock

from turbopump.protocol.dledger.entry import HEAD_SIZE, DLedgerEntry
from turbopump.store.config import StoreConfig
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.testing.disk import SimulatedDisk

ROOT = "/store"
FILE_SIZE = 2048
CONFIG = StoreConfig(
    root_dir=ROOT, dledger_id="n0", commit_log_file_size=FILE_SIZE, dledger_index_units=16, open_log_files=2
)
DATA, INDEX, ASIDE = f"{ROOT}/dledger-n0/data", f"{ROOT}/dledger-n0/index", f"{ROOT}/dledger-n0/set-aside"


def new_disk(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed), HandClock())


def body(number: int, size: int = 100) -> bytes:
    """A body whose bytes tell its number; those of its log offset are zeros."""
    return bytes(28) + bytes(8) + (f"{number}|".encode() * size)[: size - 36]


def marked(entry: DLedgerEntry) -> int:
    """Returns the number of the body of an entry, and checks that the log offset was filled in."""
    assert entry.body[28:36] == (entry.pos + HEAD_SIZE).to_bytes(8, "big")
    return int(entry.body[36:].split(b"|")[0])


def numbers(log: EntryLog) -> list[int]:
    """Returns the numbers of all bodies, read one by one and many at a time."""
    found = all_entries(log)
    if found:
        assert found == log.entries(log.begin_index, 1 << 20, 1 << 30)
    return [marked(entry) for entry in found]


def all_entries(log: EntryLog) -> list[DLedgerEntry]:
    if log.begin_index < 0:
        return []
    found = [log.entry(index) for index in range(log.begin_index, log.end_index + 1)]
    return [entry for entry in found if entry is not None]


def check(log: EntryLog) -> None:
    """Checks what holds for every log: no gap, terms that never fall, an index that agrees with the data."""
    found = all_entries(log)
    assert [entry.index for entry in found] == list(range(log.next_index - len(found), log.next_index))
    assert [entry.term for entry in found] == sorted(entry.term for entry in found)
    for entry in found:
        assert (log.place_of(entry.index), log.term_of(entry.index)) == (entry.pos, entry.term)
    if found:
        assert (log.begin_index, log.end_index) == (found[0].index, found[-1].index)
        assert (log.end_term, log.end_of(found[-1].index)) == (found[-1].term, found[-1].pos + found[-1].size)
        assert log.bytes_between(found[0].index, found[-1].index) == log.end_of(
            found[-1].index
        ) - log.place_of(found[0].index)
    else:
        assert (log.begin_index, log.end_index, log.end_term) == (-1, -1, -1)
    assert log.committed_index <= log.end_index
    assert log.entry(log.next_index) is None


@dataclass
class Model:
    """What a log must have: the numbers of its bodies, and how many of them are on the medium."""

    numbers: list[int] = field(default_factory=list)
    synced: int = 0
    committed: int = 0
