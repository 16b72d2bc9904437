"""The members of a planning world: brokers that only register, and clients that only follow routes.

Both run on any `Network` and `Clock`: in the virtual world, and over TCP against a real name server.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.simulation.scale.plan import BrokerPlan, ClientPlan, Plan

from turbopump.broker.config import BrokerIdentity, NameServerConfig, TopicRules
from turbopump.broker.registration import BrokerEndpoint, NameServerRegistration
from turbopump.broker.topics import Topic, TopicTable
from turbopump.client.instance import ClientInstance
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.produce.transaction import CheckRequest
from turbopump.client.settings import ClientSettings
from turbopump.client.world import World
from turbopump.protocol import bodies
from turbopump.protocol.addresses import HA_PORT_STEP
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network

CLUSTER = "DefaultCluster"
PORT = 10911
SLOTS = 100  # events at the same moment cost the virtual loop less than each at its own


class BrokerNode:
    """A broker's topic table and its registration; it may answer heartbeats, and has no store."""

    def __init__(
        self, plan: BrokerPlan, network: Network, clock: Clock, name_servers: tuple[str, ...]
    ) -> None:
        self.plan = plan
        self.heartbeats = 0
        identity = BrokerIdentity(cluster_name=CLUSTER, broker_name=plan.name)
        self.topics = TopicTable(TopicRules(), identity, clock)
        self.topics.update_all((Topic(name, count, count), {}) for name, count in plan.topics.items())
        endpoint = BrokerEndpoint(identity, f"{plan.ip}:{PORT}", f"{plan.ip}:{PORT + HA_PORT_STEP}")
        self._client = Client(network, clock)
        self.registration = NameServerRegistration(
            self._client, self.topics, endpoint, NameServerConfig(addresses=name_servers)
        )
        answers = {
            RequestCode.HEART_BEAT: Route(None, self._heard),
            RequestCode.UNREGISTER_CLIENT: Route(None, lambda request: Answer()),
        }
        self._server = Server(Router(answers), network, clock)

    async def start(self) -> None:
        """Begins to register in the background."""
        self.registration.start()

    async def listen(self) -> None:
        await self._server.start("", PORT)

    async def stop(self) -> None:
        await self.registration.stop()
        await self._server.stop(0)
        await self._client.close()

    def _heard(self, request: Request[None]) -> Answer:
        self.heartbeats += 1
        return Answer()


class PollingClient(ClientInstance):
    """A client instance that polls the routes of its topics, and sends no heartbeats: it has no members."""

    def __init__(self, plan: ClientPlan, world: World, name_servers: tuple[str, ...]) -> None:
        self.plan = plan
        super().__init__(ClientSettings(client_ip=plan.ip), name_servers, world, plan.group)
        self.asked = 0
        self._ask = self.name_servers.ask
        self.name_servers.ask = self._count  # type: ignore[method-assign]

    async def _count(self, question: Command, timeout_s: float) -> Command:
        self.asked += 1
        return await self._ask(question, timeout_s)

    async def begin(self) -> None:
        """Starts the instance, then asks for each route once, as a producer or consumer that joins does."""
        await self.start()
        await self.routes.refresh_known(self._topics())

    def _topics(self) -> set[str]:
        return set(self.plan.topics)

    def disagrees(self, topic: str, live: frozenset[str]) -> bool:
        """Returns whether the cached route of a topic is missing or has other brokers than the live ones."""
        route = self.routes.known(topic)
        return route is None or route.brokers.keys() != live


class BeatingClient(PollingClient):
    """A polling client with one producer or consumer: it sends heartbeats to the brokers of its topics."""

    async def begin(self) -> None:
        await self.start()
        if self.plan.consumes:
            await self.join_consumer(ConsumerOfPlan(self.plan))
        else:
            await self.join_producer(ProducerOfPlan(self.plan))
            await self.routes.refresh_known(self._topics())


@dataclass(frozen=True)
class ProducerOfPlan:
    """A producer that sends nothing."""

    plan: ClientPlan

    @property
    def group(self) -> str:
        return self.plan.group

    def topics(self) -> Iterable[str]:
        return self.plan.topics

    def check_transaction(self, request: CheckRequest) -> None:
        raise AssertionError("no broker of a planning world asks for a transaction")


@dataclass(frozen=True)
class ConsumerOfPlan:
    """A consumer that pulls nothing."""

    plan: ClientPlan

    @property
    def group(self) -> str:
        return self.plan.group

    def topics(self) -> Iterable[str]:
        return self.plan.topics

    def describe(self) -> bodies.ConsumerData:
        subscriptions = [bodies.SubscriptionData(topic=topic, subString="*") for topic in self.plan.topics]
        return bodies.ConsumerData(groupName=self.group, subscriptionDataSet=subscriptions)

    def members_changed(self) -> None:
        pass

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        raise AssertionError("no tool resets a group of a planning world")

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {}

    def running_info(self, with_stacks: bool) -> bodies.ConsumerRunningInfo:
        raise AssertionError("no tool asks a client of a planning world")

    async def consume_directly(self, message: MessageExt) -> bodies.ConsumeMessageDirectlyResult:
        raise AssertionError("no tool asks a client of a planning world")


async def begin_over(starts: Iterable[PollingClient | BrokerNode], seconds: float) -> None:
    """Starts clients or brokers over so many seconds, in SLOTS turns, and waits until all have begun."""
    members = list(starts)
    slots = min(SLOTS, len(members))

    async def begin(one: PollingClient | BrokerNode, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await (one.begin() if isinstance(one, PollingClient) else one.start())

    waits = (seconds * (at * slots // len(members)) / slots for at in range(len(members)))
    await asyncio.gather(*map(begin, members, waits))


def topics_of_truth(plan: Plan, dead: frozenset[str]) -> dict[str, frozenset[str]]:
    """Returns the live brokers of each topic that has one."""
    truth = {topic: on - dead for topic, on in plan.placement.items()}
    return {topic: live for topic, live in truth.items() if live}
