"""A request of every code that names one topic and one group wherever it can, and the routers' tables."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from unittest.mock import MagicMock

from turbopump import broker, namesrv, replication
from turbopump.protocol import batch, bodies, properties
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.dledger.codes import DLedgerRequestCode
from turbopump.remoting.router import Routes

TOPIC_FIELDS = ("topic", "b")
GROUP_FIELDS = ("consumerGroup", "group", "groupName", "compareGroup", "srcGroup", "destGroup", "id")


def request_of(code: int, topic: str = "T", group: str = "G") -> Command:
    """Returns a request with this topic and group in every field and body in which some request has one."""
    ext = dict.fromkeys(TOPIC_FIELDS, topic) | dict.fromkeys(GROUP_FIELDS, group)
    ext |= {"topicList": topic, "clientID": "client", "producerGroup": group}
    return Command(code, ext=ext, body=body_of(code, topic, group))


def body_of(code: int, topic: str, group: str) -> bytes:
    subscription = bodies.SubscriptionData(topic=topic)
    queue = bodies.WireQueue("broker-a", 0, topic)
    made: dict[int, bodies.Body] = {
        Code.HEART_BEAT: bodies.HeartbeatData(
            clientID="client",
            consumerDataSet=[bodies.ConsumerData(groupName=group, subscriptionDataSet=[subscription])],
            producerDataSet=[bodies.ProducerData(groupName="producers")],
        ),
        Code.CHECK_CLIENT_CONFIG: bodies.CheckClientRequestBody(group=group, subscriptionData=subscription),
        Code.LOCK_BATCH_MQ: bodies.LockBatchRequestBody(consumerGroup=group, mqSet=[queue]),
        Code.UNLOCK_BATCH_MQ: bodies.LockBatchRequestBody(consumerGroup=group, mqSet=[queue]),
        Code.QUERY_ASSIGNMENT: bodies.QueryAssignmentRequestBody(consumerGroup=group, topic=topic),
        Code.SET_MESSAGE_REQUEST_MODE: bodies.SetMessageRequestModeRequestBody(
            consumerGroup=group, topic=topic
        ),
        Code.BATCH_ACK_MESSAGE: bodies.BatchAckMessageRequestBody(acks=[bodies.BatchAck(c=group, t=topic)]),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: bodies.CreateTopicListRequestBody(
            topicConfigList=[bodies.TopicConfig(topicName=topic)]
        ),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: bodies.SubscriptionGroupConfig(groupName=group),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: bodies.CreateSubscriptionGroupListRequestBody(
            groupConfigList=[bodies.SubscriptionGroupConfig(groupName=group)]
        ),
    }
    if code == Code.LEDGER_SEND:
        own = properties.pack({properties.REAL_TOPIC: topic, properties.REAL_QUEUE_ID: "0"})
        return batch.join([(0, b"message", own.encode())])
    return made[code].encode() if code in made else b""


def codes() -> list[int]:
    """Returns every code that has a name: the servers', and those of DLedger's members."""
    return [*Code, *DLedgerRequestCode]


def name_of(code: int) -> str:
    found = next((kind(code) for kind in (Code, DLedgerRequestCode) if code in list(kind)), None)
    return (
        "?"
        if found is None
        else f"DLEDGER_{found.name}"
        if isinstance(found, DLedgerRequestCode)
        else found.name
    )


def handlers() -> Iterator[tuple[str, Routes]]:
    """Yields the module and the table of every class that has handlers of requests."""
    for package in (broker, namesrv, replication):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            for _, kind in inspect.getmembers(module, inspect.isclass):
                if kind.__module__ == found.name and "routes" in vars(kind):
                    yield found.name, kind.routes(MagicMock())
