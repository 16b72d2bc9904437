"""What the tests of producer retries share with others."""

import asyncio
from typing import Any

from tests.unit.client.kit import BROKER_A, BROKER_B, NAMESRV, Cluster, as_command, routes_to

from turbopump.client.message import Message, MessageQueue, SendResult
from turbopump.client.name_servers import NameServers
from turbopump.client.produce.broker_health import BrokerHealth, HealthyQueueSelector
from turbopump.client.produce.sender import Sender
from turbopump.client.routes import RoundRobin, RouteCache
from turbopump.client.settings import ProducerSettings
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.ids import UniqueIds
from turbopump.protocol.packed_send import PackedSend
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock, run_virtual

SEND = RequestCode.SEND_MESSAGE_V2


ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


ORDER = Message("t", b"x")


class SlowCluster(Cluster):
    """Answers after a while, and a while too long is a timeout."""

    def __init__(self) -> None:
        super().__init__()
        self.slowness: dict[str, float] = {}

    async def call(self, address: str, request: Command | PackedSend, timeout_s: float) -> Command:
        request = as_command(request)
        slow_s = self.slowness.get(address, 0.0)
        await asyncio.sleep(min(slow_s, timeout_s))
        if slow_s > timeout_s:
            self.asked.append((address, request))
            raise TimeoutError(f"{address} did not answer in {timeout_s} s")
        return await super().call(address, request, timeout_s)

    def tried(self) -> list[str]:
        return [
            "a" if address == BROKER_A else "b" for address, request in self.asked if request.code == SEND
        ]


class Scene:
    """A sender before two brokers of one queue each."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = SlowCluster()
        self.cluster.on(NAMESRV, ROUTE, routes_to({"t": 1}, {"a": BROKER_A, "b": BROKER_B}))
        self.settings = ProducerSettings(**settings)
        self.health: BrokerHealth | None = None
        if self.settings.send_latency_fault_enable:
            self.health = BrokerHealth(self.settings.latency_max, self.settings.not_available_duration)
        self.took = 0.0

    def answers(self, address: str, code: int, remark: str = "") -> None:
        ext = {"msgId": "X", "queueId": "0", "queueOffset": "1"}
        self.cluster.on(address, SEND, lambda request: reply(request, code, remark, ext))

    def send(self, times: int = 1, queue: MessageQueue | None = None, **options: Any) -> SendResult:
        """First to broker a."""

        async def run() -> SendResult:
            clock, chance = VirtualClock(), Chance(1)
            plain = RoundRobin(chance)
            plain._first = 1
            choice = HealthyQueueSelector(self.health, plain, clock.monotonic) if self.health else plain
            routes = RouteCache(NameServers(self.cluster, [NAMESRV], chance))
            sender = Sender(
                self.cluster,
                routes,
                clock,
                UniqueIds("10.0.0.1", 1, clock.now_ms),
                choice,
                settings=self.settings,
                health=self.health,
            )
            try:
                for _ in range(times):
                    began = clock.monotonic()
                    if queue is not None:
                        result = await sender.send_to(queue, ORDER, **options)
                    else:
                        result = await sender.send(ORDER, **options)
            finally:
                self.took = clock.monotonic() - began
            return result

        return run_virtual(run())
