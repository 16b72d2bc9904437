"""Exports of a cluster to files."""

import json

from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster

BROKER_A = "127.0.0.1:10911"
BOTH = ("-c", "DefaultCluster", "-f", "/export")


async def filled(town: MemoryCluster) -> None:
    await town.create_topic("orders", queues=2)
    await town.create_topic("orders", queues=3, broker=1)
    made = await town.mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "readers")
    assert made.status == 0, made.err


@virtual
async def test_topics_and_groups() -> None:
    async with cluster(brokers=2) as town:
        await filled(town)
        printed = await town.mqadmin("exportMetadata", *BOTH)
        assert (printed.status, printed.out) == (0, "export /export/metadata.json success\n")
        written = json.loads(town.disk.read("/export/metadata.json"))
        assert list(written) == ["exportTime", "topicConfigTable", "subscriptionGroupTable"]
        assert list(written["topicConfigTable"]) == ["orders"]
        assert written["topicConfigTable"]["orders"]["writeQueueNums"] == 5
        assert written["subscriptionGroupTable"]["readers"]["retryQueueNums"] == 2
        shown = (await town.mqadmin("exportMetadata", *BOTH, "--json")).json
        assert shown["path"] == "/export/metadata.json"
        assert shown["exported"]["topicConfigTable"] == written["topicConfigTable"]


@virtual
async def test_parts_of_the_metadata() -> None:
    async with cluster(brokers=2) as town:
        await filled(town)
        for target in (("-c", "DefaultCluster"), ("-b", BROKER_A)):
            topics = await town.mqadmin("exportMetadata", *target, "-t", "-f", "/export")
            assert topics.out == "export /export/topic.json success\n"
            written = json.loads(town.disk.read("/export/topic.json"))
            assert "orders" in written["topicConfigTable"]
            assert "subscriptionGroupTable" not in written
            groups = await town.mqadmin("exportMetadata", *target, "-g", "-f", "/export")
            assert groups.out == "export /export/subscriptionGroup.json success\n"
            written = json.loads(town.disk.read("/export/subscriptionGroup.json"))
            assert list(written["subscriptionGroupTable"]) == ["readers"]
            assert "topicConfigTable" not in written
        everything = await town.mqadmin("exportMetadata", "-b", BROKER_A, "-f", "/export", "--json")
        assert set(everything.json["exported"]) == {
            "exportTime",
            "topicConfigTable",
            "subscriptionGroupTable",
        }


@virtual
async def test_configuration() -> None:
    async with cluster(brokers=2) as town:
        printed = await town.mqadmin("exportConfigs", *BOTH)
        assert printed.out == "export /export/configs.json success\n"
        written = json.loads(town.disk.read("/export/configs.json"))
        assert written["clusterScale"] == {
            "namesrvSize": 1,
            "masterBrokerSize": 2,
            "slaveBrokerSize": 0,
        }
        assert written["brokerConfigs"]["broker-b"]["brokerName"] == "broker-b"
        assert "listenPort" not in written["brokerConfigs"]["broker-b"]
        assert (await town.mqadmin("exportConfigs", *BOTH, "--json")).json["exported"] == written


@virtual
async def test_consume_stats() -> None:
    async with cluster(brokers=2) as town:
        await filled(town)
        printed = await town.mqadmin("exportMetrics", *BOTH)
        assert (printed.status, printed.out) == (0, "export /export/metrics.json success\n")
        written = json.loads(town.disk.read("/export/metrics.json"))
        quota = written["evaluateReport"]["broker-a"]["runtimeQuota"]
        assert (quota["topicSize"], quota["groupSize"]) == (1, 1)
        assert written["evaluateReport"]["broker-b"]["runtimeVersion"]["rocketmqVersion"] == "V5_5_0"
        assert written["totalData"]["totalTps"] == {
            "totalNormalInTps": 0.0,
            "totalNormalOutTps": 0.0,
            "totalTransInTps": 0.0,
            "totalScheduleInTps": 0.0,
        }
        assert written["totalData"]["totalOneDayNum"]["normalOneDayInNum"] == 0
        shown = (await town.mqadmin("exportMetrics", *BOTH, "--json")).json
        assert shown["exported"]["evaluateReport"].keys() == {"broker-a", "broker-b"}
        nowhere = await town.mqadmin("exportMetrics", "-c", "Nowhere")
        assert (nowhere.status, nowhere.err) == (1, "there is no cluster Nowhere")
