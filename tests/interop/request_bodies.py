"""Every JSON body that a client, a tool or a broker sends to our servers, and how to see what it did.

A row has the body as Java writes it, and a function that sends bytes in its place and looks at the effect:
code of the answer first, then what the server tells of it afterwards. Names in the effect are replaced, and
what depends on the time is left out, so that effects can be compared between servers and kept.
"""

from __future__ import annotations

import json
import random
import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turbopump.protocol import dialect

from . import body_variants
from .asking import Answer, Line
from .clients import Answers, prefix
from .peers import Cluster
from .recordings import OLDER

RECORDED = "bodies"
NAME = "NAME"  # in a body: replaced by a name that no other variant uses
NUMBER = str(body_variants.NUMBER)  # likewise, by a number
OTHER = "Other"
SYSTEM_TOPIC = "SELF_TEST_TOPIC"
HEARTBEAT, LOCK, UNLOCK, CHECK, REGISTER, ROUTE = 34, 41, 42, 46, 103, 105
CREATE_TOPICS, ALL_TOPICS, CREATE_GROUP, ALL_GROUPS, CREATE_GROUPS = 18, 21, 200, 201, 225
CONSUMERS, PRODUCERS, STATUS_OF_CLIENT, STATUS = 203, 204, 221, 223
QUERY_VERSION, REGISTER_TOPIC, ASSIGNMENT, SET_MODE = 322, 217, 400, 401
OLD_VERSION = 0  # of a broker whose registration is the table alone
NOW = 1_700_000_000_000


@dataclass(frozen=True)
class Sent:
    """One variant on its way: the bytes, and the names it uses."""

    cluster: Cluster
    data: bytes
    name: str
    number: str
    """What was sent in place of the name, where a number was."""

    @property
    def names(self) -> tuple[str, ...]:
        """Under which the effect can be found."""
        return (self.name, self.number) if self.number.encode() in self.data else (self.name,)


@dataclass(frozen=True)
class RequestBody:
    kind: str
    """Of `turbopump.protocol.bodies`, and in parentheses in which form, where there are several."""

    body: dict[str, Any]
    effect: Callable[[Sent], Any]
    is_of_5: bool = False
    """4.9.7 does not know the request; its name server does not even answer."""


def observe(cluster: Cluster, only: str = "") -> Answers:
    """What each variant of each body did, by body and variant."""
    return {
        row.kind: {
            variant: _effect(row, cluster, data) for variant, data in body_variants.variants(row.body).items()
        }
        for row in REQUEST_BODIES
        if only in row.kind and not (row.is_of_5 and cluster.kind == OLDER)
    }


def _effect(row: RequestBody, cluster: Cluster, data: bytes) -> Any:
    name, number = prefix(), str(random.randrange(10**9, 2 * 10**9))
    for placeholder, unique in ((NAME, name), (NUMBER, number)):
        data = data.replace(placeholder.encode(), unique.encode())
    text = json.dumps(row.effect(Sent(cluster, data, name, number)), sort_keys=True)
    return json.loads(text.replace(name, NAME).replace(number, NUMBER))


def _outcome(answer: Answer, effect: Any = None) -> Any:
    """A refusal is its code alone: whatever it did besides is nobody's promise."""
    return {"code": answer.code} if answer.code or effect is None else {"code": 0, "effect": effect}


def _body(answer: Answer) -> Any:
    return dialect.loads(answer.body) if answer.code == 0 and answer.body else None


# --- to a broker -------------------------------------------------------------------------------------


def _heartbeat(sent: Sent) -> Any:
    with Line(sent.cluster.broker_addr) as line:
        answer = line.ask(HEARTBEAT, sent.data)
        consumers = [_body(line.ask(CONSUMERS, consumerGroup=name)) for name in sent.names]
        ext = {"topic": "any", "producerGroup": ""}
        producers = [_body(line.ask(PRODUCERS, **{**ext, "producerGroup": name})) for name in sent.names]
        return _outcome(
            answer,
            {
                "consumers": [_members(found) for found in consumers if found],
                "producers": [_connections(found) for found in producers if found],
            },
        )


def _members(found: dict[str, Any]) -> dict[str, Any]:
    enums = {name: found.get(name) or None for name in ("consumeType", "messageModel", "consumeFromWhere")}
    subscriptions = {
        topic: _subscription(subscription)
        for topic, subscription in found["subscriptionTable"].items()
        if not topic.startswith("%RETRY%")
    }
    return {"connections": _connections(found), **enums, "subscriptions": subscriptions}


def _subscription(found: dict[str, Any]) -> dict[str, Any]:
    """Without what is null, which is as good as absent, and without a version that is the present time."""
    version = found.get("subVersion") or 0
    kept = {**found, "subVersion": version if abs(version) < NOW else 0}
    for name in ("tagsSet", "codeSet"):
        kept[name] = sorted(item for item in found.get(name) or () if item is not None)
    return {name: value for name, value in kept.items() if value not in (None, [])}


def _connections(found: dict[str, Any]) -> list[str]:
    return sorted(connection.get("clientId") or "" for connection in found["connectionSet"])


def _check(sent: Sent) -> Any:
    with Line(sent.cluster.broker_addr) as line:
        return _outcome(line.ask(CHECK, sent.data))


def _locked(answer: Answer) -> Any:
    found = _body(answer)
    if found is None:
        return None
    return sorted((queue.get("topic") or "", queue["queueId"]) for queue in found.get("lockOKMQSet") or ())


def _lock(sent: Sent) -> Any:
    with Line(sent.cluster.broker_addr) as line:
        answer = line.ask(LOCK, sent.data)
        return _outcome(answer, _locked(answer))


def _unlock(sent: Sent) -> Any:
    """One client has two queues; another one then gets what was unlocked of them."""
    queues = [{"topic": sent.name, "brokerName": "broker-a", "queueId": number} for number in (0, 3)]
    with Line(sent.cluster.broker_addr) as line:
        _lock_for(line, sent.name, f"{sent.name}@1", queues)
        answer = line.ask(UNLOCK, sent.data)
        return _outcome(answer, _locked(_lock_for(line, sent.name, "second", queues)))


def _lock_for(line: Line, group: str, client: str, queues: list[dict[str, Any]]) -> Answer:
    wish = {"consumerGroup": group, "clientId": client, "mqSet": queues}
    return line.ask(LOCK, json.dumps(wish).encode())


def _group(sent: Sent, code: int) -> Any:
    with Line(sent.cluster.broker_addr) as line:
        answer = line.ask(code, sent.data)
        table = _body(line.ask(ALL_GROUPS))["subscriptionGroupTable"]
        return _outcome(answer, [_kept(table[name], GROUP_FIELDS) for name in sent.names if name in table])


def _topics(sent: Sent) -> Any:
    with Line(sent.cluster.broker_addr) as line:
        answer = line.ask(CREATE_TOPICS, sent.data)
        table = _body(line.ask(ALL_TOPICS))["topicConfigTable"]
        return _outcome(answer, [_kept(table[name], TOPIC_FIELDS) for name in sent.names if name in table])


def _kept(found: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: found[name] for name in names if found.get(name) is not None}


GROUP_FIELDS = (
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "groupSysFlag",
    "groupName",
    "brokerId",
    "consumeEnable",
    "consumeBroadcastEnable",
    "consumeFromMinEnable",
    "notifyConsumerIdsChangedEnable",
    "retryMaxTimes",
    "retryQueueNums",
    "whichBrokerWhenConsumeSlowly",
)
TOPIC_FIELDS = ("order", "perm", "readQueueNums", "topicFilterType", "topicSysFlag", "writeQueueNums")


def _assignment(sent: Sent) -> Any:
    with Line(sent.cluster.broker_addr) as line:
        _join(line, sent)
        return _outcome(line.ask(ASSIGNMENT, sent.data))


def _mode(sent: Sent) -> Any:
    with Line(sent.cluster.broker_addr) as line:
        _join(line, sent)
        return _outcome(line.ask(SET_MODE, sent.data))


def _join(line: Line, sent: Sent) -> None:
    """There is a member of the group, and so there is the group."""
    line.ask(HEARTBEAT, json.dumps(_heartbeat_of(sent.name, SYSTEM_TOPIC)).encode())


def _status(sent: Sent) -> Any:
    """The body is a client's answer to the broker, which hands on what it read."""
    beat = _heartbeat_of(sent.name, sent.name)
    with Line(sent.cluster.broker_addr, {STATUS_OF_CLIENT: sent.data}) as client:
        client.ask(HEARTBEAT, json.dumps(beat).encode(), version=VERSION_OF_STATUS)
        served = threading.Thread(target=client.serve_one, daemon=True)
        served.start()
        with Line(sent.cluster.broker_addr) as tool:
            answer = tool.ask(STATUS, topic=sent.name, group=sent.name, clientAddr="")
        served.join(5)
    found = _body(answer) or {}
    table = {
        client_id: sorted((key, offset) for key, offset in offsets.items())
        for client_id, offsets in (found.get("consumerTable") or {}).items()
    }
    return _outcome(answer, table)


VERSION_OF_STATUS = 407


def _heartbeat_of(name: str, topic: str) -> dict[str, Any]:
    return {
        "clientID": f"{name}@1",
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": name,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [
                    {
                        "classFilterMode": False,
                        "codeSet": [97],
                        "expressionType": "TAG",
                        "subString": "a",
                        "subVersion": 77,
                        "tagsSet": ["a"],
                        "topic": topic,
                    }
                ],
                "unitMode": False,
            }
        ],
        "producerDataSet": [{"groupName": name}],
    }


# --- to a name server --------------------------------------------------------------------------------


def _registered(sent: Sent, version: int, compressed: bool, data: bytes) -> Any:
    """The line stays open while it is looked at: a broker is gone with its connection."""
    ext = {
        "brokerName": sent.name,
        "brokerAddr": f"{sent.name}:1",
        "clusterName": sent.name,
        "haServerAddr": f"{sent.name}:2",
        "brokerId": 0,
        "compressed": compressed,
        "bodyCrc32": 0,
    }
    with Line(sent.cluster.namesrv) as line:
        answer = line.ask(REGISTER, data, version=version, **ext)
        routes = [_body(line.ask(ROUTE, topic=name)) for name in sent.names]
        stored = line.ask(QUERY_VERSION, b'{"counter":5,"timestamp":7}', **ext)
        return _outcome(
            answer,
            {
                "routes": [_route(found, sent.name) for found in routes if found],
                "changed": stored.ext.get("changed"),
            },
        )


def _route(found: dict[str, Any], broker: str) -> list[dict[str, Any]]:
    names = ("perm", "readQueueNums", "writeQueueNums", "topicSysFlag")
    return [_kept(queues, names) for queues in found["queueDatas"] if queues["brokerName"] == broker]


def _register(sent: Sent) -> Any:
    return _registered(sent, version=407, compressed=False, data=sent.data)


def _register_bare(sent: Sent) -> Any:
    return _registered(sent, version=OLD_VERSION, compressed=False, data=sent.data)


def _register_compressed(sent: Sent) -> Any:
    """The body is the data version that stands first in the compressed form."""
    topics = [_block(f"{name} 4 8 6 SINGLE_TAG".encode()) for name in (sent.name, OTHER)]
    blocks = [_block(sent.data), struct.pack(">i", len(topics)), *topics, _block(b"[]")]
    return _registered(sent, version=407, compressed=True, data=zlib.compress(b"".join(blocks)))


def _block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _query_version(sent: Sent) -> Any:
    table = {"dataVersion": {"counter": 5, "timestamp": 7}, "topicConfigTable": {}}
    body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()
    ext = {"brokerName": sent.name, "brokerAddr": f"{sent.name}:1", "clusterName": sent.name, "brokerId": 0}
    with Line(sent.cluster.namesrv) as line:
        line.ask(REGISTER, body, haServerAddr=f"{sent.name}:2", compressed=False, bodyCrc32=0, **ext)
        answer = line.ask(QUERY_VERSION, sent.data, **ext)
        return _outcome(answer, answer.ext.get("changed"))


def _register_topic(sent: Sent) -> Any:
    with Line(sent.cluster.namesrv) as line:
        answer = line.ask(REGISTER_TOPIC, sent.data, topic=sent.name)
        found = _body(line.ask(ROUTE, topic=sent.name))
        return _outcome(answer, _route(found, "broker-a") if found else [])


# --- the table ---------------------------------------------------------------------------------------

_QUEUES = [{"brokerName": "broker-a", "queueId": 3, "topic": NAME}]
_GROUP = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": False,
    "groupName": NAME,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 12,
    "retryQueueNums": 2,
    "whichBrokerWhenConsumeSlowly": 1,
}
_FIELDS_OF_5 = {
    "groupName": NAME,
    "attributes": {},
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 10,
    "groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7000}},
    "groupSysFlag": 0,
}
_TOPIC = {
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "MULTI_TAG",
    "topicName": NAME,
    "topicSysFlag": 0,
    "writeQueueNums": 8,
}
_VERSION = {"counter": 5, "timestamp": 7}
# A broker that is new and has one topic only is refused by 5.5.0, so there are two.
_TABLE = {"dataVersion": _VERSION, "topicConfigTable": {NAME: _TOPIC, OTHER: {"topicName": OTHER}}}
_LOCK = {"clientId": f"{NAME}@1", "consumerGroup": NAME, "mqSet": _QUEUES}
_EXPRESSION = {
    "classFilterMode": False,
    "expressionType": "SQL92",
    "subString": "a > 5",
    "subVersion": 77,
    "tagsSet": ["a"],
    "topic": NAME,
}
_ROUTE = {
    "brokerDatas": [{"brokerAddrs": {"0": "127.0.0.1:1"}, "brokerName": "broker-a", "cluster": "c"}],
    "queueDatas": [
        {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 8}
    ],
}

REQUEST_BODIES = (
    RequestBody("HeartbeatData", _heartbeat_of(NAME, NAME), _heartbeat),
    RequestBody(
        "CheckClientRequestBody",
        {"clientId": "c", "group": NAME, "namespace": "n", "subscriptionData": _EXPRESSION},
        _check,
    ),
    RequestBody("LockBatchRequestBody", _LOCK, _lock),
    RequestBody("UnlockBatchRequestBody", _LOCK, _unlock),
    RequestBody("SubscriptionGroupConfig", _GROUP, lambda sent: _group(sent, CREATE_GROUP)),
    RequestBody(
        "SubscriptionGroupConfig (of 5.x)",
        _FIELDS_OF_5,
        lambda sent: _group(sent, CREATE_GROUP),
        is_of_5=True,
    ),
    RequestBody(
        "CreateSubscriptionGroupListRequestBody",
        {"groupConfigList": [_GROUP]},
        lambda sent: _group(sent, CREATE_GROUPS),
        is_of_5=True,
    ),
    RequestBody("CreateTopicListRequestBody", {"topicConfigList": [_TOPIC]}, _topics, is_of_5=True),
    RequestBody(
        "GetConsumerStatusBody (an answer)",
        {"messageQueueTable": {'{"brokerName":"broker-a","queueId":3,"topic":"NAME"}': 5}},
        _status,
    ),
    RequestBody(
        "QueryAssignmentRequestBody",
        {
            "clientId": f"{NAME}@1",
            "consumerGroup": NAME,
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": SYSTEM_TOPIC,
        },
        _assignment,
        is_of_5=True,
    ),
    RequestBody(
        "SetMessageRequestModeRequestBody",
        {"consumerGroup": NAME, "mode": "PULL", "popShareQueueNum": 0, "topic": SYSTEM_TOPIC},
        _mode,
        is_of_5=True,
    ),
    RequestBody(
        "RegisterBrokerBody",
        {"filterServerList": [f"{NAME}:3"], "topicConfigSerializeWrapper": _TABLE},
        _register,
    ),
    RequestBody("TopicConfigSerializeWrapper (of an old broker)", _TABLE, _register_bare),
    RequestBody("DataVersion (compressed)", _VERSION, _register_compressed),
    RequestBody("DataVersion", _VERSION, _query_version),
    RequestBody("TopicRouteData", _ROUTE, _register_topic, is_of_5=True),
)
