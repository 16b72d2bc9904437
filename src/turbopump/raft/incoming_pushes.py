"""What a follower does with the pushes of its leader.

`verified_index` is how far this leader has shown, in this term and since this node follows it, that the two
logs are equal. Everything follows from it: entries are taken behind it, the commit index never passes it, and
an entry above it is cut off only when an entry of the leader stands in its place. A TRUNCATE of an entry that
is held therefore removes nothing by itself: one that comes late cannot take away what was acknowledged since.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from turbopump.raft.effects import AppendEntries, Truncate
from turbopump.raft.events import RequestId
from turbopump.raft.member import RaftMember
from turbopump.raft.messages import NO_INDEX, Push, PushAnswer, PushedEntry, PushKind, RaftCode


@dataclass(frozen=True, slots=True)
class _WaitingPush:
    """A push that is not answered yet."""

    request_id: RequestId
    push: Push
    since_ms: int

    @property
    def last_index(self) -> int:
        return self.push.entries[-1].index

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.push.entries)


class IncomingPushes:
    """The pushes of one leader in one term."""

    def __init__(self, member: RaftMember) -> None:
        self._member = member
        self.verified_index: int | None = None
        """None: nothing was compared yet."""
        self._early: dict[int, _WaitingPush] = {}  # by first index: entries before them are missing
        self._early_bytes = 0
        self._unsynced: deque[_WaitingPush] = deque()  # taken, and answered when they are safe

    def received(self, request_id: RequestId, push: Push) -> None:
        """Takes in a push of the leader; it is answered now or later."""
        waiting = _WaitingPush(request_id, push, self._member.now_ms)
        if not _is_complete(push):
            self._answer(waiting, RaftCode.UNEXPECTED_ARGUMENT)
        elif push.kind is PushKind.APPEND:
            self._append(waiting)
        elif push.kind is PushKind.COMMIT:
            self._committed(waiting)
        else:
            self._refuse_early()  # they belong to what was compared before
            compare_or_truncate = self._compare if push.kind is PushKind.COMPARE else self._truncate
            compare_or_truncate(waiting, push.entries[0])

    def synced(self) -> None:
        """Answers the pushes whose entries are safe now."""
        while self._unsynced and self._unsynced[0].last_index <= self._member.log.synced_index:
            self._answer(self._unsynced.popleft(), RaftCode.SUCCESS)

    def tick(self) -> None:
        """Refuses the pushes that have waited too long for the entries before them."""
        deadline = self.deadline_ms
        if deadline is not None and self._member.now_ms >= deadline:
            self._refuse_early()

    @property
    def deadline_ms(self) -> int | None:
        """When the oldest push has waited long enough for the entries before it."""
        if not self._early:
            return None
        oldest = next(iter(self._early.values()))  # kept in the order in which they came
        return oldest.since_ms + self._member.config.gap_wait_ms

    def stop(self) -> None:
        """Answers everything that still waits: this node does not follow any longer."""
        for waiting in (*self._early.values(), *self._unsynced):
            self._answer(waiting, RaftCode.NOT_FOLLOWER)
        self._early.clear()
        self._unsynced.clear()

    # kinds of pushes

    def _compare(self, waiting: _WaitingPush, entry: PushedEntry) -> None:
        if not self._member.log.holds(entry):
            self._answer(waiting, RaftCode.INCONSISTENT_STATE)
            return
        self._verified(entry.index, waiting.push)
        self._answer_when_synced(waiting)

    def _truncate(self, waiting: _WaitingPush, entry: PushedEntry) -> None:
        log, committed = self._member.log, self._member.committed_index
        if log.holds(entry):
            self._verified(entry.index, waiting.push)
            self._answer_when_synced(waiting)
        elif entry.index <= committed and log.begin_index <= committed:
            # What is committed is never dropped, whatever a leader says.
            self._answer(waiting, RaftCode.INCONSISTENT_STATE)
        else:
            self._member.effects.append(Truncate(entry.index - 1, entry))
            self.verified_index = entry.index
            self._unsynced.append(waiting)
            self._commit(waiting.push)

    def _committed(self, waiting: _WaitingPush) -> None:
        if self.verified_index is None:
            self._answer(waiting, RaftCode.INCONSISTENT_STATE)
            return
        self._commit(waiting.push)
        self._answer(waiting, RaftCode.SUCCESS)

    def _append(self, waiting: _WaitingPush) -> None:
        first = waiting.push.entries[0].index
        if self.verified_index is None:
            self._answer(waiting, RaftCode.INCONSISTENT_STATE)
        elif first > self.verified_index + 1:
            self._keep_early(waiting, first)
        elif waiting.last_index <= self.verified_index:
            self._commit(waiting.push)
            self._answer_when_synced(waiting)
        else:
            self._take([waiting, *self._following(waiting.last_index)])

    def _take(self, pushes: list[_WaitingPush]) -> None:
        """Takes pushes whose entries follow one another behind what is verified."""
        assert self.verified_index is not None
        log = self._member.log
        entries = [entry for waiting in pushes for entry in waiting.push.entries]
        new = [entry for entry in entries if entry.index > self.verified_index]
        held = 0
        while held < len(new) and log.holds(new[held]):
            held += 1
        if new := new[held:]:
            if new[0].index <= self._member.committed_index:
                for waiting in pushes:
                    self._answer(waiting, RaftCode.INCONSISTENT_STATE)
                return
            if new[0].index <= log.end_index:
                self._member.effects.append(Truncate(new[0].index - 1))
            self._member.effects.append(AppendEntries(tuple(new)))
        self.verified_index = entries[-1].index
        for waiting in pushes:
            self._commit(waiting.push)
            # The view of the log is that of before this step: new entries are reported by `Synced`.
            if new and waiting.last_index >= new[0].index:
                self._unsynced.append(waiting)
            else:
                self._answer_when_synced(waiting)

    # pushes that came before their time

    def _keep_early(self, waiting: _WaitingPush, first: int) -> None:
        config = self._member.config
        if first in self._early:
            self._answer(waiting, RaftCode.REPEATED_PUSH)
        elif (
            len(self._early) >= config.max_early_pushes
            or self._early_bytes + waiting.size > config.max_early_bytes
        ):
            self._answer(waiting, RaftCode.INCONSISTENT_STATE)
        else:
            self._early[first] = waiting
            self._early_bytes += waiting.size

    def _following(self, last: int) -> Iterator[_WaitingPush]:
        """Removes and returns the early pushes that continue behind `last`."""
        while (waiting := self._early.pop(last + 1, None)) is not None:
            self._early_bytes -= waiting.size
            last = waiting.last_index
            yield waiting

    def _refuse_early(self) -> None:
        for waiting in self._early.values():
            self._answer(waiting, RaftCode.INCONSISTENT_STATE)
        self._early.clear()
        self._early_bytes = 0

    # results

    def _verified(self, index: int, push: Push) -> None:
        self.verified_index = index if self.verified_index is None else max(self.verified_index, index)
        self._commit(push)

    def _commit(self, push: Push) -> None:
        """Moves the commit index as far as the leader's, and not beyond what it has verified."""
        assert self.verified_index is not None
        index = min(push.commit_index, self.verified_index)
        # A log that was begun again may be replaced once more while none of its entries is committed.
        if index >= self._begin_index():
            self._member.commit(index)

    def _begin_index(self) -> int:
        """Where the log begins once the effects of this step are performed."""
        for effect in reversed(self._member.effects):
            if isinstance(effect, Truncate) and effect.replacement is not None:
                return effect.replacement.index
        return self._member.log.begin_index

    def _answer_when_synced(self, waiting: _WaitingPush) -> None:
        if waiting.last_index <= self._member.log.synced_index:
            self._answer(waiting, RaftCode.SUCCESS)
        else:
            self._unsynced.append(waiting)

    def _answer(self, waiting: _WaitingPush, code: RaftCode) -> None:
        self._member.respond(
            waiting.request_id, answer_to(self._member, waiting.push, code, self.verified_index)
        )


def answer_to(
    member: RaftMember, push: Push, code: RaftCode, verified_index: int | None = None
) -> PushAnswer:
    """Returns the answer to a push, with the present bounds of the log."""
    end_index = member.log.end_index
    if push.kind is PushKind.TRUNCATE and code is RaftCode.SUCCESS and verified_index is not None:
        end_index = min(end_index, verified_index)
    first = push.entries[0].index if push.entries else NO_INDEX
    return PushAnswer(code, push.term, first, len(push.entries), member.log.begin_index, end_index)


def _is_complete(push: Push) -> bool:
    """Whether a push has the entries that its kind needs, one behind the other."""
    if push.kind is PushKind.COMMIT:
        return True
    if push.kind is not PushKind.APPEND:
        return len(push.entries) == 1
    first = push.entries[0].index if push.entries else NO_INDEX
    return bool(push.entries) and all(entry.index == first + n for n, entry in enumerate(push.entries))
