"""A producer as its client instance and the brokers see it: its group, and the topics it sends to.

Brokers learn of a producer through heartbeats. They must know it before they forward a reply to it or ask it
how a transaction ended.
"""

import asyncio
from collections.abc import Iterable

from turbopump.client.instance import ClientInstance
from turbopump.client.produce.sender import Sender
from turbopump.client.produce.transaction import CheckRequest, CheckResponder
from turbopump.protocol.names import AUTO_CREATE_TOPIC
from turbopump.runtime.clock import Clock


class ProducerMembership:
    """A producer as a member of its client instance (`ProducerMember`); all names include the namespace."""

    def __init__(self, group: str, responder: CheckResponder, clock: Clock) -> None:
        self.group = group
        self.used: set[str] = set()
        """Topics that messages were sent to."""
        self._announced: set[str] = set()
        self._responder = responder
        self._clock = clock
        self._instance: ClientInstance | None = None

    async def join(self, instance: ClientInstance) -> None:
        await instance.join_producer(self)
        self._instance = instance

    def topics(self) -> Iterable[str]:
        return self.used

    def check_transaction(self, request: CheckRequest) -> None:
        self._responder.answer(request)

    def use(self, topic: str) -> None:
        """Adds a topic to those that the producer sends to; the topic's brokers get a heartbeat soon."""
        self.used.add(topic)
        if self._instance is not None:
            self._instance.heartbeats.renew()

    async def announce(self, sender: Sender, topic: str, deadline: float) -> None:
        """Sends the topic's brokers a heartbeat now, once per topic; gives up silently at `deadline`.

        A broker forwards replies only to producers that it knows, and asks only those about transactions.
        Raises SendFailed when there is no route.
        """
        assert self._instance is not None
        if topic in self._announced:
            return
        left_s = deadline - self._clock.monotonic()
        await sender.route(topic, left_s)
        if sender.routes.known(topic) is None:  # the send will create it, at a broker of the template topic
            self.used.add(AUTO_CREATE_TOPIC)
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                if await self._instance.heartbeats.announce():
                    self._announced.add(topic)
        except TimeoutError:
            return
