"""Commands that measure sends."""

import re

from tests.kit import virtual
from tests.unit.admin.kit import cluster


@virtual
async def test_messages_to_one_broker() -> None:
    async with cluster(brokers=2) as town:
        printed = await town.mqadmin("sendMsgStatus", "-b", "broker-b", "-c", "2", "-s", "10")
        assert printed.status == 0
        assert len(printed.lines) == 2
        shape = (
            r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, msgId=[0-9A-F]{32}, "
            r"offsetMsgId=[0-9A-F]{32}, messageQueue=MessageQueue \[topic=broker-b, "
            r"brokerName=broker-b, queueId=0\], queueOffset=1, recallHandle=null\]"
        )
        assert re.fullmatch(shape, printed.lines[0])
        found = (await town.mqadmin("sendMsgStatus", "-b", "broker-b", "-c", "3", "--json")).json
        assert [sent["queueOffset"] for sent in found] == [4, 5, 6]
        nobody = await town.mqadmin("sendMsgStatus", "-b", "broker-z", "-c", "0", "--json")
        assert nobody.json == []  # a topic of that name was created, as Apache's does


@virtual
async def test_the_time_of_sends_to_a_topic() -> None:
    async with cluster() as town:
        await town.create_topic("orders", queues=2)
        printed = await town.mqadmin("checkMsgSendRT", "-t", "orders", "-a", "3")
        assert [line.split() for line in printed.lines[:4]] == [
            ["#Broker", "Name", "#QID", "#Send", "Result", "#RT"],
            *(["broker-a", queue, "true", printed.lines[1].split()[-1]] for queue in "010"),
        ]
        assert re.fullmatch(r"Avg RT: \d+\.\d\d", printed.lines[4])
        found = (await town.mqadmin("checkMsgSendRT", "-t", "orders", "-a", "1", "--json")).json
        assert found["sends"][0]["sent"] is True
        assert found["averageRtMs"] == 0
        too_many = await town.mqadmin("checkMsgSendRT", "-t", "orders", "-a", "many")
        assert too_many.status == 2
