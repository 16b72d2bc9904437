"""Topics by their name: on every broker, without an address."""

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster

from turbopump.client.admin import TopicConfig
from turbopump.client.errors import InvalidArgument
from turbopump.protocol.errors import NoPermission


@virtual
async def test_a_topic_is_created_by_its_name_on_every_broker() -> None:
    async with cluster(2) as town:
        created = await town.admin.topics.create("orders", queues=5)
        assert sorted(created) == sorted(broker.address for broker in town.brokers)
        for broker in town.brokers:
            config = await town.admin.topics.config(broker.address, "orders")
            assert (config.readQueueNums, config.writeQueueNums, config.perm) == (5, 5, 6)
        await town.admin.topics.create("orders", queues=2, cluster="DefaultCluster", ordered=True)
        changed = await town.admin.topics.config(town.brokers[0].address, "orders")
        assert (changed.readQueueNums, changed.order) == (2, True)


@virtual
async def test_with_a_config_it_is_created_at_an_address_as_before() -> None:
    async with cluster(2) as town:
        first, second = (broker.address for broker in town.brokers)
        assert await town.admin.topics.create(first, TopicConfig(topicName="orders")) == [first]
        assert "orders" not in (await town.admin.topics.configs(second)).topicConfigTable


@virtual
async def test_what_cannot_be_a_topic_is_refused() -> None:
    async with cluster() as town:
        for queues in (0, -1, True, "8"):
            with pytest.raises(InvalidArgument, match="queues must be a whole number, at least 1"):
                await town.admin.topics.create("orders", queues=queues)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="only letters"):
            await town.admin.topics.create("127.0.0.1:10911")
        with pytest.raises(NoPermission):
            await town.admin.topics.create("orders", permission=9)
