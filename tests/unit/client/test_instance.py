"""What clients of one process share, and what they do not."""

from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, MemoryCluster, cluster
from tests.unit.client import pulling

from turbopump.client.errors import InvalidArgument
from turbopump.client.instance import client_id, instances
from turbopump.client.produce.producer import Producer
from turbopump.client.push.consumer import Consumer
from turbopump.client.world import World
from turbopump.runtime.chance import Chance


def producer(town: MemoryCluster, group: str, **settings: Any) -> Producer:
    world = World(town.network, town.clock, Chance(1))
    return Producer(group, name_servers=NAMESRV, world=world, **settings)


@virtual
async def test_clients_are_apart_unless_they_have_one_instance_name() -> None:
    async with cluster() as town, producer(town, "a"), producer(town, "b"):
        assert len(instances().named) == 2, "also when chance would name them alike"
        async with producer(town, "c", instance_name="one"), producer(town, "d", instance_name="one"):
            assert len(instances().named) == 3
            assert set(instances().named["one"].producers) == {"c", "d"}
    assert not instances().named, "the last one out closes it"


@virtual
async def test_one_instance_has_a_group_once() -> None:
    async with cluster() as town, producer(town, "a", instance_name="one"):
        with pytest.raises(InvalidArgument, match="another group or another instance_name"):
            await producer(town, "a", instance_name="one").start()
        world = World(town.network, town.clock, Chance(1))
        reader = Consumer("a", name_servers=NAMESRV, world=world, instance_name="one")
        reader.subscribe("orders", print)
        async with reader:
            assert len(instances().named) == 1, "producers and consumers may have the same group"


@virtual
async def test_brokers_know_a_producer_and_a_consumer_of_one_instance_by_one_id() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        world = World(town.network, town.clock, Chance(1))
        reader = Consumer("readers", name_servers=NAMESRV, world=world, instance_name="one")
        reader.subscribe("orders", print)
        async with producer(town, "writers", instance_name="one"), reader:
            await town.clock.sleep(2)
            members = await instances().named["one"].heartbeats.members("readers", "orders")
            assert members == [reader.client_id] == ["127.0.0.1@one"]


def test_ids_are_apaches() -> None:
    assert client_id("10.0.0.1", "7#8") == "10.0.0.1@7#8"
    assert client_id("::1", "7#8", "unit") == "[::1]@7#8@unit"
    assert client_id("10.0.0.1", "7#8", "unit", is_stream=True) == "10.0.0.1@7#8@unit@STREAM"


@virtual
async def test_a_stream_has_an_instance_of_its_own_and_a_mark_on_every_request() -> None:
    async with cluster() as town:
        plain = producer(town, "a", instance_name="one")
        stream = producer(town, "b", instance_name="one", enable_stream_request_type=True)
        async with plain, stream:
            one, other = instances().named["one"], instances().named["one@STREAM"]
            assert (one.client_id, other.client_id) == ("127.0.0.1@one", "127.0.0.1@one@STREAM")
            assert (one.client.extra, other.client.extra) == ({}, {"ReqT": "0"})
        assert not instances().named


@virtual
async def test_pull_consumers_are_streams_as_apaches_are() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await town.send("orders")
        async with pulling.consumer(town) as reader:
            connected = await town.admin.connections.consumers("readers")
            assert [one.clientId.endswith("@STREAM") for one in connected.connectionSet] == [True]
            assert len(await pulling.all_of(reader)) == 1
