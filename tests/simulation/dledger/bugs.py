"""Errors that are planted into the brokers of a group, each by a small patch, and how they show.

python -m tests.simulation.dledger.bugs "acknowledge before the commit"
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from tests.simulation.cluster.bugs import Bug, Plant, main
from tests.simulation.dledger.world import DLedgerWorld

from turbopump.broker.delay.levels import DelayedMessages
from turbopump.broker.dledger.acknowledgement import QuorumAcknowledgement
from turbopump.broker.dledger.follower import LeaderTables
from turbopump.broker.dledger.member import GroupMember
from turbopump.broker.dledger.table_copies import TableCopies
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.raft import SavedState
from turbopump.replication.dledger.node_storage import NodeStorage
from turbopump.store.dledger.committed import CommittedEntries
from turbopump.store.dledger.entry_log import EntryLog


def _replaced(owner: object, name: str, by: Any) -> Plant:
    return lambda: mock.patch.object(owner, name, by)


def _nothing(*_: Any, **__: Any) -> None:
    """Replaces a function that must not be left out."""


def _acknowledge_at_once(self: QuorumAcknowledgement, end: int, done: Callable[[Any], None]) -> None:
    done(self._committed)


def _acknowledge_anything(self: QuorumAcknowledgement, result: Any) -> Any:
    return self._committed


@contextlib.contextmanager
def _vote_at_once() -> Iterator[None]:
    """Takes an empty disk for that of a member that has voted for nobody yet."""
    saved = NodeStorage.saved_state

    def joined(self: NodeStorage) -> SavedState:
        found = saved(self)
        return SavedState(found.term, found.voted_for, True, found.committed_index)

    with mock.patch.object(NodeStorage, "saved_state", joined):
        yield


@contextlib.contextmanager
def _show_all_entries() -> Iterator[None]:
    """Has a follower put entries into their queues before they are committed."""
    append, begin, members = EntryLog.append_entries, GroupMember.__init__, dict[EntryLog, GroupMember]()

    def begin_and_note(self: GroupMember, rules: Any, entries: EntryLog, *more: Any) -> None:
        begin(self, rules, entries, *more)
        members[entries] = self

    def append_and_commit(self: EntryLog, entries: Any) -> None:
        append(self, entries)
        self.commit_to(self.end_index)
        members[self]._has_committed.set()

    with (
        mock.patch.object(EntryLog, "append_entries", append_and_commit),
        mock.patch.object(GroupMember, "__init__", begin_and_note),
    ):
        yield


@contextlib.contextmanager
def _forget_changed_offsets() -> Iterator[None]:
    """Writes committed offsets to the file of the leader alone."""
    changed = CommittedOffsets._changed

    def only_mark(self: CommittedOffsets) -> None:
        if self.on_commit is None:
            self.is_dirty = True
        else:
            changed(self)

    with mock.patch.object(CommittedOffsets, "_changed", only_mark):
        yield


async def _forget_what_was_delivered(self: DelayedMessages) -> None:
    """Does not look which delayed messages the leader before has delivered."""


def _has_no_tables(self: LeaderTables) -> bool:
    """Takes every leader without tables of its term for one that never writes any."""
    server = self._member.server
    return server.leader is not None and self._copies.term != server.term


BUGS = (
    Bug(
        "acknowledge before the commit",
        _replaced(QuorumAcknowledgement, "when_safe", _acknowledge_at_once),
        ("receipt", "lost write"),
        20,
    ),
    Bug(
        "acknowledge when the leadership has ended",
        _replaced(QuorumAcknowledgement, "_safety", _acknowledge_anything),
        ("receipt", "lost write"),
        30,
    ),
    Bug(
        "entries served before they are committed",
        _show_all_entries,
        ("inconsistent offsets", "receipt", "lost write", "not a copy", "surprise"),
        60,
    ),
    Bug(
        "tables that followers do not take",
        _replaced(TableCopies, "catch_up", _nothing),
        ("lost topic", "lost commit"),
        20,
    ),
    Bug("offsets that stay at the leader", _forget_changed_offsets, ("lost commit", "lost topic"), 20),
    Bug(
        "delayed messages delivered twice",
        _replaced(DelayedMessages, "_look_back", _forget_what_was_delivered),
        ("duplicate",),
        60,
    ),
    Bug(
        "a log that begins again and is dispatched from where it ended before",
        _replaced(CommittedEntries, "_begin_again", _nothing),
        ("not a copy", "lost topic"),
        20,
    ),
    Bug(
        "a leader of ours that is taken for Apache's until its tables are there",
        _replaced(LeaderTables, "is_apache", property(_has_no_tables)),
        ("deleted early", "lost write", "lost commit", "lost topic"),
        60,
    ),
    Bug(
        "an empty disk that votes at once",
        _vote_at_once,
        ("lost write", "inconsistent offsets", "not a copy"),
        60,
    ),
)
"""All planted bugs."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], BUGS, DLedgerWorld))
