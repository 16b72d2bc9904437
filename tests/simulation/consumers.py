"""Model consumers: membership, assignment of queues, locks and offsets as in Apache's push clients.

Small on purpose: they follow the rules of Apache's clients (4.9 and 5.x where the two differ) as far as a
broker can observe, and report to the simulation (`groups.py`) what they handle and when. They use a real
broker over the simulated network and are independent of each other.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from turbopump.protocol import record
from turbopump.protocol.bodies import (
    ConsumerListBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ResetOffsetBody,
    WireQueue,
)
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.remoting.router import Request, Route, Router
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network

log = logging.getLogger(__name__)

TOPIC = "T"
BROKER_NAME = "broker-a"
HEARTBEAT_S = 30.0
COMMIT_S = 5.0
REBALANCE_S = 20.0
SOON_S = 1.0  # interval of a 5.x client that has not got all its queues
LOCK_S = 20.0
LOCK_VALID_S = 30.0  # lifetime of a lock for the client; 60 s for the broker
LOST_S = 120.0  # a queue without a pull for this time is dropped and assigned again
RESET_S = 10.0  # pause of a client between stopping and moving
CACHED = 20  # messages cached per queue
PULLED = 8  # messages per pull
COMMITS, SUSPENDS = 1, 2


class ConsumptionObserver(Protocol):
    """Receives the events of consumers."""

    def begins(self, consumer: "Consumer", taken: "AssignedQueue", offset: int, body: bytes) -> None: ...
    def ends(
        self, consumer: "Consumer", taken: "AssignedQueue", offset: int, body: bytes, done: bool
    ) -> None: ...
    def read_queues(self) -> int: ...
    def life_of_broker(self) -> int: ...


@dataclass(frozen=True, slots=True)
class GroupBehaviour:
    """Behaviour shared by all members of a group."""

    name: str
    orderly: bool
    is_5x: bool  # False: 4.9
    slowest_s: float  # greatest time per message


@dataclass(eq=False, slots=True)
class AssignedQueue:
    """A queue assigned to this consumer."""

    queue_id: int
    next_offset: int
    last_pull: float
    locked_at: float | None = None  # time of the last granted lock, by the client's clock ...
    locked_in: int = 0  # ... and the broker run that granted it
    first_pull: bool = True
    dropped: bool = False
    cached: dict[int, bytes] = field(default_factory=dict)
    seen: int = -1  # greatest cached offset
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def committable(self) -> int:
        """Returns the offset below which all messages are handled."""
        return min(self.cached) if self.cached else self.seen + 1


class Consumer:
    def __init__(
        self,
        client_id: str,
        plan: GroupBehaviour,
        address: str,
        network: Network,
        clock: Clock,
        chance: Chance,
        witness: ConsumptionObserver,
    ) -> None:
        self.client_id = client_id
        self.plan = plan
        self.is_gone = False
        self._address = address
        self._clock = clock
        self._chance = chance
        self._witness = witness
        self._client = Client(network, clock, Router(self._routes()))
        self._connected_as: object | None = None
        self._taken: dict[int, AssignedQueue] = {}
        self._memory: dict[int, int] = {}  # offsets to commit
        self._version = 0
        self._queues = witness.read_queues()
        self._look = asyncio.Event()
        self._suspended = False
        self._tasks: dict[asyncio.Task[None], None] = {}  # ordered, so that a seed can be repeated
        self._at_work: dict[int, asyncio.Lock] = {}  # one orderly listener per queue

    # Start and stop

    def start(self) -> None:
        log.info("%s starts in %s", self.client_id, self.plan.name)
        self._spawn(self._every(HEARTBEAT_S, self._heartbeat))
        self._spawn(self._every(HEARTBEAT_S, self._refresh_route))
        self._spawn(self._every(COMMIT_S, self._commit_all))
        self._spawn(self._keep_balance())
        if self.plan.orderly:
            self._spawn(self._every(LOCK_S, self._lock_all))

    async def leave(self) -> None:
        """Leaves the group: releases locks, then commits offsets, as Apache's client does."""
        log.info("%s leaves", self.client_id)
        self.is_gone = True
        await self._end_tasks()
        with contextlib.suppress(OSError):
            if self.plan.orderly and self._taken:
                await self._call(RequestCode.UNLOCK_BATCH_MQ, body=self._lock_body(*self._taken))
            for queue_id in self._taken:
                await self._commit(queue_id)
            fields = {"clientID": self.client_id, "consumerGroup": self.plan.name}
            await self._call(RequestCode.UNREGISTER_CLIENT, fields)
        await self._client.close()

    async def die(self) -> None:
        """Ends without unregistering; the network decides whether the broker notices."""
        log.info("%s dies", self.client_id)
        self.is_gone = True
        await self._end_tasks()

    # Heartbeats and offsets

    async def _heartbeat(self) -> None:
        subscription = {"topic": TOPIC, "subString": "*", "subVersion": self._version}
        retry = {"topic": f"%RETRY%{self.plan.name}", "subString": "*", "subVersion": self._version}
        consumer = {
            "groupName": self.plan.name,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription, retry],
        }
        beat = {"clientID": self.client_id, "consumerDataSet": [consumer]}
        with contextlib.suppress(OSError):
            await self._call(RequestCode.HEART_BEAT, body=msgspec.json.encode(beat))

    async def _refresh_route(self) -> None:
        self._queues = self._witness.read_queues()

    async def _commit_all(self) -> None:
        for queue_id in list(self._taken):
            with contextlib.suppress(OSError):
                await self._commit(queue_id)

    async def _commit(self, queue_id: int) -> None:
        offset = self._memory.get(queue_id)
        if offset is not None:
            fields = self._place(queue_id) | {"commitOffset": str(offset)}
            request = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields)
            await self._client.send_oneway(self._address, request)

    async def _begin_at(self, queue_id: int) -> int | None:
        """Returns the start offset: the committed one, or the beginning; None if unknown, to retry later."""
        answer = await self._call(RequestCode.QUERY_CONSUMER_OFFSET, self._place(queue_id), timeout_s=5)
        if answer.code == ResponseCode.SUCCESS:
            return int((answer.ext or {})["offset"])
        return 0 if answer.code == ResponseCode.QUERY_NOT_FOUND else None

    # Assignment of queues

    async def _keep_balance(self) -> None:
        await self._heartbeat()
        while True:
            self._look.clear()
            balanced = self._suspended or await self._balance()
            wait_s = REBALANCE_S if balanced or not self.plan.is_5x else SOON_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._look.wait()
            await asyncio.sleep(SOON_S if self.plan.is_5x else 0.01)

    async def _balance(self) -> bool:
        try:
            answer = await self._call(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self.plan.name}
            )
        except OSError:
            return False
        if answer.code != ResponseCode.SUCCESS:
            return False
        mine = share(self._queues, ConsumerListBody.decode(answer.body).consumerIdList, self.client_id)
        changed = await self._give_up(mine) | await self._take_up(mine)
        if changed:
            self._version = self._clock.now_ms()
            self._spawn(self._heartbeat())
        return set(self._taken) == set(mine)

    async def _give_up(self, mine: list[int]) -> bool:
        changed = False
        for taken in list(self._taken.values()):
            lost = self._clock.monotonic() - taken.last_pull > LOST_S
            if taken.queue_id not in mine or lost:
                taken.dropped = True
                taken.arrived.set()
                changed |= await self._remove(taken)
        return changed

    async def _remove(self, taken: AssignedQueue, at_once: bool = False) -> bool:
        """Gives up a queue; False while an orderly listener works: then the lock stays.

        Apache's client checks only the listener of this assignment: after a move it can release the lock
        while an earlier one works. That is not caused by the broker, so it is not copied.
        """
        with contextlib.suppress(OSError):
            await self._commit(taken.queue_id)
        at_work = self._at_work.get(taken.queue_id)
        handling = at_work is not None and at_work.locked()
        if (at_once or not handling) and self._taken.get(taken.queue_id) is taken:
            del self._taken[taken.queue_id]
        if handling:
            return False
        self._memory.pop(taken.queue_id, None)
        if self.plan.orderly:
            request = Command(RequestCode.UNLOCK_BATCH_MQ, body=self._lock_body(taken.queue_id))
            with contextlib.suppress(OSError):
                await self._client.send_oneway(self._address, request)
        return True

    async def _take_up(self, mine: list[int]) -> bool:
        changed = False
        for queue_id in mine:
            if queue_id in self._taken:
                continue
            with contextlib.suppress(OSError):
                taken = AssignedQueue(queue_id, 0, self._clock.monotonic())
                if self.plan.orderly:
                    if queue_id not in await self._lock(queue_id):
                        continue
                    self._locked(taken)
                self._memory.pop(queue_id, None)
                begin = await self._begin_at(queue_id)
                if begin is None:
                    continue
                taken.next_offset, taken.last_pull = begin, self._clock.monotonic()
                self._taken[queue_id] = taken
                changed = True
                self._spawn(self._pull_from(taken))
                if self.plan.orderly:
                    self._spawn(self._handle_in_order(taken))
        return changed

    # Locks

    async def _lock(self, *queue_ids: int) -> set[int]:
        answer = await self._call(RequestCode.LOCK_BATCH_MQ, body=self._lock_body(*queue_ids), timeout_s=1)
        if answer.code != ResponseCode.SUCCESS:
            return set()
        return {queue.queueId for queue in LockBatchResponseBody.decode(answer.body).lockOKMQSet}

    async def _lock_all(self) -> None:
        """Renews the locks of all queues; gives up the refused ones."""
        asked = dict(self._taken)
        if not asked:
            return
        try:
            locked = await self._lock(*asked)
        except OSError:
            return
        for queue_id, taken in asked.items():
            if queue_id in locked:
                self._locked(taken)
            else:
                taken.locked_at = None

    def _locked(self, taken: AssignedQueue) -> None:
        taken.locked_at, taken.locked_in = self._clock.monotonic(), self._witness.life_of_broker()

    def _holds_lock(self, taken: AssignedQueue) -> bool:
        return taken.locked_at is not None and self._clock.monotonic() - taken.locked_at < LOCK_VALID_S

    def _lock_body(self, *queue_ids: int) -> bytes:
        queues = [WireQueue(BROKER_NAME, queue_id, TOPIC) for queue_id in queue_ids]
        return LockBatchRequestBody(
            clientId=self.client_id, consumerGroup=self.plan.name, mqSet=queues
        ).encode()

    # Pulling

    async def _pull_from(self, taken: AssignedQueue) -> None:
        while not taken.dropped:
            taken.last_pull = self._clock.monotonic()
            if self._suspended or (self.plan.orderly and taken.locked_at is None):
                await asyncio.sleep(1)
            elif len(taken.cached) > CACHED:
                await asyncio.sleep(0.5)
            else:
                try:
                    if taken.first_pull and self.plan.orderly:
                        begin = await self._begin_at(taken.queue_id)
                        if begin is None:
                            await asyncio.sleep(1)
                            continue
                        taken.next_offset = begin
                    taken.first_pull = False
                    await self._pull_once(taken)
                except OSError:
                    await asyncio.sleep(1 if self.plan.is_5x else 3)

    async def _pull_once(self, taken: AssignedQueue) -> None:
        memory = self._memory.get(taken.queue_id, 0)
        fields = self._place(taken.queue_id) | {
            "queueOffset": str(taken.next_offset),
            "maxMsgNums": str(PULLED),
            "sysFlag": str(SUSPENDS | (COMMITS if memory > 0 else 0)),
            "commitOffset": str(memory),
            "suspendTimeoutMillis": "15000",
            "subVersion": str(self._version),
            "expressionType": "TAG",
        }
        answer = await self._call(RequestCode.PULL_MESSAGE, fields, timeout_s=30)
        if taken.dropped:
            return
        code = answer.code
        if code == ResponseCode.SUCCESS:
            taken.next_offset = int((answer.ext or {})["nextBeginOffset"])
            for found in record.decode_all(answer.body):
                self._cache(taken, found.queue_offset, found.body)
        elif code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            taken.next_offset = int((answer.ext or {})["nextBeginOffset"])
            if not taken.cached:
                self._raise_memory(taken.queue_id, taken.next_offset)
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            await self._move(taken, int((answer.ext or {})["nextBeginOffset"]))
        else:
            await asyncio.sleep(1)

    def _cache(self, taken: AssignedQueue, offset: int, body: bytes) -> None:
        taken.cached[offset] = body
        taken.seen = max(taken.seen, offset)
        taken.arrived.set()
        if not self.plan.orderly:
            self._spawn(self._handle(taken, offset, body))

    async def _move(self, taken: AssignedQueue, offset: int) -> None:
        """Moves to the offset in the broker's answer: gives the queue up there and takes it again."""
        log.info("%s: queue %d moves to %d", self.client_id, taken.queue_id, offset)
        taken.dropped = True
        taken.arrived.set()
        if not self.plan.is_5x:
            await asyncio.sleep(RESET_S)
        self._memory[taken.queue_id] = offset
        await self._remove(taken, at_once=True)
        self._look.set()

    # Handling

    async def _handle(self, taken: AssignedQueue, offset: int, body: bytes) -> None:
        while not taken.dropped and taken.cached.get(offset) is body:
            done = await self._listen(taken, offset, body)
            if done:
                taken.cached.pop(offset, None)
                if not taken.dropped:
                    self._raise_memory(taken.queue_id, taken.committable())
                return
            await asyncio.sleep(5)

    async def _handle_in_order(self, taken: AssignedQueue) -> None:
        while not taken.dropped:
            if not taken.cached:
                taken.arrived.clear()
                await taken.arrived.wait()
                continue
            async with self._at_work.setdefault(taken.queue_id, asyncio.Lock()):
                done = await self._handle_next(taken)
            if not done:
                await asyncio.sleep(1)

    async def _handle_next(self, taken: AssignedQueue) -> bool:
        if taken.dropped or not taken.cached:
            return True
        if not self._holds_lock(taken):
            await self._lock_again(taken)
            return True
        offset = min(taken.cached)
        done = await self._listen(taken, offset, taken.cached[offset])
        if done and not taken.dropped:
            del taken.cached[offset]
            self._memory[taken.queue_id] = offset + 1
        return done

    async def _lock_again(self, taken: AssignedQueue) -> None:
        try:
            if taken.queue_id in await self._lock(taken.queue_id):
                self._locked(taken)
                return
        except OSError:
            pass
        await asyncio.sleep(3)

    async def _listen(self, taken: AssignedQueue, offset: int, body: bytes) -> bool:
        """Simulates the user's handler: takes time and sometimes fails."""
        self._witness.begins(self, taken, offset, body)
        done = False
        try:
            await asyncio.sleep(self._chance.uniform(0, self.plan.slowest_s) ** 2 / self.plan.slowest_s)
            done = self._chance.random() > 0.05
        finally:
            self._witness.ends(self, taken, offset, body, done)
        return done

    def _raise_memory(self, queue_id: int, offset: int) -> None:
        """Raises the offset to commit; concurrent consumption never lowers it."""
        self._memory[queue_id] = max(offset, self._memory.get(queue_id, offset))

    # Requests of the broker

    def _routes(self) -> dict[int, Route[Any]]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: Route(None, self._notified),
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: Route(None, self._told_to_reset),
        }

    def _notified(self, request: Request[None]) -> None:
        self._look.set()

    def _told_to_reset(self, request: Request[None]) -> None:
        table = ResetOffsetBody.decode(request.body).offsetTable
        if not self.is_gone:
            self._spawn(self._reset({queue.queueId: offset for queue, offset in table.items()}))

    async def _reset(self, offsets: dict[int, int]) -> None:
        self._suspended = True
        try:
            moved = [taken for taken in self._taken.values() if taken.queue_id in offsets]
            for taken in moved:
                taken.dropped = True
                taken.cached.clear()
                taken.arrived.set()
            await asyncio.sleep(RESET_S)
            for taken in moved:
                self._memory[taken.queue_id] = offsets[taken.queue_id]
                await self._remove(taken, at_once=True)
        finally:
            self._suspended = False
            self._look.set()

    # Helpers

    def _place(self, queue_id: int) -> dict[str, str]:
        return {"consumerGroup": self.plan.name, "topic": TOPIC, "queueId": str(queue_id)}

    async def _call(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", timeout_s: float = 3
    ) -> Command:
        connection = await self._client.connect(self._address)
        if connection is not self._connected_as:
            self._connected_as = connection
            if self.plan.is_5x and code != RequestCode.HEART_BEAT:
                self._spawn(self._heartbeat())
        request = Command(
            code, ext=fields, body=body, language="JAVA", version=513 if self.plan.is_5x else 407
        )
        return await self._client.call(self._address, request, timeout_s)

    async def _every(self, seconds: float, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await asyncio.sleep(self._chance.uniform(0, seconds))
        while True:
            await what()
            await asyncio.sleep(seconds)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self.is_gone:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    async def _end_tasks(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def share(queues: int, client_ids: list[str], own: str) -> list[int]:
    """Returns the queues of a member, as AllocateMessageQueueAveragely."""
    ids = sorted(client_ids)
    if own not in ids:
        return []
    index, rest = ids.index(own), queues % len(ids)
    size = 1 if queues <= len(ids) else queues // len(ids) + (1 if rest and index < rest else 0)
    start = index * size if rest and index < rest else index * size + rest
    return list(range(start, min(start + size, queues)))
