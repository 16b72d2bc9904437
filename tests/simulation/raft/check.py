"""Judges the history of a group: the promises of Raft, of the answers, and of progress after the last fault.

Pure: a history goes in, anomalies come out. Each member's log is followed as it was written, cut and lost.
Log matching needs no comparison of whole logs: an entry is known by index and term, and so is the one before.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation.raft.history import (
    Accepted,
    Alone,
    Committed,
    DeadlinesPassed,
    Ended,
    Expired,
    Flushed,
    Granted,
    History,
    Note,
    Outcome,
    Requested,
    Responded,
    RoleTaken,
    Saved,
    Spoke,
    Started,
    Stop,
    Stopped,
    Stuck,
    Truncated,
    Wrote,
)
from tests.simulation.raft.known_log import KnownLog

from turbopump.raft.effects import Role
from turbopump.raft.messages import MemberId, PushedEntry
from turbopump.raft.pending_appends import AppendOutcome

MAX_ANSWER_MS = 5_000
"""By when a member that runs answers a request: a transfer waits 3 s, a push 1 s for those before it, by
clocks that may be slow by a third."""
MAX_LATE_MS = 15_000
"""How much later a member answers that was stopped for a while, or has a slow disk."""


class Anomaly(NamedTuple):
    """A broken promise: which, when, and where."""

    at: float
    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.at / 1000:.3f} {self.name}: {self.what}"


class _Member:
    """What the checker knows of a member."""

    def __init__(self) -> None:
        self.log = KnownLog()
        self.before_replacement: KnownLog | None = None
        """The log of the disk that was lost, until the member has joined again."""
        self.is_up = False
        self.role = Role.CANDIDATE
        self.committed_index = -1
        self.saved = (0, None, True)  # type: tuple[int, MemberId | None, bool]
        self.spoken_term = -1
        self.appends: dict[str, Accepted] = {}
        self.requests: dict[int, Requested] = {}

    def holds_safely(self, entry: PushedEntry, is_synced: bool) -> bool:
        """Returns whether an entry is safe here, or was on a disk that was lost since."""
        lost = self.before_replacement
        return self.log.holds_safely(entry, is_synced) or (
            lost is not None and lost.holds_safely(entry, is_synced)
        )


class _Check:
    """Follows a history."""

    def __init__(self, history: History) -> None:
        self.found: list[Anomaly] = []
        self._quorum = len(history.members) // 2 + 1
        self._is_synced = history.has_power_cuts
        self._members = {name: _Member() for name in history.members}
        self._leaders: dict[int, MemberId] = {}
        self._leader_logs: dict[int, KnownLog] = {}
        self._votes: dict[tuple[MemberId, int], MemberId] = {}
        self._entries: dict[tuple[int, int], tuple[PushedEntry, int | None]] = {}
        self._committed: dict[int, tuple[PushedEntry, int]] = {}
        """Index -> the entry that is committed there, and the first term in which that was known."""
        self._answered: set[str] = set()
        self._now = 0.0

    def take(self, one: Any) -> None:
        """Takes in what happened next."""
        self._now = one.at
        _RULES[type(one)](self, one)

    def _wrong(self, name: str, what: str) -> None:
        self.found.append(Anomaly(self._now, name, what))

    # --- processes and disks -------------------------------------------------------------------------------

    def _started(self, one: Started) -> None:
        member = self._members[one.member]
        member.is_up, member.role = True, Role.CANDIDATE
        member.committed_index = one.committed_index
        if list(one.entries) != member.log.above(-1):
            self._changed_while_down(one, member)
        if one.committed_index > member.log.end_index:
            self._wrong(
                "commit beyond the log",
                f"{one.member} starts with {one.committed_index} > {member.log.end_index}",
            )
        if one.term < member.saved[0]:
            self._wrong("term fell", f"{one.member} starts in term {one.term} after {member.saved[0]}")

    def _changed_while_down(self, one: Started, member: _Member) -> None:
        """Judges a log that is not the one that its member had: entries that were cut off are back."""
        self._wrong("log changed", f"{one.member} starts with a log that is not the one it had")
        member.log = KnownLog()
        self._wrote(Wrote(one.at, one.member, one.entries))

    def _stopped(self, one: Stopped) -> None:
        member = self._members[one.member]
        self._judge_open(one.member, member, MAX_LATE_MS)
        member.is_up, member.role = False, Role.CANDIDATE
        member.appends.clear()
        member.requests.clear()
        if one.how is Stop.DISK_LOST:
            if member.before_replacement is None:
                member.before_replacement = member.log
            member.log = KnownLog()
            member.saved, member.spoken_term = (0, None, False), -1
        else:
            member.log.lose(one.end_index)

    def _ended(self, one: Ended) -> None:
        for name, member in self._members.items():
            self._judge_open(name, member, 0)

    def _judge_open(self, name: MemberId, member: _Member, late_ms: float) -> None:
        for append in member.appends.values():
            if self._now > append.deadline + late_ms:
                self._wrong("append not answered", f"{append.name} of {append.at / 1000:.3f} at {name}")
        for request in member.requests.values():
            if self._now > request.at + MAX_ANSWER_MS + late_ms:
                self._wrong("request not answered", f"of {request.at / 1000:.3f}: {request}")

    # --- logs ----------------------------------------------------------------------------------------------

    def _wrote(self, one: Wrote) -> None:
        log = self._members[one.member].log
        for entry in one.entries:
            if not log.is_empty and entry.index != log.end_index + 1:
                self._wrong("gap", f"{one.member} appends {entry.index} behind {log.end_index}")
                return
            self._match(one.member, entry, None if log.is_empty and entry.index else log.end_term)
            log.append(entry)

    def _match(self, name: MemberId, entry: PushedEntry, before: int | None) -> None:
        """Compares an entry, and the term of the one before it, with the same entry elsewhere."""
        key = (entry.index, entry.term)
        known = self._entries.get(key)
        if known is None:
            self._entries[key] = (entry, before)
            return
        if known[0] != entry:
            self._wrong("log matching", f"{name} has {entry.body} at {key}, elsewhere it is {known[0].body}")
        if known[1] is None:
            self._entries[key] = (entry, before)
        elif before is not None and before != known[1]:
            self._wrong("log matching", f"{name} has term {before} before {key}, elsewhere it is {known[1]}")

    def _truncated(self, one: Truncated) -> None:
        member = self._members[one.member]
        if member.role is Role.LEADER:
            self._wrong("leader truncates", f"{one.member} after {one.after_index}")
        for entry in member.log.above(one.after_index):
            committed = self._committed.get(entry.index)
            is_kept = one.replacement is not None and one.replacement == entry
            if committed is not None and committed[0] == entry and not is_kept:
                self._wrong("committed entry cut off", f"{entry.index}@{entry.term} at {one.member}")
                break
        if one.replacement is None:
            member.log.cut(one.after_index)
            return
        member.log = KnownLog()
        self._match(one.member, one.replacement, None if one.replacement.index else -1)
        member.log.append(one.replacement)

    def _expired(self, one: Expired) -> None:
        self._members[one.member].log.expire(one.begin_index)

    def _flushed(self, one: Flushed) -> None:
        self._members[one.member].log.synced_index = one.index

    # --- terms, votes and leaders --------------------------------------------------------------------------

    def _saved(self, one: Saved) -> None:
        member = self._members[one.member]
        term, voted_for, _ = member.saved
        if one.term < term:
            self._wrong("term fell", f"{one.member} saves term {one.term} after {term}")
        if one.term == term and voted_for is not None and one.voted_for != voted_for:
            self._wrong("vote changed", f"{one.member} in term {term}: {voted_for}, then {one.voted_for}")
        member.saved = (one.term, one.voted_for, one.joined)
        if one.joined:
            member.before_replacement = None

    def _spoke(self, one: Spoke) -> None:
        member = self._members[one.member]
        if one.term < member.spoken_term:
            self._wrong("term fell", f"{one.member} speaks in term {one.term} after {member.spoken_term}")
        if one.term > member.saved[0]:
            self._wrong("term not saved", f"{one.member} speaks in {one.term}, on disk is {member.saved[0]}")
        member.spoken_term = max(member.spoken_term, one.term)

    def _granted(self, one: Granted) -> None:
        term, voted_for, joined = self._members[one.member].saved
        if (term, voted_for) != (one.term, one.candidate):
            self._wrong("vote not saved", f"{one}, on disk is term {term}, vote {voted_for}")
        if not joined:
            self._wrong("vote of a newcomer", str(one))
        self._vote(one.member, one.term, one.candidate)

    def _vote(self, name: MemberId, term: int, candidate: MemberId) -> None:
        first = self._votes.setdefault((name, term), candidate)
        if first != candidate:
            self._wrong("two votes", f"{name} in term {term}: {first} and {candidate}")

    def _role_taken(self, one: RoleTaken) -> None:
        member = self._members[one.member]
        member.role = one.role
        if one.role is not Role.LEADER:
            return
        if self._leaders.setdefault(one.term, one.member) != one.member:
            self._wrong("two leaders", f"{self._leaders[one.term]} and {one.member} in term {one.term}")
        if not member.saved[2]:
            self._wrong("newcomer leads", str(one))
        self._vote(one.member, one.term, one.member)
        for index, (entry, term) in self._committed.items():
            if term < one.term and not member.log.has(entry):
                self._wrong(
                    "leader lacks a committed entry", f"{one.member}, term {one.term}: {index}@{entry.term}"
                )
                break
        self._leader_logs[one.term] = member.log.copy()

    def _alone(self, one: Alone) -> None:
        self._wrong("leader without a majority", str(one))

    # --- commits and answers -------------------------------------------------------------------------------

    def _commit(self, one: Committed) -> None:
        member = self._members[one.member]
        first, member.committed_index = member.committed_index + 1, one.index
        if one.index < first - 1:
            self._wrong("commit index fell", f"{one.member} from {first - 1} to {one.index}")
            return
        if one.index > member.log.end_index:
            self._wrong("commit beyond the log", f"{one.member}: {one.index} > {member.log.end_index}")
            return
        if one.leads:
            self._judge_leaders_commit(one, member)
        for index in range(max(first, member.log.begin_index), one.index + 1):
            self._judge_committed(one, member.log.entry(index))

    def _judge_leaders_commit(self, one: Committed, member: _Member) -> None:
        entry = member.log.entry(one.index)
        if entry.term != one.term:
            self._wrong(
                "commit of an earlier term", f"{one.member} in term {one.term}: {one.index}@{entry.term}"
            )
        holders = sum(other.holds_safely(entry, self._is_synced) for other in self._members.values())
        if holders < self._quorum:
            self._wrong("commit without a majority", f"{one.index}@{entry.term} is safe at {holders}")

    def _judge_committed(self, one: Committed, entry: PushedEntry) -> None:
        known = self._committed.get(entry.index)
        if known is not None:
            if known[0] != entry:
                self._wrong(
                    "two committed entries",
                    f"{one.member} has {entry.body}@{entry.term} at {entry.index}, "
                    f"elsewhere it is {known[0].body}@{known[0].term}",
                )
            return
        self._committed[entry.index] = (entry, one.term)
        for term, log in self._leader_logs.items():
            if term > one.term and not log.has(entry):
                self._wrong(
                    "leader lacks a committed entry",
                    f"{self._leaders[term]}, term {term}: {entry.index}@{entry.term} of term {one.term}",
                )

    def _accepted(self, one: Accepted) -> None:
        self._members[one.member].appends[one.name] = one

    def _outcome(self, one: Outcome) -> None:
        append = self._members[one.member].appends.pop(one.name, None)
        if append is None or one.name in self._answered:
            self._wrong("append answered twice", f"{one.name} at {one.member}: {one.outcome}")
            return
        self._answered.add(one.name)
        if one.outcome is AppendOutcome.COMMITTED:
            committed = self._committed.get(append.index)
            if committed is None or committed[0].body != one.name:
                self._wrong("acknowledged, not committed", f"{one.name} at {append.index}@{append.term}")

    def _deadlines_passed(self, one: DeadlinesPassed) -> None:
        for append in self._members[one.member].appends.values():
            if append.deadline <= one.until:
                self._wrong("append not answered", f"{append.name} at {one.member}, at its deadline")

    def _requested(self, one: Requested) -> None:
        self._members[one.member].requests[one.request_id] = one

    def _responded(self, one: Responded) -> None:
        request = self._members[one.member].requests.pop(one.request_id, None)
        if request is None:
            self._wrong("request answered twice", str(one))
        elif one.at > request.at + MAX_ANSWER_MS + MAX_LATE_MS:
            self._wrong("request not answered", f"in time: {request}")

    def _stuck(self, one: Stuck) -> None:
        self._wrong("no progress", one.what)

    def _note(self, one: Note) -> None:
        """Nothing to judge."""


_RULES: dict[type, Callable[[_Check, Any], None]] = {
    Accepted: _Check._accepted,
    Alone: _Check._alone,
    Committed: _Check._commit,
    DeadlinesPassed: _Check._deadlines_passed,
    Ended: _Check._ended,
    Expired: _Check._expired,
    Flushed: _Check._flushed,
    Granted: _Check._granted,
    Note: _Check._note,
    Outcome: _Check._outcome,
    Requested: _Check._requested,
    Responded: _Check._responded,
    RoleTaken: _Check._role_taken,
    Saved: _Check._saved,
    Spoke: _Check._spoke,
    Started: _Check._started,
    Stopped: _Check._stopped,
    Stuck: _Check._stuck,
    Truncated: _Check._truncated,
    Wrote: _Check._wrote,
}


def check(history: History) -> list[Anomaly]:
    """Returns all that is wrong in a history."""
    judge = _Check(history)
    for one in history.occurrences:
        judge.take(one)
    return judge.found
