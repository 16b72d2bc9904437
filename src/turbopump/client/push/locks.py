"""The broker's locks of ordered queues: who has one is the only member that may consume the queue.

A lock lives 60 seconds at the broker. We renew ours every 20 seconds and use one for 30 seconds after it was
last given, so that we have stopped long before the broker would give it to another.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from turbopump.client.counted_log import CountedLog
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
    client: Client
    routes: RouteCache
    clock: Clock
    group: str
    client_id: str
    valid_s: float = 30.0
    _failures: CountedLog = field(default_factory=lambda: CountedLog(log), init=False)

    def is_valid(self, held: ProcessQueue) -> bool:
        return held.locked_at_s is not None and self.clock.monotonic() - held.locked_at_s <= self.valid_s

    async def lock(self, queue: MessageQueue) -> bool:
        """False: another has it, or its broker cannot be asked."""
        return queue in await self._ask_broker(queue.broker, [queue])

    async def renew(self, held: Mapping[MessageQueue, ProcessQueue]) -> None:
        """Of all these queues. One that was not given is not used until it is ours again."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in held:
            by_broker.setdefault(queue.broker, []).append(queue)
        asked = [self._renew_at(broker, queues, held) for broker, queues in by_broker.items()]
        await asyncio.gather(*asked)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Another may have them at once; nobody waits for the answer."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker, []).append(queue)
        for broker, own in by_broker.items():
            body = bodies.UnlockBatchRequestBody(
                self.client_id, self.group, [queue.to_wire() for queue in own]
            )
            try:
                address = await self._master(own[0])
                await self.client.send_oneway(
                    address, request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())
                )
            except (OSError, Refused, BrokenBody) as error:
                log.info("Queues of %s are not unlocked, their locks will expire: %s", broker, error)

    def given(self, held: ProcessQueue) -> None:
        held.locked_at_s = self.clock.monotonic()
        held.last_lock_ms = self.clock.now_ms()

    async def _renew_at(
        self, broker: str, queues: list[MessageQueue], held: Mapping[MessageQueue, ProcessQueue]
    ) -> None:
        try:
            ours = await self._locked(queues)
        except (OSError, Refused, BrokenBody) as error:
            self._failures.log(("renew", broker), "Locks at %s are not renewed: %s", broker, error)
            return  # they are ours until they expire
        for queue in queues:
            if queue in ours:
                self.given(held[queue])
            else:
                held[queue].locked_at_s = None

    async def _ask_broker(self, broker: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        try:
            return await self._locked(queues)
        except (OSError, Refused, BrokenBody) as error:
            self._failures.log(("lock", broker), "Queues of %s cannot be locked now: %s", broker, error)
            return set()

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
