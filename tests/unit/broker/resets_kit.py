"""What the tests of resets share with others."""

from typing import Any

import msgspec

SUSPENDED = 2


def beat(client: str, group: str = "G", topic: str = "T", **changes: Any) -> bytes:
    subscription = {"topic": topic, "subString": "*", "subVersion": 1}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    return msgspec.json.encode({"clientID": client, "consumerDataSet": [consumer | changes]})
