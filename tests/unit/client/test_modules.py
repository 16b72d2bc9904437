"""Choosing messages by a filter module of the broker, named by the consumer."""

from pathlib import Path

import pytest

from turbopump import Message, MessageExt
from turbopump.client.errors import InvalidArgument
from turbopump.protocol.errors import Refused
from turbopump.testing import Cluster

MODULES = Path(__file__).parents[3] / "examples" / "filters"


def test_consumers_get_what_the_module_that_they_name_wants() -> None:
    got: list[bytes] = []
    with Cluster(settings={"filterModulePath": str(MODULES)}) as cluster:
        topic = cluster.create_topic(queues=1)
        with cluster.producer() as producer:
            for number, region in enumerate(("EU", "US", "EU")):
                producer.send(Message(topic, b"%d" % number, properties={"region": region}))
        consumer = cluster.consumer("pushed")

        @consumer.on(topic, module="region_eu")
        def handle(message: MessageExt) -> None:
            got.append(message.body)

        with consumer, cluster.pull_consumer("pulled") as puller:
            cluster.wait_until_consumed("pushed", topic)
            (queue,) = puller.queues(topic)
            found = puller.pull(queue, 0, module="region_eu").messages
            assert [one.body for one in found] == [b"0", b"2"]
            with pytest.raises(Refused, match="filter module 'region_us': there is no module of that name"):
                puller.subscribe(topic, module="region_us")
    assert sorted(got) == [b"0", b"2"]


def test_a_broker_without_modules_says_so() -> None:
    with Cluster() as cluster:
        topic = cluster.create_topic()
        with cluster.pull_consumer("readers") as consumer, pytest.raises(Refused, match="WASM"):
            consumer.subscribe(topic, module="region_eu")


def test_what_cannot_name_a_module_is_refused_before_anybody_is_asked() -> None:
    with Cluster() as cluster, cluster.pull_consumer("readers") as consumer:
        with pytest.raises(InvalidArgument, match="letters, digits, _ and -"):
            consumer.subscribe("orders", module="../region_eu")
        with pytest.raises(InvalidArgument, match="only one of"):
            consumer.subscribe("orders", "paid", module="region_eu")
