"""The patches of planted errors: each makes the node, or the disk below it, do what must not happen."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from msgspec import structs
from tests.simulation.raft.disk import MemberDisk, SimulatedLog

from turbopump.raft import AppendEntries, Commit, Save, Truncate, votes
from turbopump.raft import candidate as candidate_module
from turbopump.raft import node as node_module
from turbopump.raft.config import SavedState
from turbopump.raft.incoming_pushes import IncomingPushes
from turbopump.raft.leader import Leader
from turbopump.raft.member import RaftMember as NodeState
from turbopump.raft.messages import RaftCode, VoteResult
from turbopump.raft.node import Node
from turbopump.raft.pending_appends import PendingAppends
from turbopump.raft.progress import FollowerProgress

Plant = Callable[[], contextlib.AbstractContextManager[Any]]


def replaced(owner: object, name: str, by: Any) -> Plant:
    return lambda: mock.patch.object(owner, name, by)


@contextlib.contextmanager
def changed_effects(change: Callable[[Node, list[Any]], list[Any]]) -> Iterator[None]:
    step = Node.step

    def other(self: Node, now_ms: int, event: Any) -> list[Any]:
        return change(self, step(self, now_ms, event))

    with mock.patch.object(Node, "step", other):
        yield


# --- votes and terms ---


def answer_before_saving(node: Node, effects: list[Any]) -> list[Any]:
    """Puts answers before the write of term and vote."""
    return sorted(effects, key=lambda effect: isinstance(effect, Save))


def save_without_vote(node: Node, effects: list[Any]) -> list[Any]:
    return [structs.replace(one, voted_for=None) if isinstance(one, Save) else one for one in effects]


def save_nothing(node: Node, effects: list[Any]) -> list[Any]:
    return [one for one in effects if not isinstance(one, Save)]


@contextlib.contextmanager
def decide_otherwise(change: Callable[[NodeState, Any, VoteResult], VoteResult]) -> Iterator[None]:
    decide = votes.decide

    def other(member: NodeState, candidate: str, request: Any) -> VoteResult:
        return change(member, request, decide(member, candidate, request))

    with (
        mock.patch.object(votes, "decide", other),
        mock.patch.object(node_module.votes, "decide", other),
        mock.patch.object(candidate_module.votes, "decide", other),
    ):
        yield


def vote_again(member: NodeState, request: Any, result: VoteResult) -> VoteResult:
    refused = result in (VoteResult.REJECT_ALREADY_VOTED, VoteResult.REJECT_ALREADY_HAS_LEADER)
    return VoteResult.ACCEPT if refused and member.joined and request.term == member.term else result


def answer_as_a_voter(member: NodeState, request: Any, result: VoteResult) -> VoteResult:
    return VoteResult.REJECT_ALREADY_VOTED if result is VoteResult.UNKNOWN else result


def ignore_logs() -> contextlib.AbstractContextManager[Any]:
    """Compares no logs before a vote."""
    return mock.patch.object(votes, "_shorter_log", return_value=None)


@contextlib.contextmanager
def forget_that_it_is_new() -> Iterator[None]:
    """Lets a node on an empty disk vote at once, as if nothing could have been lost."""
    state = MemberDisk.start_state

    def joined(self: MemberDisk) -> SavedState:
        return replace(state(self), joined=True)

    with mock.patch.object(MemberDisk, "start_state", joined):
        yield


@contextlib.contextmanager
def lead_again_in_a_term() -> Iterator[None]:
    """Lets a node that was started again be elected in the term in which it led before."""
    init = NodeState.__init__

    def other(self: NodeState, *args: Any) -> None:
        init(self, *args)
        self.term_of_earlier_life = None

    with mock.patch.object(NodeState, "__init__", other):
        yield


# --- commits ---


def commit_any_term(self: Leader) -> None:
    """Counts replicas of entries of earlier terms: Raft's figure 8."""
    held = [follower.match_index for follower in self.followers.values()]
    held = sorted([*held, self._member.log.synced_index], reverse=True)
    self._member.commit(held[self._member.config.quorum - 1])


def commit_unsynced(self: Leader) -> None:
    """Counts the own log up to its end, flushed or not."""
    held = [follower.match_index for follower in self.followers.values()]
    held = sorted([*held, self._member.log.end_index], reverse=True)
    index = held[self._member.config.quorum - 1]
    if index >= self._first_own_index:
        self._member.commit(index)


def commit_unverified(self: IncomingPushes, push: Any) -> None:
    """Believes the leader's commit index up to the end of the own log, which was not compared so far."""
    self._member.commit(min(push.commit_index, self._member.log.end_index))


def commit_all_that_leader_says(self: IncomingPushes, push: Any) -> None:
    self._member.commit(push.commit_index)


@contextlib.contextmanager
def keep_commits_beyond_the_log() -> Iterator[None]:
    """Takes the noted commit index as it is, also where the log is shorter."""
    init = NodeState.__init__

    def other(self: NodeState, config: Any, saved: SavedState, *rest: Any) -> None:
        init(self, config, saved, *rest)
        self.committed_index = saved.committed_index

    with mock.patch.object(NodeState, "__init__", other):
        yield


def commit_as_told(self: NodeState, index: int) -> None:
    """Follows a leader's commit index downwards too."""
    if index != self.committed_index:
        self.committed_index = index
        self.effects.append(Commit(index))


@contextlib.contextmanager
def never_lower_acknowledged_index() -> Iterator[None]:
    """Counts what a follower once acknowledged, in whichever term, and whatever it lost since."""
    init, append_answered, found = (
        FollowerProgress.__init__,
        FollowerProgress._append_answered,
        FollowerProgress._found,
    )
    highest: dict[tuple[int, str], int] = {}

    def begin(self: FollowerProgress, member: Any, peer: str, *rest: Any) -> None:
        init(self, member, peer, *rest)
        self.match_index = highest.get((id(member), peer), -1)

    def note(self: FollowerProgress, *args: Any, original: Any) -> None:
        before = self.match_index
        original(self, *args)
        self.match_index = max(before, self.match_index)
        highest[(id(self._member), self._peer)] = self.match_index

    with (
        mock.patch.object(FollowerProgress, "__init__", begin),
        mock.patch.object(
            FollowerProgress,
            "_append_answered",
            lambda self, *args: note(self, *args, original=append_answered),
        ),
        mock.patch.object(FollowerProgress, "_found", lambda self, *args: note(self, *args, original=found)),
    ):
        yield


# --- logs ---


def answer_before_sync(self: IncomingPushes, waiting: Any) -> None:
    self._answer(waiting, RaftCode.SUCCESS)


@contextlib.contextmanager
def acknowledge_unsynced() -> Iterator[None]:
    """Acknowledges entries that were written and not flushed."""
    take = IncomingPushes._take

    def other(self: IncomingPushes, pushes: Any) -> None:
        take(self, pushes)
        while self._unsynced:
            self._answer(self._unsynced.popleft(), RaftCode.SUCCESS)

    with (
        mock.patch.object(IncomingPushes, "_take", other),
        mock.patch.object(IncomingPushes, "_answer_when_synced", answer_before_sync),
    ):
        yield


@contextlib.contextmanager
def bring_back_what_was_cut() -> Iterator[None]:
    """Truncates in memory only: after a crash, the entries that were cut off are in the log again."""
    truncate, cut_power = SimulatedLog.truncate, MemberDisk.cut_power
    is_crash = False
    tails: dict[int, tuple[SimulatedLog, tuple[Any, ...]]] = {}

    def remember(self: SimulatedLog, after_index: int) -> None:
        tail = tuple(entry for entry in self.entries if entry.index > after_index)
        if tail and not is_crash:
            tails[id(self)] = (self, tail)
        truncate(self, after_index)

    def resurrect(self: MemberDisk, chance: Any) -> None:
        nonlocal is_crash
        is_crash = True
        cut_power(self, chance)
        is_crash = False
        _, tail = tails.pop(id(self.log), (self.log, ()))
        kept = [entry for entry in tail if entry.index > self.log.end_index]
        if kept and kept[0].index == self.log.end_index + 1:
            self.log.entries.extend(kept)

    with (
        mock.patch.object(SimulatedLog, "truncate", remember),
        mock.patch.object(MemberDisk, "cut_power", resurrect),
    ):
        yield


@contextlib.contextmanager
def obey_late_truncates() -> Iterator[None]:
    """Cuts off everything behind the entry of a TRUNCATE, as DLedger does, whenever it comes."""
    truncate = IncomingPushes._truncate

    def other(self: IncomingPushes, waiting: Any, entry: Any) -> None:
        if self._member.log.holds(entry) and self._member.log.end_index > entry.index:
            self._member.effects.append(Truncate(entry.index))
            self.verified_index = entry.index
        truncate(self, waiting, entry)

    with mock.patch.object(IncomingPushes, "_truncate", other):
        yield


@contextlib.contextmanager
def append_repeated_pushes() -> Iterator[None]:
    """Appends the entries of a push that comes a second time once more."""
    append = IncomingPushes._append

    def other(self: IncomingPushes, waiting: Any) -> None:
        if self.verified_index is not None and waiting.last_index == self.verified_index:
            self._member.effects.append(AppendEntries(waiting.push.entries))
        append(self, waiting)

    with mock.patch.object(IncomingPushes, "_append", other):
        yield


def take_without_truncating(self: IncomingPushes, pushes: Any) -> None:
    """Skips the entries whose indexes the log has, whatever stands there."""
    entries = [entry for waiting in pushes for entry in waiting.push.entries]
    if new := tuple(entry for entry in entries if entry.index > self._member.log.end_index):
        self._member.effects.append(AppendEntries(new))
    self.verified_index = entries[-1].index
    for waiting in pushes:
        self._commit(waiting.push)
        self._unsynced.append(waiting)


# --- answers and roles ---


def forget_appends(self: PendingAppends) -> None:
    """Drops the appends of a leader that steps down, without an answer."""
    self._by_index, self._by_deadline, self.waiting = [], [], 0


def nothing(*_: Any, **__: Any) -> None:
    """Replaces a function that must not be left out."""


@contextlib.contextmanager
def answer_no_early_pushes() -> Iterator[None]:
    """Forgets the pushes that waited for entries before them."""

    def forget(self: IncomingPushes) -> None:
        self._early.clear()
        self._early_bytes = 0

    with mock.patch.object(IncomingPushes, "_refuse_early", forget):
        yield
