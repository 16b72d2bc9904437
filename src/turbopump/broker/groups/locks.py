"""Queue locks: which consumer of a group may consume a queue in order (41, 42).

In: a client's request for some queues, and the time. Out: the queues that it holds now. A lock lasts a
minute; its holder renews it every 20 s. It outlives the holder's connection, because the holder may still
process what it pulled. Locks are kept in memory only, as with Apache: after a restart the first to ask gets
the queue.

`onlyThisBroker` is ignored: it matters to brokers that ask their replicas, and there are none.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from turbopump.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
    WireQueue,
)
from turbopump.protocol.codes import RequestCode
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

MAX_LOCKS = 200_000  # in total; beyond it nothing new is locked until some have expired
MAX_LOCKS_OF_GROUP = 20_000  # so that no group, and no request, uses up all locks
EXPIRED_LINES = 10  # log lines about locks taken over after they expired, per ...
EXPIRED_INTERVAL_S = 10.0
SWEEP_S = 10.0


@dataclass(slots=True)
class HeldLock:
    """Lock that one client holds on one queue until a time on the monotonic clock."""

    client_id: str
    until: float  # inclusive: at exactly this time the lock still holds


class LockTable:
    """Table of queue locks by group and queue; times are seconds of a monotonic clock."""

    def __init__(
        self, live_s: float, max_locks: int = MAX_LOCKS, max_of_group: int = MAX_LOCKS_OF_GROUP
    ) -> None:
        self._live_s = live_s
        self._max_locks = max_locks
        self._max_of_group = max_of_group
        self._count = 0
        self._groups: dict[str, dict[WireQueue, HeldLock]] = {}

    def __len__(self) -> int:
        return self._count

    def lock(
        self, group: str, client_id: str, queues: Iterable[WireQueue], now: float
    ) -> tuple[list[WireQueue], list[tuple[WireQueue, str]]]:
        """Locks or renews queues; returns those locked now, and the taken-over ones with their last holder.

        A queue is taken over after its lock expired, and comes with the client id of its former holder.
        Queues that another client holds are in neither list.
        """
        held = self._groups.setdefault(group, {})
        got: list[WireQueue] = []
        taken: list[tuple[WireQueue, str]] = []
        for queue in dict.fromkeys(queues):
            lock = held.get(queue)
            if lock is None:
                if self._count >= self._max_locks or len(held) >= self._max_of_group:
                    continue
                held[queue] = HeldLock(client_id, now + self._live_s)
                self._count += 1
            elif lock.client_id == client_id:
                lock.until = now + self._live_s
            elif lock.until < now:
                taken.append((queue, lock.client_id))
                held[queue] = HeldLock(client_id, now + self._live_s)
            else:
                continue
            got.append(queue)
        if not held:
            del self._groups[group]
        return got, taken

    def unlock(self, group: str, client_id: str, queues: Iterable[WireQueue]) -> None:
        """Releases the queues that this client holds; locks of other clients stay."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._drop(group, queue)

    def holds_any(self, group: str, now: float) -> bool:
        """Returns whether any client of the group holds a lock that has not expired at `now`."""
        return any(now <= lock.until for lock in self._groups.get(group, {}).values())

    def sweep(self, now: float) -> None:
        """Removes locks that expired more than one lifetime ago."""
        for group, held in list(self._groups.items()):
            for queue in [queue for queue, lock in held.items() if lock.until + self._live_s < now]:
                self._drop(group, queue)

    def _drop(self, group: str, queue: WireQueue) -> None:
        held = self._groups[group]
        del held[queue]
        self._count -= 1
        if not held:
            del self._groups[group]


class LockHandler:
    """Handles requests of consumers to lock (41) and unlock (42) queues."""

    def __init__(self, locks: LockTable, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock
        self._expired = RateLimitedLog(log, EXPIRED_INTERVAL_S, logging.WARNING, EXPIRED_LINES)

    def routes(self) -> Routes:
        return {
            RequestCode.LOCK_BATCH_MQ: Route(None, self.lock),
            RequestCode.UNLOCK_BATCH_MQ: Route(None, self.unlock),
        }

    def lock(self, request: Request[None]) -> Answer:
        wish = LockBatchRequestBody.decode(request.body)
        now = self._clock.monotonic()
        got, taken = self._locks.lock(wish.consumerGroup, wish.clientId, wish.mqSet, now)
        for queue, before in taken:
            words = "Group %s: %s did not renew its lock of %s queue %d in time; %s holds it now"
            self._expired.log(
                now, words, wish.consumerGroup, before, queue.topic, queue.queueId, wish.clientId
            )
        return Answer(body=LockBatchResponseBody(lockOKMQSet=got).encode())

    def unlock(self, request: Request[None]) -> Answer:
        wish = UnlockBatchRequestBody.decode(request.body)
        self._locks.unlock(wish.consumerGroup, wish.clientId, wish.mqSet)
        return Answer()

    async def watch(self) -> None:
        """Removes locks from the table some time after they expired; runs until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_S)
            self._locks.sweep(self._clock.monotonic())
