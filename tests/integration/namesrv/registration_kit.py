"""Registrations of brokers as they are sent to a name server."""

import json

from turbopump.protocol.command import Command

ADDRESS = "10.0.0.5:10911"


def registration(
    *topics: str, broker: str = "a", number: int = 0, address: str = ADDRESS, counter: int = 1, **fields: str
) -> Command:
    table = {
        name: {"topicName": name, "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0}
        for name in topics
    }
    wrapper = {"dataVersion": {"counter": counter, "timestamp": 1}, "topicConfigTable": table}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    return Command(103, ext=broker_fields(broker, number, address, **fields), body=body)


def broker_fields(
    broker: str = "a", number: int = 0, address: str = ADDRESS, **fields: str
) -> dict[str, str]:
    return {
        "brokerName": broker,
        "brokerAddr": address,
        "clusterName": "C",
        "haServerAddr": address + "1",
        "brokerId": str(number),
        **fields,
    }
