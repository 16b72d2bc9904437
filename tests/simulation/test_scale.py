"""The planning world in a small size: what it counts, and that routes follow the brokers that live."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.simulation.scale import page
from tests.simulation.scale.nodes import topics_of_truth
from tests.simulation.scale.plan import Plan, Shape, plan, shape_as_json
from tests.simulation.scale.traffic import CountedNetwork, Traffic
from tests.simulation.scale.world import DOWN_S, PERIOD_S, STEADY_S, STEP_S, ScaleWorld, cold_start, life

from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import encode, request
from turbopump.remoting.client import Client
from turbopump.remoting.router import Answer, Route, Router
from turbopump.remoting.server import Server
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.network import MemoryNetwork, NetworkConditions

SMALL = Shape(brokers=10, topics=120, name_servers=3, clients=40, group_size=4, deaths=1, seed=3)
EXPIRE_S = 120.0  # without a heartbeat, a name server removes a broker
SCAN_S = 5.0
REGISTER, ROUTE = str(int(RequestCode.REGISTER_BROKER)), str(int(RequestCode.GET_ROUTEINFO_BY_TOPIC))


@pytest.fixture(scope="module")
def drawn() -> Plan:
    return plan(SMALL)


@pytest.fixture(scope="module")
def lived(drawn: Plan) -> dict[str, Any]:
    return run_virtual(life(drawn))


def test_a_plan_is_drawn_from_its_seed_within_its_bounds(drawn: Plan) -> None:
    assert plan(SMALL) == drawn
    topics = {topic: on for topic, on in drawn.placement.items() if not topic.startswith("%RETRY%")}
    assert len(topics) == SMALL.topics
    assert {len(on) for on in topics.values()} == {2, 3, 4}
    assert drawn.routes == sum(len(broker.topics) for broker in drawn.brokers)
    sizes = Counter(client.group for client in drawn.clients)
    assert set(sizes.values()) == {4}
    for client in drawn.clients:
        own = [topic for topic in client.topics if topic in topics]
        assert 5 <= len(own) <= 20
        assert len(client.topics) - len(own) == client.consumes


def test_a_retry_topic_is_on_each_broker_of_the_topics_of_its_group(drawn: Plan) -> None:
    client = next(one for one in drawn.clients if one.consumes)
    *own, retry = client.topics
    assert drawn.placement[retry] == frozenset().union(*(drawn.placement[topic] for topic in own))


@pytest.mark.parametrize("wrong", [{"brokers": 3}, {"deaths": 50}, {"clients": 0}, {"topics": 10}])
def test_a_size_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be|needed"):
        Shape(**wrong)


def test_frames_and_bytes_are_counted_as_they_pass() -> None:
    async def scene() -> None:
        network, traffic, clock = (
            MemoryNetwork(conditions=NetworkConditions(segment=7)),
            Traffic(),
            VirtualClock(),
        )
        router = Router({105: Route(None, lambda one: Answer(body=bytes(100)))})
        server = Server(router, CountedNetwork(network, traffic), clock)
        port = await server.start("", 0)
        client = Client(network, clock)
        asked = [request(code, body=bytes(9)) for code in (105, 105, 999)]
        answers = [await client.call(f"127.0.0.1:{port}", one) for one in asked]
        assert traffic.requests == {105: 2, 999: 1}
        assert traffic.received == {
            105: sum(len(encode(one)) for one in asked[:2]),
            999: len(encode(asked[2])),
        }
        assert traffic.sent.total() == sum(len(encode(one)) for one in answers)
        assert traffic.sent[105] > 2 * 100 > traffic.sent[999]
        assert (traffic.refused, traffic.connections) == (1, 1)
        await client.close()
        await server.stop(0)

    run_virtual(scene())


def test_in_a_quiet_time_each_broker_registers_and_each_route_is_asked_once_in_a_period(
    drawn: Plan, lived: dict[str, Any]
) -> None:
    periods = STEADY_S / PERIOD_S
    for server in lived["steady"]:
        assert server["by_code"].keys() == {REGISTER, ROUTE}
        assert server["by_code"][REGISTER]["requests"] == pytest.approx(periods * SMALL.brokers, abs=1)
        assert server["refused"] == 0
    asked = sum(server["by_code"][ROUTE]["requests"] for server in lived["steady"])
    assert asked == pytest.approx(periods * drawn.used, rel=0.03)


def test_routes_follow_brokers_that_were_killed_within_one_poll(lived: dict[str, Any]) -> None:
    for word in ("killed", "returned"):
        assert lived[word]["routes_changed"] > 0
        assert lived[word]["name_servers_s"] <= 2 * STEP_S
        assert PERIOD_S / 2 < lived[word]["all_routes_s"] <= PERIOD_S + 2 * STEP_S


def test_routes_follow_brokers_that_fell_silent_within_the_time_of_the_name_servers_and_one_poll(
    lived: dict[str, Any],
) -> None:
    silent = lived["isolated"]
    assert EXPIRE_S - PERIOD_S <= silent["name_servers_s"] <= EXPIRE_S + SCAN_S + STEP_S
    assert silent["name_servers_s"] < silent["all_routes_s"] <= EXPIRE_S + SCAN_S + PERIOD_S + STEP_S


def test_name_servers_that_are_restarted_one_by_one_keep_all_routes_and_their_clients(
    drawn: Plan, lived: dict[str, Any]
) -> None:
    assert len(lived["restarts"]) == SMALL.name_servers
    assert DOWN_S > PERIOD_S, "all clients of a name server that was away have asked another meanwhile"
    one_client = max(len(client.topics) for client in drawn.clients)  # more or less, at the ends of a window
    for number, one in enumerate(lived["restarts"]):
        before = lived["steady"][number]["by_code"][ROUTE]["requests"]
        back = one["routes_asked"][number]
        assert back == pytest.approx(before, abs=one_client), (
            "each of its clients compares all routes, and returns"
        )
        assert sum(one["routes_asked"]) == pytest.approx(drawn.used + back, abs=one_client)
        assert one["complete_s"] <= PERIOD_S


def test_a_cold_start_ends_with_the_routes_of_all_clients(drawn: Plan) -> None:
    figures = run_virtual(cold_start(drawn))
    first = figures["first"]
    assert [server["by_code"][REGISTER]["requests"] for server in first] == 3 * [SMALL.brokers]
    kinds = len(drawn.clients)  # each client asks for one route more when it starts
    assert sum(server["by_code"][ROUTE]["requests"] for server in first) == drawn.used + kinds
    assert figures["agreed_s"] is None or figures["agreed_s"] <= PERIOD_S + 1
    assert all(table["brokers"] == SMALL.brokers for table in figures["tables"])
    assert all(table["topics"] >= len(drawn.placement) for table in figures["tables"])


def test_routes_that_name_a_dead_broker_are_seen(drawn: Plan) -> None:
    async def scene() -> None:
        world = ScaleWorld(drawn)
        await world.start(PERIOD_S)
        await world.agreement()
        assert world.disagreements() == 0
        dead = frozenset([drawn.brokers[0].name])
        truth = topics_of_truth(drawn, dead)
        await world.kill(dead)
        wrong = [
            topic
            for client in drawn.clients
            for topic in client.topics
            if truth.get(topic) != drawn.placement[topic]
        ]
        assert world.disagreements() == len(wrong) > 0
        await world.stop()

    run_virtual(scene())


def test_dead_brokers_do_not_make_clients_send_more_heartbeats_to_the_others() -> None:
    async def scene() -> None:
        world = ScaleWorld(plan(Shape(brokers=10, topics=120, clients=20, deaths=1)), heartbeats=True)
        await world.start(PERIOD_S)
        await asyncio.sleep(PERIOD_S)
        before = world.heard
        await asyncio.sleep(PERIOD_S)
        usual_per_s = (world.heard - before) / PERIOD_S
        assert usual_per_s > 1
        world.isolate(frozenset([world.plan.brokers[0].name]))
        assert (await world.agreement())["heartbeats_per_s"] <= 1.2 * usual_per_s
        await world.stop()

    run_virtual(scene())


def test_the_page_has_the_tables_of_the_stored_results() -> None:
    text = page.PAGE.read_text()
    assert {match[2] for match in page.BLOCK.finditer(text)} == page.TABLES.keys()
    assert text == page.current(text, page.results()), "run python -m tests.simulation.scale.page"


def test_the_results_of_the_page_are_those_of_the_cluster_that_it_describes() -> None:
    found = page.results()
    assert found["scale"]["shape"] == shape_as_json(Shape())
    for name, figures in found.items():
        if name.startswith("scale-process"):
            assert figures["shape"] == shape_as_json(Shape())
