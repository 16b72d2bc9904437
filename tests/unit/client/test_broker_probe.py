"""Probes of brokers that could not be reached."""

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster
from tests.unit.client.kit import BROKER_A, BROKER_B, NAMESRV, Cluster, routes_to, stored
from tests.unit.client.producing import producing

from turbopump.client.message import Message
from turbopump.client.name_servers import NameServers
from turbopump.client.produce.broker_health import BrokerHealth, HealthyQueueSelector
from turbopump.client.produce.broker_probe import PROBE_ROUND_S, BrokerProbe
from turbopump.client.produce.sender import Sender
from turbopump.client.routes import RoundRobin, RouteCache
from turbopump.client.settings import ProducerSettings
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import reply
from turbopump.protocol.ids import UniqueIds
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock

PROBE = RequestCode.GET_MAX_OFFSET
ORDER = Message("orders", b"paid")


class Stage:
    """A broker that answers and one that does not, a sender to both, and a detector (every 5 s)."""

    def __init__(self, is_probed: bool = True) -> None:
        settings, self.clock, chance = ProducerSettings(), VirtualClock(), Chance(1)
        self.cluster = Cluster()
        brokers = {"broker-a": BROKER_A, "broker-b": BROKER_B}
        self.cluster.on(NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, routes_to({"orders": 1}, brokers))
        self.cluster.on(BROKER_B, RequestCode.SEND_MESSAGE_V2, stored)
        self.health = BrokerHealth(settings.latency_max, settings.not_available_duration, is_probed)
        self.routes = RouteCache(NameServers(self.cluster, [NAMESRV], chance))
        choice = HealthyQueueSelector(self.health, RoundRobin(chance), self.clock.monotonic)
        ids = UniqueIds("10.0.0.1", 1, self.clock.now_ms)
        self.sender = Sender(self.cluster, self.routes, self.clock, ids, choice, health=self.health)
        topics = ["elsewhere", "orders"]
        self.probe = BrokerProbe(
            self.health, self.cluster, self.routes, self.clock, lambda: topics, timeout_s=0.2, interval_s=5.0
        )

    async def send_until_one_failed(self) -> None:
        for _ in range(4):
            await self.sender.send(ORDER)
        assert not self.health.is_available("broker-a", self.clock.monotonic())

    @property
    def probes(self) -> int:
        return self.cluster.times_asked(PROBE)


@virtual
async def test_a_broker_that_was_unreachable_is_probed_until_it_answers() -> None:
    stage = Stage()
    await stage.send_until_one_failed()
    assert stage.health.unreachable() == ["broker-a"]
    stage.probe.start()
    await stage.clock.sleep(PROBE_ROUND_S + 0.1)
    assert stage.probes == 1
    await stage.clock.sleep(PROBE_ROUND_S)
    assert stage.probes == 1, "not before its interval is over"
    await stage.clock.sleep(PROBE_ROUND_S)
    assert stage.probes == 2
    assert not stage.health.is_reachable("broker-a")
    stage.cluster.on(BROKER_A, PROBE, lambda request: reply(request, ext={"offset": "7"}))
    await stage.clock.sleep(3 * PROBE_ROUND_S)
    assert stage.health.is_reachable("broker-a")
    probes = stage.probes
    await stage.clock.sleep(3 * PROBE_ROUND_S)
    assert stage.probes == probes, "nobody is probed that can be reached"
    await stage.probe.close()


@virtual
async def test_a_broker_that_refuses_a_probe_is_not_well_yet() -> None:
    stage = Stage()
    await stage.send_until_one_failed()
    stage.cluster.on(BROKER_A, PROBE, lambda request: reply(request, 1, "starting"))
    await stage.probe.probe_due()
    assert stage.health.unreachable() == ["broker-a"]


@virtual
async def test_a_broker_that_has_no_topic_of_ours_any_more_is_forgotten() -> None:
    stage = Stage()
    stage.health.record("gone", 1.0, stage.clock.monotonic(), failed=True, reachable=False)
    await stage.probe.probe_due()
    assert stage.health.unreachable() == []
    assert stage.health.is_available("gone", stage.clock.monotonic())


@virtual
async def test_without_a_detector_a_lost_connection_says_nothing_of_reachability() -> None:
    stage = Stage(is_probed=False)
    await stage.send_until_one_failed()
    assert stage.health.is_reachable("broker-a")


@pytest.mark.parametrize("is_on", [True, False])
@virtual
async def test_a_producer_has_a_detector_when_it_is_asked_for(is_on: bool) -> None:
    given = {"send_latency_fault_enable": True, "start_detector_enable": is_on}
    async with cluster() as town, producing(town, **given) as one:
        await one.send(ORDER)
        assert ((one._parts and one._parts.probe) is not None) is is_on


@pytest.mark.parametrize(
    ("code", "is_reachable"), [(ResponseCode.NO_PERMISSION, True), (ResponseCode.SYSTEM_BUSY, False)]
)
@virtual
async def test_a_broker_that_refuses_the_question_to_this_client_is_reachable(
    code: ResponseCode, is_reachable: bool
) -> None:
    stage = Stage()
    await stage.send_until_one_failed()
    stage.cluster.on(BROKER_A, PROBE, lambda request: reply(request, code, "no"))
    await stage.probe.probe_due()
    assert stage.health.is_reachable("broker-a") == is_reachable
