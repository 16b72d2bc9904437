"""The broker's locks of ordered queues: only the member that holds one may consume the queue.

A lock lives 60 seconds at the broker. The client renews it every 20 seconds and uses it for 30 seconds after
it was last granted, so it has stopped long before the broker would grant the lock to another member. Only a
master grants locks: while it is away, queues whose locks have expired wait, though a slave could be read.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import successful
from turbopump.client.push.process_queue import ProcessQueue
from turbopump.client.routes import RouteCache
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.remoting.client import Client
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 1.0


@dataclass
class OrderedQueueLocks:
    """Acquires, renews and releases the broker's locks of the queues of one ordered consumer."""

    client: Client
    routes: RouteCache
    clock: Clock
    group: str
    client_id: str
    valid_s: float = 30.0
    _away: set[str] = field(default_factory=set, init=False)  # brokers that cannot be asked for locks

    @property
    def is_waiting(self) -> bool:
        """Whether a broker could not be asked for locks when it was last tried."""
        return bool(self._away)

    def is_away(self, broker: str) -> bool:
        return broker in self._away

    def is_valid(self, held: ProcessQueue) -> bool:
        """Returns whether the broker granted the queue's lock in the last `valid_s` seconds, so it counts."""
        return held.locked_at_s is not None and self.clock.monotonic() - held.locked_at_s <= self.valid_s

    async def lock(self, queue: MessageQueue) -> bool:
        """Acquires the lock of a queue; False: another member has it, or the broker cannot be asked."""
        return queue in (await self._ask_broker(queue.broker, [queue]) or ())

    async def renew(self, held: Mapping[MessageQueue, ProcessQueue]) -> None:
        """Renews the locks of these queues at their brokers; a lock that is not granted counts as lost.

        When a broker cannot be asked, its locks stay valid until they expire.
        """
        asked = [self._renew_at(broker, queues, held) for broker, queues in _by_broker(held).items()]
        await asyncio.gather(*asked)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Releases locks, so that another member can have them at once; does not wait for an answer."""
        for broker, own in _by_broker(queues).items():
            body = bodies.UnlockBatchRequestBody(
                self.client_id, self.group, [queue.to_wire() for queue in own]
            )
            try:
                address = await self._master(own[0])
                await self.client.send_oneway(
                    address, request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())
                )
            except (OSError, Refused, BrokenBody) as error:
                log.info("Cannot unlock queues of %s; their locks will expire: %s", broker, error)

    def granted(self, held: ProcessQueue) -> None:
        """Records that the broker has granted the lock of this queue just now."""
        held.locked_at_s = self.clock.monotonic()
        held.last_lock_ms = self.clock.now_ms()

    async def _renew_at(
        self, broker: str, queues: list[MessageQueue], held: Mapping[MessageQueue, ProcessQueue]
    ) -> None:
        ours = await self._ask_broker(broker, queues)
        if ours is None:
            return  # they stay valid until they expire
        for queue in queues:
            if queue in ours:
                self.granted(held[queue])
            else:
                held[queue].locked_at_s = None

    async def _ask_broker(self, broker: str, queues: list[MessageQueue]) -> set[MessageQueue] | None:
        """Returns the queues whose lock was granted; None: the broker cannot be asked. Logs that once."""
        try:
            ours = await self._locked(queues)
        except (OSError, Refused, BrokenBody) as error:
            self.routes.doubt(queues[0].topic)  # the next try asks whether there is a master
            if broker not in self._away:
                self._away.add(broker)
                words = "Cannot lock the ordered queues of %s; they wait for its master: %s"
                log.warning(words, broker, error)
            return None
        if broker in self._away:
            self._away.discard(broker)
            log.info("The ordered queues of %s can be locked again", broker)
        return ours

    async def _locked(self, queues: list[MessageQueue]) -> set[MessageQueue]:
        body = bodies.LockBatchRequestBody(self.client_id, self.group, [queue.to_wire() for queue in queues])
        question = request(RequestCode.LOCK_BATCH_MQ, body=body.encode())
        address = await self._master(queues[0])
        answer = successful(await self.client.call(address, question, CALL_TIMEOUT_S))
        given = bodies.LockBatchResponseBody.decode(answer.body).lockOKMQSet
        return {MessageQueue.of_wire(queue) for queue in given}

    async def _master(self, queue: MessageQueue) -> str:
        address = (await self.routes.find(queue.topic)).master(queue.broker)
        if address is None:
            raise ConnectionError(f"broker {queue.broker} has no master")
        return address


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    grouped: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        grouped.setdefault(queue.broker, []).append(queue)
    return grouped
