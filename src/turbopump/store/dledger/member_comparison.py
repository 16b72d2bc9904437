"""Compares the logs of the members of a DLedger group. Reads only; entries come in as iterators.

Committed entries must be equal in all members that have them. What a member has not committed may differ: the
next leader removes it. The checksum of a body is not compared, because Apache writes none.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, takewhile

from turbopump.protocol.dledger.entry import DLedgerEntry
from turbopump.runtime.disk import Disk
from turbopump.store.dledger.entry_walk import store_parts
from turbopump.store.dledger.older_comparison import compare_older
from turbopump.store.dledger.stopped_entries import StoppedEntries

MAX_SHOWN = 10  # differences that are described; all are counted


@dataclass(frozen=True, slots=True)
class MemberState:
    """State of one member, from its files; -1: no term or no such entry."""

    directory: str
    node: str
    term: int
    vote: str
    begin: int
    committed: int
    end: int
    log_begin: int  # log offsets: of the first message, and of the first entry
    divided_at: int
    is_clean: bool  # no `abort` file: not in use and stopped in order


@dataclass(slots=True)
class MemberComparison:
    """Result of a comparison: the members, how many entries were compared, what differs."""

    members: list[MemberState]
    compared: int = 0  # committed entries that two members or more have
    first: int = -1
    last: int = -1
    differing: int = 0
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not self.differing

    def add(self, difference: str) -> None:
        self.differing += 1
        if len(self.differences) < MAX_SHOWN:
            self.differences.append(difference)


def compare_members(directories: Iterable[str], disk: Disk) -> MemberComparison:
    """Compares the members whose store directories are given. Raises UnusableStore."""
    logs = {directory: StoppedEntries(directory, disk) for directory in directories}
    states = [_state_of(directory, log, disk) for directory, log in logs.items()]
    result = MemberComparison(states)
    for state, log in zip(states, logs.values(), strict=True):
        if log.checkpoint.committed > state.committed:
            result.add(
                f"{state.directory}: its checkpoint has entry {log.checkpoint.committed} as committed, but "
                f"only entries up to {state.end} can be read"
            )
    compare_entries(
        {state.directory: _committed(logs[state.directory], state.committed) for state in states}, result
    )
    older = {state.directory: store_parts(state.directory, disk) for state in states}
    for difference in compare_older(older, disk):
        result.add(difference)
    _note_shorter(result)
    return result


def compare_entries(streams: Mapping[str, Iterable[DLedgerEntry]], result: MemberComparison) -> None:
    """Compares the committed entries of members, by name and in order; adds to the result what differs."""
    merged = heapq.merge(*(_named(name, entries) for name, entries in streams.items()), key=_index)
    for index, group in groupby(merged, key=_index):
        having = [(name, entry) for _, name, entry in group]
        if len(having) < 2:
            continue
        result.compared += 1
        result.first, result.last = index if result.first < 0 else result.first, index
        contents = {_content(entry) for _, entry in having}
        if len(contents) > 1:
            result.add(f"entry {index}: " + "; ".join(f"{name} has {_text(entry)}" for name, entry in having))


def _state_of(directory: str, log: StoppedEntries, disk: Disk) -> MemberState:
    begin = end = -1
    divided_at = log.parts[0].start if log.parts else 0
    for head in log.heads():
        if begin < 0:
            begin, divided_at = head.index, head.pos
        end = head.index
    parts = store_parts(directory, disk)
    return MemberState(
        directory,
        log.node,
        -1 if log.vote is None else log.vote.term,
        "" if log.vote is None else log.vote.leader,
        begin,
        min(log.checkpoint.committed, end),
        end,
        divided_at if not parts or parts[0].holds_entries else parts[0].start,
        divided_at,
        not disk.exists(f"{directory}/abort"),
    )


def _committed(log: StoppedEntries, last: int) -> Iterator[DLedgerEntry]:
    return takewhile(lambda entry: entry.index <= last, log.entries())


def _note_shorter(result: MemberComparison) -> None:
    """Notes members that lack what others have: a log that begins later, or ends earlier."""
    members = result.members
    begin = min((member.log_begin for member in members), default=0)
    committed = max((member.committed for member in members), default=-1)
    for member in members:
        if member.log_begin > begin:
            result.notes.append(
                f"{member.directory} has no messages below log offset {member.log_begin}; others begin at "
                f"{begin}"
            )
        if member.committed < committed:
            result.notes.append(
                f"{member.directory} knows {committed - member.committed} entries fewer to be committed than "
                f"another member"
            )
        if not member.is_clean:
            result.notes.append(f"{member.directory} is in use or was not cleanly stopped")


def _named(name: str, entries: Iterable[DLedgerEntry]) -> Iterator[tuple[int, str, DLedgerEntry]]:
    return ((entry.index, name, entry) for entry in entries)


def _index(found: tuple[int, str, DLedgerEntry]) -> int:
    return found[0]


def _content(entry: DLedgerEntry) -> tuple[int, int, int, int, int, bytes]:
    return entry.magic, entry.size, entry.term, entry.pos, entry.channel, entry.body


def _text(entry: DLedgerEntry) -> str:
    return f"{len(entry.body)} bytes of term {entry.term} at {entry.pos}"
