"""Commands for brokers."""

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster, golden

from turbopump.protocol.bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper, WireQueue
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import InvalidParameter
from turbopump.remoting.router import Answer, Request

BROKER_A, BROKER_B = "127.0.0.1:10911", "127.0.0.1:10921"


@virtual
async def test_the_status_of_a_broker_and_of_a_cluster() -> None:
    async with cluster(brokers=2) as town:
        one = await town.mqadmin("brokerStatus", "-b", BROKER_A)
        assert "brokerVersionDesc               : V5_5_0" in one.lines
        assert one.lines == sorted(one.lines)
        all_ = await town.mqadmin("brokerStatus", "-c", "DefaultCluster")
        assert f"{BROKER_A:<24} brokerVersionDesc               : V5_5_0" in all_.lines
        assert f"{BROKER_B:<24} brokerVersionDesc               : V5_5_0" in all_.lines
        in_json = (await town.mqadmin("brokerStatus", "-c", "DefaultCluster", "--json")).json["brokers"]
        assert [broker["address"] for broker in in_json] == [BROKER_A, BROKER_B]
        assert in_json[0]["figures"]["brokerVersionDesc"] == "V5_5_0"
        both = await town.mqadmin("brokerStatus", "-c", "DefaultCluster", "-b", BROKER_A)
        assert both.status == 2


@virtual
async def test_a_broker_of_the_cluster_that_is_away_does_not_hide_the_others() -> None:
    async with cluster(brokers=2) as town:
        town.network.break_connections("127.0.0.1")
        await town.brokers[1].stop()
        town.brokers.pop()
        printed = await town.mqadmin("brokerStatus", "-c", "DefaultCluster")
        assert printed.status == 0
        assert printed.out.startswith(BROKER_A)


@virtual
async def test_configuration_is_shown_and_changed() -> None:
    async with cluster(brokers=2) as town:
        shown = await town.mqadmin("getBrokerConfig", "-b", BROKER_A)
        assert shown.lines[0] == f"============{BROKER_A}============"
        assert f"{'brokerName':<50}=  broker-a" in shown.lines
        assert shown.lines[-1] == ""
        of_cluster = await town.mqadmin("getBrokerConfig", "-c", "DefaultCluster")
        titles = [line for line in of_cluster.lines if line.startswith("=")]
        assert titles == [f"============Master: {address}============" for address in (BROKER_A, BROKER_B)]
        in_json = (await town.mqadmin("getBrokerConfig", "-c", "DefaultCluster", "--json")).json
        assert [broker["config"]["brokerName"] for broker in in_json["brokers"]] == [
            "broker-a",
            "broker-b",
        ]


@virtual
async def test_a_change_of_configuration_goes_to_every_broker_that_takes_it() -> None:
    async with cluster(brokers=2) as town:
        change = ("updateBrokerConfig", "-k", "autoCreateTopicEnable", "-v", "false")
        golden(
            "broker_config",
            await town.mqadmin(*change, "-b", BROKER_A),
            await town.mqadmin(*change, "-c", "DefaultCluster"),
            await town.mqadmin(*change, "-c", "DefaultCluster", "-a", "true", "--json"),
            await town.mqadmin(*change, "-b", "127.0.0.1:1"),
            await town.mqadmin("updateBrokerConfig", "-k", "brokerName", "-v", "x", "-b", BROKER_A),
            await town.mqadmin("updateBrokerConfig", "-k", "brokerName", "-v", "x", "-c", "DefaultCluster"),
            await town.mqadmin(*change),
        )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("cleanExpiredCQ", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE),
        ("cleanUnusedTopic", RequestCode.CLEAN_UNUSED_TOPIC),
        ("deleteExpiredCommitLog", RequestCode.DELETE_EXPIRED_COMMITLOG),
    ],
)
@virtual
async def test_upkeep_is_asked_of_a_broker(command: str, code: RequestCode) -> None:
    async with cluster(brokers=0) as town:
        asked: list[int] = []

        def done(request: Request[None]) -> Answer:
            asked.append(request.command.code)
            return Answer()

        broker = await town.play(20911, {code: done})
        printed = await town.mqadmin(command, "-b", broker)
        assert (printed.status, printed.out) == (0, "success\n")
        assert (await town.mqadmin(command, "-b", broker, "--json")).json == {"brokers": [broker]}
        assert asked == [code, code]
        nowhere = await town.mqadmin(command, "-c", "Nowhere")
        assert (nowhere.status, nowhere.err) == (1, "there is no cluster Nowhere")


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"])
@virtual
async def test_our_own_brokers_do_the_upkeep(command: str) -> None:
    async with cluster(brokers=2) as town:
        assert (await town.mqadmin(command)).out == "success\n"
        done = await town.mqadmin(command, "-c", "DefaultCluster", "--json")
        assert done.json == {"brokers": [BROKER_A, BROKER_B]}


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "cleanUnusedTopic"])
@virtual
async def test_a_slave_that_leaves_the_upkeep_to_its_master_does_not_keep_others_from_it(
    command: str,
) -> None:
    async with cluster() as town:
        slave = await town.start_slave()
        done = await town.mqadmin(command, "-c", "DefaultCluster", "--json")
        assert (done.json, done.status) == ({"brokers": [BROKER_A]}, 0)
        assert "this broker is a slave, ask its master" in done.err
        asked = await town.mqadmin(command, "-b", slave)
        assert asked.status == 1
        assert "this broker is a slave, ask its master" in asked.err


@virtual
async def test_our_own_broker_tells_what_consumers_have_left() -> None:
    async with cluster() as town:
        printed = await town.mqadmin("brokerConsumeStats", "-b", BROKER_A)
        assert printed.lines[-1] == "Diff Total: 0"
        shown = (await town.mqadmin("brokerConsumeStats", "-b", BROKER_A, "--json")).json
        assert shown == {"brokerAddr": BROKER_A, "queues": [], "totalDiff": 0}


@virtual
async def test_what_consumers_have_left_on_a_broker() -> None:
    async with cluster(brokers=0) as town:
        offsets = {
            WireQueue("broker-a", number, "orders"): OffsetWrapper(
                brokerOffset=10,
                consumerOffset=10 - number,
                lastTimestamp=1_700_000_000_000 * (number > 0),
            )
            for number in range(3)
        }
        stats = ConsumeStatsList(
            brokerAddr="127.0.0.1:20911",
            consumeStatsList=[{"readers": [ConsumeStats(offsetTable=offsets)]}],
            totalDiff=3,
        )
        answers = {
            RequestCode.GET_BROKER_CONSUME_STATS: lambda request: Answer(body=stats.encode()),
        }
        broker = await town.play(20911, answers)
        golden(
            "broker_consume_stats",
            await town.mqadmin("brokerConsumeStats", "-b", broker),
            await town.mqadmin("brokerConsumeStats", "-b", broker, "-l", "2", "--json"),
            await town.mqadmin("brokerConsumeStats", "-b", broker, "-t", "soon"),
        )


@virtual
async def test_a_refusal_is_one_line() -> None:
    async with cluster(brokers=0) as town:

        def refuse(request: Request[None]) -> Answer:
            raise InvalidParameter("not now\nsee the FAQ")

        broker = await town.play(20911, {RequestCode.GET_BROKER_CONFIG: refuse})
        printed = await town.mqadmin("getBrokerConfig", "-b", broker)
        assert (printed.status, printed.err) == (
            1,
            "refused by 127.0.0.1:20911: INVALID_PARAMETER (29): not now",
        )
