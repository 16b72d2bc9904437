"""Fields and bodies of requests that name topic T and group G of somebody else wherever they can."""

import json
from typing import Any

from tests.unit.broker.desk import letters

from turbopump.protocol.codes import RequestCode as Code

FOREIGN: dict[str, Any] = {
    **letters("T"),
    "topic": "T",
    "originTopic": "T",
    "consumerGroup": "G",
    "group": "G",
    "groupName": "G",
    "groupList": "G",
    "srcGroup": "G",
    "destGroup": "G",
    "compareGroup": "G",
    "producerGroup": "PG",
    "id": "ledger-1",
    "queueId": 0,
    "queueOffset": 0,
    "offset": 0,
    "commitLogOffset": 0,
    "commitOffset": 0,
    "tranStateTableOffset": 0,
    "commitOrRollback": 8,
    "msgId": "7F00000100002A9F0000000000000000",
    "maxMsgNums": 32,
    "sysFlag": 4,
    "suspendTimeoutMillis": 0,
    "subVersion": 0,
    "timestamp": 0,
    "key": "k",
    "maxNum": 1,
    "beginTimestamp": 0,
    "endTimestamp": 1,
    "delayLevel": 0,
    "clientID": "c",
    "clientId": "c",
}
QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
SUBSCRIPTION = {"topic": "T", "subString": "*", "expressionType": "TAG"}
BODIES: dict[int, object] = {
    Code.HEART_BEAT: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [SUBSCRIPTION]}],
    },
    Code.LOCK_BATCH_MQ: {"consumerGroup": "G", "clientId": "c", "mqSet": [QUEUE]},
    Code.UNLOCK_BATCH_MQ: {"consumerGroup": "G", "clientId": "c", "mqSet": [QUEUE]},
    Code.CHECK_CLIENT_CONFIG: {"clientId": "c", "group": "G", "subscriptionData": SUBSCRIPTION},
    Code.QUERY_ASSIGNMENT: {"consumerGroup": "G", "topic": "T", "clientId": "c"},
    Code.SET_MESSAGE_REQUEST_MODE: {"consumerGroup": "G", "topic": "T", "mode": "PULL"},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "G"},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [{"groupName": "G"}]},
    Code.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [{"topicName": "T"}]},
    Code.BATCH_ACK_MESSAGE: {"acks": [{"c": "G", "t": "T"}]},
}


def foreign_body(code: int) -> bytes:
    return json.dumps(BODIES[code]).encode() if code in BODIES else b""
