"""Commands for connections."""

import re

from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, Printed, cluster, golden

from turbopump.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command

BROKER_A = "127.0.0.1:10911"


async def heartbeat(town: MemoryCluster) -> None:
    beat = HeartbeatData(
        clientID="10.0.0.1@1",
        producerDataSet=[ProducerData(groupName="makers")],
        consumerDataSet=[
            ConsumerData(
                consumeFromWhere="CONSUME_FROM_LAST_OFFSET",
                consumeType="CONSUME_PASSIVELY",
                groupName="readers",
                messageModel="CLUSTERING",
                subscriptionDataSet=[
                    SubscriptionData(topic="orders", subString="paid || open", subVersion=1)
                ],
            )
        ],
    )
    request = Command(RequestCode.HEART_BEAT, language="JAVA", version=513, body=beat.encode())
    answer = await town.admin.client.call(BROKER_A, request, 5)
    assert answer.code == 0


def stable(printed: Printed) -> Printed:
    """Without ports and times."""
    out = re.sub(r"(127\.0\.0\.1):\d{5}\b", r"\1:ppppp", printed.out)
    return Printed(printed.words, printed.status, re.sub(r"\b17\d{11}\b", "17ttttttttttt", out), printed.err)


@virtual
async def test_producers_and_consumers_of_a_group() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await heartbeat(town)
        await town.registered()
        consumers = ("consumerConnection", "-g", "readers")
        producers = ("producerConnection", "-g", "makers", "-t", "orders")
        printed = [
            await town.mqadmin(*consumers),
            await town.mqadmin(*consumers, "-b", BROKER_A, "--json"),
            await town.mqadmin("consumerConnection", "-g", "nobody"),
            await town.mqadmin("consumerConnection", "-g", "nobody", "-b", BROKER_A),
            await town.mqadmin(*producers),
            await town.mqadmin(*producers, "--json"),
            await town.mqadmin("producerConnection", "-g", "nobody", "-t", "orders"),
            await town.mqadmin("producer", "-b", BROKER_A),
            await town.mqadmin("producer", "-b", BROKER_A, "--json"),
        ]
        golden("connection", *(stable(each) for each in printed))
