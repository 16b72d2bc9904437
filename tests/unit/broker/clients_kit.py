"""What the tests of clients share with others."""

from typing import Any

import msgspec


def beat(client: str, *groups: str, topics: tuple[str, ...] = ("T",), **fields: Any) -> bytes:
    consumers = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": fields.get("model", "CLUSTERING"),
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [
                {"topic": topic, "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
                for topic in topics
            ],
        }
        for group in groups
    ]
    body = {
        "clientID": client,
        "consumerDataSet": consumers,
        "producerDataSet": [{"groupName": name} for name in fields.get("producers", ())],
    }
    if "fingerprint" in fields:
        body |= {"heartbeatFingerprint": fields["fingerprint"], "withoutSub": fields.get("without", False)}
    return msgspec.json.encode(body)
