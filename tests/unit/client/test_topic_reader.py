from tests.unit.client.kit import BROKER_A, NAMESRV, Cluster, Queues, record, routes_to

from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import NameServers
from turbopump.client.pull.puller import Puller
from turbopump.client.pull.topic_reader import TopicReader
from turbopump.client.routes import RouteCache
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import TopicNotFound
from turbopump.protocol.record import Record
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock, run_virtual

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
FIRST, SECOND = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)


async def from_the_first(queue: MessageQueue) -> int:
    return 0


def cluster_with(queues: Queues, topics: dict[str, int]) -> Cluster:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to(topics, {"a": BROKER_A}))
    queues.attach(cluster, BROKER_A)
    return cluster


def read(cluster: Cluster, count: int, tags: frozenset[str] = frozenset()) -> tuple[list[Record], list[str]]:
    taken: list[Record] = []
    notices: list[str] = []

    def take(one: Record, queue: MessageQueue) -> bool:
        assert queue.id == one.queue_id
        taken.append(one)
        return len(taken) < count

    async def run() -> None:
        routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))
        following = TopicReader(Puller(cluster, routes), routes, VirtualClock(), "t", tags, notices.append)
        await following.run(from_the_first, take)

    run_virtual(run())
    return taken, notices


def test_what_queues_hold_comes_in_the_order_of_storing() -> None:
    queues = Queues()
    queues.records[0] = [record(FIRST, offset, stored_ms) for offset, stored_ms in enumerate((10, 40, 50))]
    queues.records[1] = [record(SECOND, offset, stored_ms) for offset, stored_ms in enumerate((20, 30, 60))]
    taken, _ = read(cluster_with(queues, {"t": 2}), 6)
    assert [one.store_timestamp for one in taken] == [10, 20, 30, 40, 50, 60]


def test_reading_stops_when_there_is_enough() -> None:
    queues = Queues()
    queues.records[0] = [record(FIRST, offset, offset) for offset in range(5)]
    taken, _ = read(cluster_with(queues, {"t": 1}), 3)
    assert len(taken) == 3


def test_what_arrives_later_follows() -> None:
    queues = Queues()
    queues.records[0] = [record(FIRST, 0, 1)]

    def arrive() -> None:
        queues.records[0].append(record(FIRST, len(queues.records[0]), 2))

    queues.on_empty = arrive
    taken, _ = read(cluster_with(queues, {"t": 1}), 3)
    assert [one.queue_offset for one in taken] == [0, 1, 2]


def test_tags_are_compared_by_text() -> None:
    queues = Queues()
    queues.records[0] = [record(FIRST, 0, 1, tags="Aa"), record(FIRST, 1, 2, tags="BB")]  # equal hashes
    taken, _ = read(cluster_with(queues, {"t": 1}), 1, frozenset({"BB"}))
    assert taken[0].tags == "BB"


def test_a_topic_that_is_not_there_yet_is_waited_for_and_read_from_its_beginning() -> None:
    queues = Queues()
    queues.records[0] = [record(FIRST, 0, 1)]
    topics: dict[str, int] = {}
    cluster = cluster_with(queues, topics)
    answer = cluster.answers[NAMESRV, ROUTE]

    def appear_later(request: object) -> object:
        if cluster.times_asked(ROUTE) > 3:
            topics["t"] = 1
        return answer(request)  # type: ignore[arg-type]

    cluster.on(NAMESRV, ROUTE, appear_later)  # type: ignore[arg-type]
    taken, notices = read(cluster, 1)
    assert len(taken) == 1
    assert len(notices) == 1
    assert "waiting" in notices[0]


def test_a_broker_that_was_away_is_asked_again() -> None:
    queues = Queues()
    queues.records[0] = [record(FIRST, 0, 1)]
    cluster = cluster_with(queues, {"t": 1})
    pull, failures = queues.pull, [ConnectionResetError("gone"), TopicNotFound("not yet registered again")]

    def fail_first(request: object) -> object:
        if failures:
            raise failures.pop()
        return pull(request)  # type: ignore[arg-type]

    cluster.on(BROKER_A, RequestCode.PULL_MESSAGE, fail_first)  # type: ignore[arg-type]
    taken, notices = read(cluster, 1)
    assert len(taken) == 1
    assert len(notices) == 1  # said once, though it took two tries
