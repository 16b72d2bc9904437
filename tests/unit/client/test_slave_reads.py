"""Which of a broker's servers is read: the master, the slave it suggests, or whoever is there."""

import json

import pytest
from tests.unit.client.kit import NAMESRV, Answer, Cluster

from turbopump.client.group.offsets import GroupOffsets
from turbopump.client.heartbeats import Heartbeats
from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import NameServers
from turbopump.client.pull.puller import Puller
from turbopump.client.routes import AWAY_S, Replica, RouteCache, TopicRoute
from turbopump.protocol import sysflag
from turbopump.protocol.bodies import ConsumerListBody, HeartbeatData
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.headers.pull import PullMessageRequest, PullMessageResponse
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock, run_virtual

MASTER, SLAVE = "127.0.0.1:10911", "127.0.0.1:10921"
QUEUE = MessageQueue("t", "a", 0)
PULL, LITE = RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE


def route(addresses: dict[int, str]) -> Answer:
    told = {
        "brokerDatas": [{"brokerAddrs": addresses, "brokerName": "a", "cluster": "c"}],
        "filterServerTable": {},
        "queueDatas": [{"brokerName": "a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}],
    }
    return lambda request: reply(request, body=json.dumps(told).encode())


def nothing_new(suggested: int = 0) -> Answer:
    """A server without new messages that says where to ask next."""
    ext = PullMessageResponse(suggested, 7, 0, 7).to_ext()
    return lambda request: reply(request, 19, ext=ext)


def cluster(master: Answer | None, slave: Answer | None) -> Cluster:
    played = Cluster()
    played.on(NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, route({0: MASTER, 1: SLAVE}))
    for address, answer in ((MASTER, master), (SLAVE, slave)):
        if answer is not None:
            for code in (PULL, LITE):
                played.on(address, code, answer)
    return played


def puller(played: Cluster) -> Puller:
    return Puller(played, RouteCache(NameServers(played, [NAMESRV], Chance(1))), "readers")


def pulled_from(played: Cluster) -> list[str]:
    return [address for address, request in played.asked if request.code in (PULL, LITE)]


def test_the_master_is_read_while_it_suggests_nothing_else() -> None:
    played = cluster(nothing_new(), nothing_new())

    async def scene() -> None:
        reading = puller(played)
        for _ in range(3):
            await reading.pull(QUEUE, 7)

    run_virtual(scene())
    assert pulled_from(played) == [MASTER] * 3


def test_a_suggested_slave_is_read_next_until_it_sends_back_to_the_master() -> None:
    played = cluster(nothing_new(1), nothing_new(0))

    async def scene() -> None:
        reading = puller(played)
        for _ in range(4):
            await reading.pull(QUEUE, 7)

    run_virtual(scene())
    assert pulled_from(played) == [MASTER, SLAVE, MASTER, SLAVE]


def test_a_suggestion_concerns_one_queue() -> None:
    played = cluster(nothing_new(1), nothing_new(1))

    async def scene() -> None:
        reading = puller(played)
        await reading.pull(QUEUE, 7)
        await reading.pull(MessageQueue("t", "a", 1), 7)

    run_virtual(scene())
    assert pulled_from(played) == [MASTER, MASTER]


def test_without_the_master_the_slave_is_read_within_the_same_call() -> None:
    played = cluster(None, nothing_new())

    async def scene() -> None:
        await puller(played).pull(QUEUE, 7)

    run_virtual(scene())
    assert pulled_from(played) == [MASTER, SLAVE]


def test_an_absent_master_is_not_tried_with_every_pull_and_is_read_again_when_it_is_back() -> None:
    played = cluster(None, nothing_new())

    async def scene() -> None:
        reading = puller(played)
        await reading.pull(QUEUE, 7)
        await reading.pull(QUEUE, 7)
        played.on(MASTER, PULL, nothing_new())
        await reading.pull(QUEUE, 7)
        await VirtualClock().sleep(AWAY_S + 1)
        await reading.pull(QUEUE, 7)

    run_virtual(scene())
    assert pulled_from(played) == [MASTER, SLAVE, SLAVE, SLAVE, MASTER]


def test_a_suggested_slave_that_is_not_there_is_no_reason_to_stop() -> None:
    played = cluster(nothing_new(1), None)

    async def scene() -> None:
        reading = puller(played)
        await reading.pull(QUEUE, 7)
        await reading.pull(QUEUE, 7)

    run_virtual(scene())
    assert pulled_from(played) == [MASTER, SLAVE, MASTER]


def test_when_nobody_is_there_the_first_failure_is_told() -> None:
    with pytest.raises(ConnectionRefusedError, match="10921"):
        run_virtual(puller(cluster(None, None)).pull(QUEUE, 7))


def test_a_master_that_is_there_and_silent_is_passed_over_by_the_next_call() -> None:
    def silent(request: Command) -> Command:
        raise TimeoutError

    played = cluster(silent, nothing_new())

    async def scene() -> None:
        reading = puller(played)
        with pytest.raises(TimeoutError):
            await reading.pull(QUEUE, 7)
        await reading.pull(QUEUE, 7)

    run_virtual(scene())
    assert pulled_from(played) == [MASTER, SLAVE]


def test_an_offset_travels_with_pulls_to_the_master_and_never_to_a_slave() -> None:
    played = cluster(nothing_new(1), nothing_new(0))

    async def scene() -> None:
        reading = puller(played)
        for _ in range(3):
            await reading.pull_as_member(QUEUE, 7, version=1, committed=5)

    run_virtual(scene())
    flags = [PullMessageRequest.from_ext(request.ext).sysFlag for _, request in played.asked[1:]]
    assert [bool(flag & sysflag.PULL_COMMIT_OFFSET) for flag in flags] == [True, False, True]


def test_a_commit_goes_to_the_slave_while_the_master_is_away() -> None:
    played = cluster(None, None)
    played.on(SLAVE, RequestCode.UPDATE_CONSUMER_OFFSET, reply)

    async def scene() -> None:
        routes = RouteCache(NameServers(played, [NAMESRV], Chance(1)))
        await GroupOffsets(played, routes, "readers").commit(QUEUE, 5)  # type: ignore[arg-type]

    run_virtual(scene())
    assert played.asked[-1][0] == SLAVE


def test_a_slave_tells_the_members_of_a_group_while_the_master_is_away() -> None:
    played = cluster(None, None)
    told = ConsumerListBody(consumerIdList=["one", "two"]).encode()
    played.on(SLAVE, RequestCode.GET_CONSUMER_LIST_BY_GROUP, lambda request: reply(request, body=told))

    async def scene() -> list[str]:
        routes = RouteCache(NameServers(played, [NAMESRV], Chance(1)))
        beats = Heartbeats(played, routes, VirtualClock(), lambda: ["t"], HeartbeatData)  # type: ignore[arg-type]
        return await beats.members("readers", "t")

    assert run_virtual(scene()) == ["one", "two"]


def test_lite_pulls_are_for_brokers_that_know_them() -> None:
    played = cluster(nothing_new(1), nothing_new(0))

    async def scene() -> None:
        routes = RouteCache(NameServers(played, [NAMESRV], Chance(1)))
        reading = Puller(played, routes, "readers", lite=True, versions={MASTER: 513, SLAVE: 407})
        for _ in range(2):
            await reading.pull(QUEUE, 7)

    run_virtual(scene())
    asked = [(address, request.code) for address, request in played.asked[1:]]
    assert asked == [(MASTER, LITE), (SLAVE, PULL)]


@pytest.mark.parametrize(
    ("known", "wanted", "away", "chosen"),
    [
        ({0: "m", 1: "s"}, 0, (), 0),
        ({0: "m", 1: "s"}, 1, (), 1),
        ({0: "m", 2: "s"}, 1, (), 2),
        ({0: "m", 3: "s"}, 1, (), 0),
        ({1: "s", 2: "t"}, 0, (), 1),
        ({0: "m", 1: "s"}, 0, ("m",), 1),
        ({0: "m", 1: "s"}, 0, ("m", "s"), 0),
    ],
)
def test_the_wanted_server_or_the_next_slave_or_any(
    known: dict[int, str], wanted: int, away: tuple[str, ...], chosen: int
) -> None:
    assert TopicRoute((), (), {"a": known}).replica("a", wanted, away) == Replica(chosen, known[chosen])


# A master that is away, and back


def routes_of(played: Cluster) -> RouteCache:
    return RouteCache(NameServers(played, [NAMESRV], Chance(1)))


def test_brokers_without_a_master_are_known_by_the_route() -> None:
    played = Cluster()
    played.on(NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, route({1: SLAVE}))

    async def scene() -> TopicRoute:
        return await routes_of(played).find("t")

    found = run_virtual(scene())
    assert (found.publish, found.without_master) == ((), ("a",))
    assert [queue.broker for queue in found.subscribe] == ["a"]


@pytest.mark.parametrize(("code", "requests"), [(19, 2), (20, 2), (0, 1)])
def test_a_slave_that_sends_readers_to_a_master_that_is_not_in_the_route_puts_it_in_doubt(
    code: int, requests: int
) -> None:
    played = cluster(None, lambda request: reply(request, code, ext=PullMessageResponse(0, 7, 0, 7).to_ext()))
    played.on(NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, route({1: SLAVE}))

    async def scene() -> None:
        reading = puller(played)
        await reading.pull(QUEUE, 7)
        await reading.pull(QUEUE, 7)

    run_virtual(scene())
    assert played.times_asked(RequestCode.GET_ROUTEINFO_BY_TOPIC) == requests


def test_while_the_route_has_the_master_no_answer_puts_it_in_doubt() -> None:
    played = cluster(nothing_new(), nothing_new())

    async def scene() -> None:
        reading = puller(played)
        await reading.pull(QUEUE, 7)
        await reading.pull(QUEUE, 7)

    run_virtual(scene())
    assert played.times_asked(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1


def test_a_server_that_comes_back_is_noticed_and_one_that_goes_is_not() -> None:
    played = Cluster()
    news: list[int] = []

    async def scene() -> None:
        routes = routes_of(played)
        routes.on_new_address = lambda: news.append(len(played.asked))
        for servers in ({0: MASTER, 1: SLAVE}, {1: SLAVE}, {1: SLAVE}, {0: MASTER, 1: SLAVE}):
            played.on(NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, route(servers))
            await routes.refresh("t")

    run_virtual(scene())
    assert news == [4]
