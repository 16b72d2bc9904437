"""Admin against a broker in memory: what tools and programs ask of a cluster."""

from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, MemoryCluster, cluster

from turbopump.client import discovery
from turbopump.client.admin import Admin, NotFound
from turbopump.client.admin.clusters import BrokerNotFound
from turbopump.client.admin.dead_letters import NoLetters
from turbopump.client.admin.groups import NoGroup
from turbopump.client.admin.offsets import END
from turbopump.client.errors import InvalidArgument, NoNameServer
from turbopump.client.message import MessageQueue
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from turbopump.protocol.errors import GroupNotFound, TopicNotFound
from turbopump.runtime.chance import Chance

QUEUES = tuple(MessageQueue("orders", "broker-a", number) for number in range(4))


def reader(town: MemoryCluster, **settings: Any) -> PullConsumer:
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    world = World(town.network, town.clock, Chance(1))
    return PullConsumer(
        "readers", topics={"orders": "paid"}, name_servers=NAMESRV, world=world, consume_from_where=first
    )


async def filled(town: MemoryCluster, count: int = 8) -> None:
    await town.create_topic("orders")
    for number in range(count):
        await town.send("orders", b"%03d" % number, tags="paid", keys=f"A-{number}")


async def read_all(town: MemoryCluster) -> None:
    async with reader(town) as consumer:
        while await consumer.poll(1):
            pass


# Where the name servers are


def test_without_an_address_it_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert Admin().asking.name_servers == ("127.0.0.1:9876",)
    with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
        Admin(name_server_domain="ns.example")
    with pytest.raises(InvalidArgument, match="host:port"):
        Admin("nowhere")
    with pytest.raises(InvalidArgument, match="use_tls"):
        Admin("127.0.0.1:9876", useTls=True)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="timeout"):
        Admin("127.0.0.1:9876", timeout=0)


def test_addresses_come_from_the_argument_the_process_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "c:3;d:4")
    assert Admin().name_servers.addresses == ("c:3", "d:4")
    discovery.configure(name_servers="b:2")
    try:
        assert Admin().name_servers.addresses == ("b:2",)
        assert Admin(["a:1", "a:2"]).name_servers.addresses == ("a:1", "a:2")
    finally:
        discovery.configure()


# Topics and queues


@virtual
async def test_a_topic_is_created_on_every_broker_that_has_another_and_deleted_everywhere() -> None:
    async with cluster(2) as town:
        admin = town.admin
        addresses = [broker.address for broker in town.brokers]
        config = TopicConfig(topicName="orders", readQueueNums=2, writeQueueNums=2)
        assert await admin.topics.create_like("DefaultCluster", config) == addresses
        await town.registered()
        assert len((await admin.topics.queues("orders")).publish) == 4
        assert await admin.topics.clusters("orders") == ["DefaultCluster"]
        assert "DefaultCluster" in await admin.topics.system_names()
        await admin.topics.delete("orders")
        await town.registered()
        with pytest.raises(TopicNotFound):
            await admin.topics.route("orders")
        with pytest.raises(TopicNotFound):
            await admin.topics.create_like("nothing", config)


@virtual
async def test_where_a_queue_begins_and_ends_and_where_a_time_is_in_it() -> None:
    async with cluster() as town:
        began_ms = town.clock.now_ms()
        await filled(town)
        await town.clock.sleep(60)
        queues = town.admin.queues
        assert (await queues.min_offset(QUEUES[0]), await queues.max_offset(QUEUES[0])) == (0, 2)
        assert await queues.offset_at(QUEUES[0], 0) == 0
        assert began_ms <= await queues.earliest_store_time_ms(QUEUES[0]) <= town.clock.now_ms()
        assert await queues.offset_at(QUEUES[0], town.clock.now_ms()) == 2


# Groups


@virtual
async def test_what_a_group_reads_and_how_far_it_is() -> None:
    async with cluster() as town:
        await filled(town)
        await read_all(town)
        groups = town.admin.groups
        assert await groups.topics_read("readers") == ["orders"]
        spans = await groups.time_spans("readers", "orders")
        assert len(spans) == 4
        assert {span.delayTime for span in spans} == {0}
        assert await groups.subscription("readers", "orders") is None
        async with reader(town) as consumer:
            wanted = await groups.subscription("readers", "orders")
            assert wanted is not None
            assert wanted.subString == "paid"
            (positions,) = (await groups.member_positions("readers", "orders")).values()
            assert positions == dict.fromkeys(QUEUES, 2)
            assert consumer.assignment() == QUEUES
        with pytest.raises(NoGroup):
            await groups.topics_read("nobody")


@virtual
async def test_a_group_is_configured_and_can_be_kept_from_a_topic() -> None:
    async with cluster() as town:
        await filled(town)
        groups, address = town.admin.groups, town.brokers[0].address
        await groups.create(address, SubscriptionGroupConfig(groupName="readers", retryMaxTimes=5))
        assert (await groups.config(address, "readers")).retryMaxTimes == 5
        assert await groups.set_readable(address, "readers", "orders", False) is False
        assert await groups.set_readable(address, "readers", "orders", True) is True


# Offsets


@virtual
async def test_a_group_is_moved_whether_it_runs_or_not() -> None:
    async with cluster() as town:
        await filled(town)
        offsets = town.admin.offsets
        with pytest.raises(GroupNotFound):
            await offsets.reset_to("readers", "orders", END)
        await read_all(town)
        await offsets.reset_to("readers", "orders", 0)
        assert await offsets.committed("readers", QUEUES[0]) == 0
        await offsets.reset_to("readers", "orders", END)
        assert [await offsets.committed("readers", queue) for queue in QUEUES] == [2] * 4
        await offsets.reset_to("readers", "orders", 0)
        assert [await offsets.committed("readers", queue) for queue in QUEUES] == [0] * 4
        async with reader(town) as consumer:
            while await consumer.poll(1):
                pass
            await offsets.reset_to("readers", "orders", "1980-01-01T00:00:00Z")
            await town.clock.sleep(1)
            assert len(await consumer.poll(5)) == 2
        with pytest.raises(BrokerNotFound):
            await offsets.committed("readers", MessageQueue("orders", "broker-z", 0))


# The rest


@virtual
async def test_values_of_a_namespace_are_listed() -> None:
    async with cluster() as town:
        settings = town.admin.name_servers
        assert await settings.values("colours") == {}
        await settings.put_value("colours", "sky", "blue")
        await settings.put_value("colours", "grass", "green")
        assert await settings.values("colours") == {"sky": "blue", "grass": "green"}


@virtual
async def test_dead_letters_of_a_group() -> None:
    async with cluster() as town:
        await filled(town)
        async with reader(town) as consumer:
            (message, *_) = await consumer.poll(1)
            await consumer.send_back(message, delay_level=-1)
        await town.clock.sleep(1)
        letters = town.admin.dead_letters("readers")
        found = await letters.with_id(message.message_id)
        assert [one.body async for one in letters.within()] == [found.body] == [message.body]
        assert await letters.copies(found) == []
        await letters.resend(found)
        await town.clock.sleep(1)
        assert len(await letters.copies(found)) == 1
        with pytest.raises(NoLetters):
            _ = [one async for one in town.admin.dead_letters("nobody").within()]
        assert issubclass(NoLetters, NotFound)
