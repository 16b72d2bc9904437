"""How far one follower's log is equal to the leader's, and what is pushed to it next.

Three stages, as in DLedger. COMPARE looks for the last entry that both logs hold, from the leader's end
downwards. TRUNCATE tells the follower to continue behind that entry, or, when there is none, to begin its log
with the leader's first entry. APPEND pushes entries without waiting for answers, within bounds. A refusal
leads back to COMPARE. Each comparison is a new `attempt`; answers to an earlier one are ignored.
"""

from collections import deque
from dataclasses import dataclass

from msgspec.structs import replace

from turbopump.raft.member import RaftMember
from turbopump.raft.messages import NO_INDEX, MemberId, PushAnswer, PushKind, PushOrder, RaftCode
from turbopump.raft.push_quota import PushQuota


@dataclass(slots=True)
class _Outstanding:
    """A push that was not answered yet."""

    order: PushOrder
    sent_ms: int
    size: int


class FollowerProgress:
    """The leader's view of one follower."""

    def __init__(self, member: RaftMember, peer: MemberId, first_own_index: int, takes_batches: bool) -> None:
        self._member = member
        self._peer = peer
        self._first_own_index = first_own_index
        self.takes_batches = takes_batches
        self.stage = PushKind.COMPARE
        self.match_index = NO_INDEX
        """The follower has said that it holds everything up to here, safely."""
        self._attempt = 0
        self._probe_index: int | None = None  # of COMPARE or TRUNCATE; None: the end of the log
        self._next_index = NO_INDEX
        self._outstanding: deque[_Outstanding] = deque()
        self._outstanding_bytes = 0
        self._paused_until_ms = member.now_ms
        self._pushed_ms = member.now_ms
        self._quota = PushQuota(member.config.far_behind_bytes, member.config.far_behind_bytes_per_s)
        self._throttled_until_ms: int | None = None  # as the last attempt to push entries has found

    # what to do

    def advance(self) -> None:
        """Pushes what can be pushed now."""
        if self._member.now_ms < self._paused_until_ms or self._member.log.end_index == NO_INDEX:
            return
        if self.stage is PushKind.APPEND:
            self._push_entries()
        elif not self._outstanding:
            self._probe()

    def tick(self) -> None:
        """Repeats a push that was not answered in time, and tells an idle follower the commit index."""
        config, now_ms = self._member.config, self._member.now_ms
        if now_ms < self._paused_until_ms:
            return
        if self._outstanding and now_ms >= self._outstanding[0].sent_ms + config.push_timeout_ms:
            self._repeat(self._outstanding[0])
        self.advance()
        if self._is_idle and now_ms >= self._pushed_ms + config.commit_push_ms:
            self._send(PushOrder(PushKind.COMMIT, self._member.term, NO_INDEX, NO_INDEX, NO_INDEX))

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` has something to do; None: not before something happens."""
        config = self._member.config
        if self._paused_until_ms > self._member.now_ms:
            return self._paused_until_ms
        deadlines: list[int] = []
        if self._throttled_until_ms is not None:
            deadlines.append(self._throttled_until_ms)
        if self._outstanding:
            deadlines.append(self._outstanding[0].sent_ms + config.push_timeout_ms)
        elif self._is_idle:
            deadlines.append(self._pushed_ms + config.commit_push_ms)
        return min(deadlines, default=None)

    def unreachable(self) -> None:
        """Waits a while, then continues behind what was acknowledged."""
        self._forget_outstanding()
        self._next_index = self.match_index + 1
        self._pause()

    # answers

    def answered(self, order: PushOrder, answer: PushAnswer) -> None:
        """Takes in the answer to a push of this term."""
        if order.attempt != self._attempt:
            return
        if answer.code is RaftCode.NOT_FOLLOWER:
            self._not_follower()
        elif order.kind is PushKind.COMMIT:
            if answer.code is RaftCode.INCONSISTENT_STATE:
                self._compare_again()
        elif order.kind is not self.stage:
            return
        elif order.kind is PushKind.APPEND:
            self._append_answered(order, answer)
        elif answer.code is RaftCode.SUCCESS:
            self._found(order, answer)
        elif order.kind is PushKind.COMPARE and answer.code is RaftCode.INCONSISTENT_STATE:
            self._look_lower(order.first_index, answer)
        else:
            # Refused for a reason that the next comparison may show; not at once, it would not end.
            self._compare_again()
            self._pause()
        self.advance()

    def _append_answered(self, order: PushOrder, answer: PushAnswer) -> None:
        if answer.code is RaftCode.SUCCESS:
            self.match_index = max(self.match_index, order.last_index)
            while self._outstanding and self._outstanding[0].order.last_index <= order.last_index:
                self._outstanding_bytes -= self._outstanding.popleft().size
        elif answer.code is RaftCode.INCONSISTENT_STATE:
            self._compare_again()

    def _found(self, order: PushOrder, answer: PushAnswer) -> None:
        """Continues behind an entry that both logs hold."""
        self._forget_outstanding()
        self.match_index = order.first_index
        if order.kind is PushKind.COMPARE and answer.end_index > order.first_index:
            self.stage, self._probe_index = PushKind.TRUNCATE, order.first_index
        else:
            self.stage, self._next_index = PushKind.APPEND, order.first_index + 1

    def _look_lower(self, compared: int, answer: PushAnswer) -> None:
        """Chooses the next entry to compare, or finds that the logs have none in common."""
        self._forget_outstanding()
        # A follower that has less than it acknowledged has lost it.
        self.match_index = min(self.match_index, answer.end_index)
        begin = self._member.log.begin_index
        if compared > answer.end_index:
            lower = answer.end_index
        elif compared >= self._first_own_index:
            # The entry in its place is of an earlier term, and so are all before it.
            lower = self._first_own_index - 1
        else:
            lower = compared - 1
        if lower < max(begin, answer.begin_index) or answer.begin_index == NO_INDEX:
            self.stage, self._probe_index = PushKind.TRUNCATE, begin
        else:
            self._probe_index = lower

    def _not_follower(self) -> None:
        """Waits for a member that does not follow yet; it compares what it compared before."""
        if self.stage is PushKind.COMPARE:
            self._forget_outstanding()
        else:
            self._compare_again()
        self._pause()

    def _compare_again(self) -> None:
        self._forget_outstanding()
        self.stage, self._probe_index = PushKind.COMPARE, None

    # pushes

    def _probe(self) -> None:
        log = self._member.log
        index = log.end_index if self._probe_index is None else self._probe_index
        if not log.begin_index <= index <= log.end_index:
            # Old entries were deleted meanwhile.
            index = log.begin_index if self.stage is PushKind.TRUNCATE else log.end_index
        self._push(self.stage, index, index)

    def _push_entries(self) -> None:
        config, log = self._member.config, self._member.log
        if self._next_index < log.begin_index:
            self._compare_again()
            self._probe()
            return
        most = config.max_outstanding_batches if self.takes_batches else config.max_outstanding_pushes
        self._throttled_until_ms = None
        while (
            self._next_index <= log.end_index
            and len(self._outstanding) < most
            and (not self._outstanding or self._outstanding_bytes < config.max_outstanding_bytes)
        ):
            behind = log.size_of(self._next_index, log.end_index)
            self._throttled_until_ms = self._quota.waits_until_ms(self._member.now_ms, behind)
            if self._throttled_until_ms is not None:
                return
            last = self._last_of_batch() if self.takes_batches else self._next_index
            self._push(PushKind.APPEND, self._next_index, last)
            self._next_index = last + 1

    def _last_of_batch(self) -> int:
        config, first = self._member.config, self._next_index
        last = min(self._member.log.end_index, first + config.max_batch_entries - 1)
        while last > first and self._member.log.size_of(first, last) > config.max_batch_bytes:
            last = first + (last - first) // 2
        return last

    def _push(self, kind: PushKind, first: int, last: int) -> None:
        size = self._member.log.size_of(first, last)
        order = self._send(PushOrder(kind, self._member.term, first, last, NO_INDEX))
        self._outstanding.append(_Outstanding(order, self._member.now_ms, size))
        self._outstanding_bytes += size
        self._quota.pushed(self._member.now_ms, size)

    def _repeat(self, outstanding: _Outstanding) -> None:
        if outstanding.order.first_index < self._member.log.begin_index:
            self._compare_again()
            return
        outstanding.sent_ms = self._member.now_ms
        self._send(outstanding.order)

    def _send(self, order: PushOrder) -> PushOrder:
        order = replace(order, commit_index=self._member.committed_index, attempt=self._attempt)
        self._pushed_ms = self._member.now_ms
        self._member.send(self._peer, order)
        return order

    @property
    def _is_idle(self) -> bool:
        return self.stage is PushKind.APPEND and not self._outstanding

    def _forget_outstanding(self) -> None:
        self._outstanding.clear()
        self._outstanding_bytes = 0
        self._throttled_until_ms = None
        self._attempt += 1

    def _pause(self) -> None:
        self._paused_until_ms = self._member.now_ms + self._member.config.not_follower_wait_ms
