"""Commands for whole clusters."""

import asyncio

from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster, golden

from turbopump.protocol.bodies import BrokerData, ClusterInfo, KVTable
from turbopump.protocol.codes import RequestCode
from turbopump.remoting.router import Answer

OLD_BROKER = {
    "brokerVersionDesc": "V4_9_7",
    "putTps": "12.5 13.0 14.0",
    "getTransferedTps": "3.25 0.0 0.0",
    "sendThreadPoolQueueSize": "1",
    "sendThreadPoolQueueHeadWaitTimeMills": "20",
    "pullThreadPoolQueueSize": "2",
    "pullThreadPoolQueueHeadWaitTimeMills": "30",
    "pageCacheLockTimeMills": "4",
    "earliestMessageTimeStamp": "1699992800000",
    "commitLogDiskRatio": "0.123456",
    "msgPutTotalYesterdayMorning": "10",
    "msgPutTotalTodayMorning": "30",
    "msgPutTotalTodayNow": "35",
    "msgGetTotalYesterdayMorning": "1",
    "msgGetTotalTodayMorning": "8",
    "msgGetTotalTodayNow": "9",
}


async def old_cluster(town: MemoryCluster) -> str:
    """Starts a name server with a broker of Apache 4.9, and a slave that does not answer."""
    broker = await town.play(
        20911,
        {RequestCode.GET_BROKER_RUNTIME_INFO: lambda request: Answer(body=KVTable(OLD_BROKER).encode())},
    )
    info = ClusterInfo(
        brokerAddrTable={
            "old": BrokerData(
                brokerName="old", cluster="OldCluster", brokerAddrs={0: broker, 1: "127.0.0.1:20921"}
            )
        },
        clusterAddrTable={"OldCluster": ["old", "forgotten"]},
    )
    return await town.play(
        19876, {RequestCode.GET_BROKER_CLUSTER_INFO: lambda request: Answer(body=info.encode())}
    )


@virtual
async def test_a_cluster_is_listed_with_the_load_of_its_brokers() -> None:
    async with cluster(brokers=0) as town:
        namesrv = await old_cluster(town)
        golden(
            "cluster",
            await town.mqadmin("clusterList", "-n", namesrv),
            await town.mqadmin("clusterList", "-m", "-n", namesrv),
            await town.mqadmin("clusterList", "-c", "OldCluster", "--json", "-n", namesrv),
            await town.mqadmin("clusterList", "-c", "Nowhere", "-n", namesrv),
        )


@virtual
async def test_our_own_brokers_are_listed() -> None:
    async with cluster(brokers=2) as town:
        printed = await town.mqadmin("clusterList")
        assert [line.split()[:5] for line in printed.lines[1:]] == [
            ["DefaultCluster", "broker-a", "0", "127.0.0.1:10911", "V5_5_0"],
            ["DefaultCluster", "broker-b", "0", "127.0.0.1:10921", "V5_5_0"],
        ]
        found = (await town.mqadmin("clusterList", "--json")).json["brokers"]
        assert [(broker["brokerName"], broker["active"]) for broker in found] == [
            ("broker-a", True),
            ("broker-b", True),
        ]


@virtual
async def test_with_an_interval_the_list_comes_again_until_it_is_interrupted() -> None:
    async with cluster() as town:
        listing = asyncio.ensure_future(town.mqadmin("clusterList", "-i", "3"))
        await town.clock.sleep(7)
        listing.cancel()
        printed = await listing
        assert printed.status == 0
        assert len([line for line in printed.lines if line.startswith("#Cluster Name")]) == 3


@virtual
async def test_the_time_of_sends_is_measured_until_it_is_interrupted() -> None:
    async with cluster(brokers=2) as town:
        for words in (("-a", "3"), ("-a", "3", "-p", "true", "-m", "attic"), ("-a", "2", "--json")):
            measuring = asyncio.ensure_future(town.mqadmin("clusterRT", "-c", "DefaultCluster", *words))
            await town.clock.sleep(5)
            measuring.cancel()
            printed = await measuring
            assert printed.status == 0
            if "--json" in words:
                assert [broker["successCount"] for broker in printed.json["brokers"]] == [2, 2]
            elif "-p" in words:
                assert printed.lines[0].split("|")[1:4] == ["attic", "DefaultCluster", "broker-a"]
            else:
                assert printed.lines[0].split() == [
                    *("#Cluster", "Name", "#Broker", "Name", "#RT", "#successCount", "#failCount")
                ]
                assert [line.split()[3:] for line in printed.lines[1:]] == [["3", "0"], ["3", "0"]]
