import pytest
from tests.unit.client.kit import BROKER_A, BROKER_B, NAMESRV, Cluster, routes_to

from turbopump.client.errors import Unreachable
from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import NameServers
from turbopump.client.routes import RoundRobin, RouteCache, TopicRoute, route_of
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import reply
from turbopump.protocol.errors import SystemBusy, TopicNotFound
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import run_virtual

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_a_route_is_asked_once_and_kept() -> None:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 2}, {"a": BROKER_A}))
    routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))

    async def twice() -> None:
        route = await routes.find("t")
        assert route.publish == (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1))
        assert route.master("a") == BROKER_A
        assert await routes.find("t") is route

    run_virtual(twice())
    assert cluster.times_asked(ROUTE) == 1


def test_when_one_name_server_is_down_the_next_is_asked() -> None:
    cluster = Cluster()
    cluster.on("second:9876", ROUTE, routes_to({"t": 1}, {"a": BROKER_A}))
    for seed in range(4):
        routes = RouteCache(NameServers(cluster, ["first:9876", "second:9876", "third:9876"], Chance(seed)))
        assert run_virtual(routes.find("t")).publish


def test_when_no_name_server_answers_the_failure_is_told() -> None:
    with pytest.raises(Unreachable, match=f"{NAMESRV}.*check name_servers="):
        run_virtual(RouteCache(NameServers(Cluster(), [NAMESRV], Chance(1))).find("t"))


def test_a_route_in_doubt_still_serves_while_no_name_server_answers() -> None:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 1}, {"a": BROKER_A}))
    routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))
    known = run_virtual(routes.find("t"))
    cluster.answers.clear()
    routes.doubt("t")
    assert run_virtual(routes.find("t")) == known


def test_a_topic_that_is_gone_is_not_found_any_more() -> None:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 1}, {"a": BROKER_A}))
    routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))
    run_virtual(routes.find("t"))
    cluster.on(NAMESRV, ROUTE, lambda request: reply(request, 17, "no such topic"))
    routes.doubt("t")
    with pytest.raises(TopicNotFound):
        run_virtual(routes.find("t"))


@pytest.fixture
def busy() -> tuple[RouteCache, TopicRoute]:
    """A route that is known, of a name server that has become busy."""
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 1}, {"a": BROKER_A}))
    routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))
    known = run_virtual(routes.find("t"))
    cluster.on(NAMESRV, ROUTE, lambda request: reply(request, ResponseCode.SYSTEM_BUSY, "busy"))
    return routes, known


def test_a_known_route_stays_when_a_name_server_refuses_to_renew_it(
    busy: tuple[RouteCache, TopicRoute],
) -> None:
    routes, known = busy
    run_virtual(routes.renew("t"))
    assert routes.known("t") == known


def test_a_route_in_doubt_still_serves_while_a_name_server_refuses(
    busy: tuple[RouteCache, TopicRoute],
) -> None:
    routes, known = busy
    routes.doubt("t")
    assert run_virtual(routes.find("t")) == known


def test_a_refusal_is_raised_to_one_who_asks_a_name_server_now_and_the_route_stays(
    busy: tuple[RouteCache, TopicRoute],
) -> None:
    routes, known = busy
    with pytest.raises(SystemBusy):
        run_virtual(routes.refresh("t"))
    assert routes.known("t") == known
    with pytest.raises(SystemBusy):
        run_virtual(routes.find("other"))


def test_a_route_stays_in_doubt_until_a_name_server_has_told_it() -> None:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 1}, {"a": BROKER_A}))
    routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))
    run_virtual(routes.find("t"))
    routes.doubt("t")
    cluster.on(NAMESRV, ROUTE, lambda request: reply(request, ResponseCode.SYSTEM_BUSY, "busy"))
    run_virtual(routes.find("t"))
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 1}, {"a": BROKER_B}))
    assert run_virtual(routes.find("t")).master("a") == BROKER_B


def test_a_new_topic_gets_at_most_four_queues_per_broker_of_the_pattern() -> None:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to({"TBW102": 8}, {"a": BROKER_A, "b": BROKER_B}))
    route = run_virtual(RouteCache(NameServers(cluster, [NAMESRV], Chance(1))).find_or_template("new"))
    assert len(route.publish) == 8
    assert {queue.topic for queue in route.publish} == {"new"}


def test_queues_are_taken_in_turn() -> None:
    queues = [MessageQueue("t", "a", number) for number in range(3)]
    choice = RoundRobin(Chance(1))
    assert {choice.choose(queues) for _ in range(3)} == set(queues)


def test_a_broker_that_failed_is_avoided_when_there_is_another() -> None:
    queues = [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)]
    choice = RoundRobin(Chance(1))
    assert {choice.choose(queues, avoid="a").broker for _ in range(5)} == {"b"}
    assert choice.choose(queues[:2], avoid="a").broker == "a"


def test_an_order_topic_says_by_itself_to_which_queues_one_can_send() -> None:
    queues = [bodies.QueueData(brokerName=name, perm=6, readQueueNums=4, writeQueueNums=4) for name in "ab"]
    brokers = [bodies.BrokerData(brokerName=name, brokerAddrs={0: BROKER_A}) for name in "ab"]
    told = bodies.TopicRouteData(orderTopicConf="b:2;c", queueDatas=queues, brokerDatas=brokers)
    route = route_of("t", told)
    assert route.publish == (MessageQueue("t", "b", 0), MessageQueue("t", "b", 1))
    assert len(route.subscribe) == 8


def test_an_answer_that_says_the_same_leaves_the_route_as_it_is() -> None:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 2}, {"a": BROKER_A}))
    routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))
    first = run_virtual(routes.refresh("t"))
    assert run_virtual(routes.refresh("t")) is first
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 3}, {"a": BROKER_A}))
    assert len(run_virtual(routes.refresh("t")).publish) == 3
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 2}, {"a": BROKER_A}))
    assert run_virtual(routes.refresh("t")) == first


@pytest.mark.parametrize(("code", "remark"), [(17, "no such topic"), (1, "name server not ready")])
def test_a_poll_that_is_refused_leaves_the_old_route(code: int, remark: str) -> None:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to({"t": 1}, {"a": BROKER_A}))
    routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))
    known = run_virtual(routes.find("t"))
    cluster.on(NAMESRV, ROUTE, lambda request: reply(request, code, remark))
    run_virtual(routes.refresh_known([]))
    assert routes.known("t") == known


def test_clients_of_a_name_server_that_is_down_spread_over_the_others_and_stay_there() -> None:
    cluster = Cluster()
    for name in ("second:9876", "third:9876"):
        cluster.on(name, ROUTE, routes_to({"t": 1}, {"a": BROKER_A}))
    moved_to = []
    for seed in range(30):
        servers = NameServers(cluster, ["first:9876", "second:9876", "third:9876"], Chance(seed))
        routes = RouteCache(servers)
        cluster.asked.clear()
        run_virtual(routes.refresh("t"))
        run_virtual(routes.refresh("t"))
        asked = [address for address, _ in cluster.asked]
        if asked[0] == "first:9876":
            assert asked[1:] == 2 * [asked[-1]]
            moved_to.append(asked[-1])
    assert set(moved_to) == {"second:9876", "third:9876"}
