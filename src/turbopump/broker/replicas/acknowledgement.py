"""The rule of a SYNC_MASTER: a message is answered when enough slaves have it, or with the reason why not.

In: the rule for this broker's own copy, and how far slaves have copied the log (`replication/copies.py`).
Out: a `Safety` that names the copies. As in 4.9.7: without a slave within reach the answer is
SLAVE_NOT_AVAILABLE at once, and FLUSH_SLAVE_TIMEOUT when no slave has the message in time. Each send has its
own deadline.
"""

import asyncio
import logging
from collections.abc import Callable

from turbopump.broker.acknowledgement import Acknowledgement, Safety, Syncs, choose
from turbopump.broker.config import BrokerConfig, ReplicationRules
from turbopump.broker.storage import Storage
from turbopump.protocol.codes import ResponseCode
from turbopump.replication.copies import Copied, Copies, CopyCount
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

MIN_COPIES = 2  # of a SYNC_MASTER: with inSyncReplicas=1 Apache 5.x answers OK without any slave


class ReplicaAcknowledgement(Acknowledgement):
    """SYNC_MASTER: a message is answered when this broker's own rule is met and enough slaves have it."""

    immediate = None

    def __init__(
        self,
        syncs: Syncs,
        own: Acknowledgement,
        copies: Copies,
        rules: ReplicationRules,
        clock: Clock,
        end: Callable[[], int],
    ) -> None:
        super().__init__(syncs)
        self._own = own
        self._copies = copies
        self._clock = clock
        self._end = end
        self._timer: asyncio.TimerHandle | None = None
        self._is_in_reach = True  # as it was logged last
        self._last_deadline = 0.0  # of the send that was stored last
        self._safeties: dict[tuple[Safety, CopyCount, ResponseCode], Safety] = {}
        self._last: tuple[CopyCount | None, Safety] = (
            None,
            own.unawaited,
        )  # of sends that one report answers
        self.unawaited = own.immediate or own.unawaited
        self.configure(rules)

    def configure(self, rules: ReplicationRules) -> None:
        """Applies settings that can change while the broker runs."""
        self._rules = rules
        self._timeout_s = rules.timeout_ms / 1000
        needed = max(rules.in_sync, MIN_COPIES)
        self._fixed_needed = None if rules.auto_in_sync else needed
        self._last = None, self._own.unawaited
        if self._own.immediate is not None:
            copied = CopyCount(needed, 0, True)
            self.expected = self._safety(self._own.immediate, copied, ResponseCode.SUCCESS)
        self.promise = (
            f"{needed} brokers have the message, or the answer says that they do not. Of this broker's own "
            f"copy: {self._own.promise}"
        )

    @property
    def needed(self) -> int:
        """How many brokers must have a message now, this one included."""
        if self._fixed_needed is not None:
            return self._fixed_needed
        rules = self._rules
        return max(rules.min_in_sync, min(max(rules.in_sync, MIN_COPIES), self.in_sync))

    @property
    def min_in_sync(self) -> int:
        """How many brokers must be in sync for a send to be accepted, this one included."""
        return self._rules.min_in_sync

    @property
    def in_sync(self) -> int:
        """How many brokers are in sync: this one, and the slaves that are not too far behind."""
        return 1 + self._copies.within(self._end(), self._rules.max_gap_bytes)

    def when_safe(self, end: int, done: Callable[[Safety], None]) -> None:
        own = self._own.immediate
        if own is not None:
            if self._is_reachable(end):
                self._wait(end, lambda count: done(self._copied_safety(own, count)))
            else:
                count = self._copies.count(end, self.needed)
                done(self._safety(own, count, ResponseCode.SLAVE_NOT_AVAILABLE))
            return
        # Both are waited for at the same time; whichever comes last gives the answer.
        first: list[Safety | tuple[CopyCount, ResponseCode]] = []

        def own_known(safety: Safety) -> None:
            if not first:
                first.append(safety)
            elif isinstance(first[0], tuple):
                done(self._safety(safety, *first[0]))

        def copies_known(count: CopyCount, code: ResponseCode) -> None:
            if not first:
                first.append((count, code))
            elif isinstance(first[0], Safety):
                done(self._safety(first[0], count, code))

        self._own.when_safe(end, own_known)
        self._when_copied(end, copies_known)

    def _when_copied(self, end: int, done: Callable[[CopyCount, ResponseCode], None]) -> None:
        """Calls `done` once: when enough slaves have the log to `end`, at a timeout, at once if none is near.

        It gets the number of copies and the code of the answer.
        """
        if self._is_reachable(end):
            self._wait(end, lambda count: done(count, _code_of(count)))
        else:
            done(self._copies.count(end, self.needed), ResponseCode.SLAVE_NOT_AVAILABLE)

    def _is_reachable(self, end: int) -> bool:
        """Returns whether a slave is near enough to `end` to be waited for; logs when that changes."""
        is_in_reach = self._copies.reaches(end, self._rules.max_gap_bytes) or self.needed <= 1
        if is_in_reach is not self._is_in_reach:
            self._log_reach(is_in_reach)
        return is_in_reach

    def _wait(self, end: int, copied: Copied) -> None:
        deadline = self._clock.monotonic() + self._timeout_s
        self._copies.wait(end, self.needed, deadline, copied)
        if deadline < self._last_deadline:
            self._watch_again()
        elif self._timer is None:
            self._watch()
        self._last_deadline = deadline

    def _log_reach(self, is_in_reach: bool) -> None:
        self._is_in_reach = is_in_reach
        if is_in_reach:
            log.info("Slaves are in reach again: sends wait for their copies")
        else:
            why = "all are too far behind" if self._copies.slaves else "none is connected"
            log.warning("No slave is in reach (%s): sends are answered SLAVE_NOT_AVAILABLE", why)

    async def disk_code(self, end: int) -> ResponseCode:
        """Waits until records below `end` are on this disk and at enough slaves; returns OK, or what failed.

        Without a slave within reach this broker's disk is enough, as for a send.
        """
        own = await self._own.disk_code(end)
        if own is not ResponseCode.SUCCESS:
            return own
        outcome: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()

        def done(count: CopyCount, code: ResponseCode) -> None:
            if not outcome.done():  # the waiter may have been cancelled
                outcome.set_result(code)

        self._when_copied(end, done)
        is_late = await outcome is ResponseCode.FLUSH_SLAVE_TIMEOUT
        return ResponseCode.FLUSH_SLAVE_TIMEOUT if is_late else ResponseCode.SUCCESS

    @property
    def unsafe_bytes(self) -> int:
        return self._own.unsafe_bytes

    def _watch(self) -> None:
        """Starts the timer that answers waiting sends at the first deadline, unless it runs already."""
        if self._timer is None and (deadline := self._copies.next_deadline) is not None:
            wait_s = max(0.0, deadline - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)

    def _watch_again(self) -> None:
        """Restarts the timer for the first deadline, which a shortened timeout has made earlier."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watch()

    def _expire(self) -> None:
        self._timer = None
        self._copies.expire(self._clock.monotonic())
        self._watch()

    def _copied_safety(self, own: Safety, count: CopyCount) -> Safety:
        """Returns the `Safety` of a send that was waited for; sends of one report share the count."""
        last, safety = self._last
        if count is not last:
            safety = self._safety(own, count, _code_of(count))
            self._last = count, safety
        return safety

    def _safety(self, own: Safety, copies: CopyCount, code: ResponseCode) -> Safety:
        """Returns the `Safety` of this combination, always the same object: answers are cached by it."""
        key = own, copies, code
        known = self._safeties.get(key)
        if known is None:
            on_disk = copies.on_disk + (own.durability == "disk")
            code = own.code if own.code is not ResponseCode.SUCCESS else code
            is_safe = own.is_safe and code is not ResponseCode.FLUSH_SLAVE_TIMEOUT
            known = Safety(own.durability, copies.in_memory, on_disk, code, is_safe)
            self._safeties[key] = known
        return known


def _code_of(count: CopyCount) -> ResponseCode:
    return ResponseCode.SUCCESS if count.is_enough else ResponseCode.FLUSH_SLAVE_TIMEOUT


def acknowledgement_of(config: BrokerConfig, store: Storage, copies: Copies, clock: Clock) -> Acknowledgement:
    """Returns the acknowledgement rule that flushDiskType and brokerRole ask for."""
    own = choose(config.store, store.flusher)
    if config.identity.role != "SYNC_MASTER":
        return own
    return ReplicaAcknowledgement(
        store.flusher, own, copies, config.replication, clock, lambda: store.log.end
    )
