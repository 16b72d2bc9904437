"""Fixtures that pytest finds by itself: `cluster`, `producer`, `consumer`, `topic`, and `async_…` of each.

For async tests: `async_cluster`, `async_producer`, `async_consumer` and `async_topic`.

    def test_a_paid_order_is_billed(cluster, producer, consumer, topic):
        billed = []
        consumer.subscribe(topic, lambda message: billed.append(message.body))
        producer.send(Message(topic, b"A-1"))
        cluster.wait_until(lambda: billed)

One cluster, `turbopump_cluster`, serves the whole run: each test has its own topic and group. A test or
module marked `turbopump(brokers=2, clock="virtual", …)` gets its own cluster with these arguments. Nothing is
imported or started before a test uses it; your fixtures with the same names replace these.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from turbopump import Consumer, Producer, aio
    from turbopump.testing.blocking import Cluster
    from turbopump.testing.cluster import AsyncCluster

MARKER = "turbopump(brokers=1, clock='real', …): use a separate cluster with these arguments of Cluster"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def turbopump_cluster() -> "Iterator[Cluster]":
    """A cluster for the whole run, with one broker and the real clock."""
    from turbopump.testing.blocking import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """The cluster of the whole run, all its brokers up after each test; a new one if marked `turbopump`."""
    from turbopump.testing.blocking import Cluster

    marker = request.node.get_closest_marker("turbopump")
    if marker is not None:
        with Cluster(*marker.args, **marker.kwargs) as own:
            yield own
        return
    shared: Cluster = request.getfixturevalue("turbopump_cluster")
    yield shared
    for broker in shared.brokers:
        shared.start_broker(broker)  # the test may have stopped them


@pytest.fixture
def topic(cluster: "Cluster") -> str:
    """The name of a new topic with four queues."""
    return cluster.create_topic()


@pytest.fixture
def producer(cluster: "Cluster") -> "Iterator[Producer]":
    """A started producer."""
    with cluster.producer() as producer:
        yield producer


@pytest.fixture
def consumer(cluster: "Cluster") -> "Iterator[Consumer]":
    """A consumer of a new group, which starts with its first handler (`on` or `subscribe`)."""
    consumer = cluster.self_starting_consumer(cluster.new_group())
    yield consumer
    consumer.close()


# --- for async tests, by pytest-asyncio or anyio ---------------------------------------------------------


def _async_fixture() -> Callable[[Callable[..., Any]], Any]:
    """Returns the decorator of async fixtures: pytest-asyncio's if it is installed, else pytest's (anyio)."""
    if find_spec("pytest_asyncio") is None:
        return pytest.fixture
    own: Callable[[Callable[..., Any]], Any] = import_module("pytest_asyncio").fixture
    return own


async_fixture = _async_fixture()


@async_fixture
async def async_cluster(request: pytest.FixtureRequest) -> "AsyncIterator[AsyncCluster]":
    """A cluster in the event loop of the test, made with the arguments of the mark `turbopump`."""
    from turbopump.testing.cluster import AsyncCluster

    marker = request.node.get_closest_marker("turbopump")
    args, kwargs = (marker.args, marker.kwargs) if marker is not None else ((), {})
    async with AsyncCluster(*args, **kwargs) as cluster:
        yield cluster


@async_fixture
async def async_topic(async_cluster: "AsyncCluster") -> str:
    """The name of a new topic with four queues."""
    return await async_cluster.create_topic()


@async_fixture
async def async_producer(async_cluster: "AsyncCluster") -> "AsyncIterator[aio.Producer]":
    """A started producer of `turbopump.aio`."""
    async with async_cluster.producer() as producer:
        yield producer


@async_fixture
async def async_consumer(async_cluster: "AsyncCluster") -> "AsyncIterator[aio.Consumer]":
    """A consumer of `turbopump.aio` in a new group: add handlers, then `await consumer.start()`."""
    consumer = async_cluster.consumer(async_cluster.new_group())
    yield consumer
    await consumer.close()
