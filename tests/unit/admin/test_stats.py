"""Incoming and outgoing rates of topics."""

from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster, golden

from turbopump.protocol.bodies import (
    BrokerData,
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    TopicList,
    TopicRouteData,
    WireQueue,
)
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import SystemFailure, TopicNotFound
from turbopump.remoting.router import Answer, Request

BROKER = "127.0.0.1:20911"


async def counted(town: MemoryCluster) -> str:
    """Two topics, one with a group that reads it, and a third that goes just then."""

    def route(request: Request[None]) -> Answer:
        if (request.command.ext or {})["topic"] == "gone":
            raise TopicNotFound("No topic route info in name server for the topic: gone")
        brokers = [BrokerData(brokerName="b", cluster="c", brokerAddrs={0: BROKER})]
        return Answer(body=TopicRouteData(brokerDatas=brokers).encode())

    def consumers(request: Request[None]) -> Answer:
        is_read = (request.command.ext or {})["topic"] == "orders"
        return Answer(body=GroupList(["readers"] if is_read else []).encode())

    def statistics(request: Request[None]) -> Answer:
        ext = request.command.ext or {}
        if ext["statsKey"] == "quiet":
            raise SystemFailure("The stats <TOPIC_PUT_NUMS> <quiet> not exist")
        assert ext["statsKey"] == ("orders" if ext["statsName"] == "TOPIC_PUT_NUMS" else "orders@readers")
        return Answer(
            body=BrokerStatsData(
                statsMinute=BrokerStatsItem(sum=60, tps=1.25),
                statsHour=BrokerStatsItem(sum=3600, tps=1.0),
            ).encode()
        )

    def progress(request: Request[None]) -> Answer:
        at = OffsetWrapper(brokerOffset=100, consumerOffset=58)
        return Answer(body=ConsumeStats(offsetTable={WireQueue("b", 0, "orders"): at}).encode())

    await town.play(
        20911,
        {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: consumers,
            RequestCode.VIEW_BROKER_STATS_DATA: statistics,
            RequestCode.GET_CONSUME_STATS: progress,
        },
    )
    topics = TopicList(topicList=["orders", "quiet", "gone", "%RETRY%readers"])
    return await town.play(
        19876,
        {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda request: Answer(body=topics.encode()),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        },
    )


@virtual
async def test_the_flow_through_every_topic() -> None:
    async with cluster(brokers=0) as town:
        namesrv = await counted(town)
        golden(
            "stats",
            await town.mqadmin("statsAll", "-n", namesrv),
            await town.mqadmin("statsAll", "-a", "-n", namesrv),
            await town.mqadmin("statsAll", "-t", "quiet", "-n", namesrv),
            await town.mqadmin("statsAll", "-t", "orders", "--json", "-n", namesrv),
        )


@virtual
async def test_our_own_broker_has_figures_for_it() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await town.clock.sleep(15)  # a broker counts from one sample, every ten seconds, to the next
        for _ in range(3):
            await town.send("orders")
        await town.clock.sleep(15)
        (flow,) = (await town.mqadmin("statsAll", "-t", "orders", "--json")).json["topics"]
        assert (flow["group"], flow["inMsg24Hour"]) == (None, 3)
