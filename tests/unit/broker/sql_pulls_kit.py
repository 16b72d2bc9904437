"""What the tests of sql pulls share with others."""

from typing import Any

import msgspec
from tests.unit.broker.desk import Desk, records

from turbopump.protocol.codes import RequestCode, ResponseCode


async def numbered(desk: Desk, count: int, **pairs: str) -> None:
    for number in range(count):
        answer = await desk.send("T", b"%d" % number, pairs={"a": str(number), **pairs})
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def beat(desk: Desk, text: str, version: int = 1, **changes: Any) -> None:
    subscription = {"topic": "T", "subString": text, "subVersion": version, "expressionType": "SQL92"}
    consumer = {"groupName": "readers", "subscriptionDataSet": [subscription | changes]}
    data = {"clientID": "me", "consumerDataSet": [consumer]}
    answer = await desk.ask(RequestCode.HEART_BEAT, body=msgspec.json.encode(data))
    assert answer.code == 0


def bodies(answer: Any) -> list[bytes]:
    return [record.body for record in records(answer)]
