"""Topics that clients can find: a broker answers before its name server knows what it has."""

from __future__ import annotations

import time

from turbopump.protocol.codes import RequestCode

from .asking import ask, asked
from .peers import Cluster

KNOWN_WITHIN_S = 90.0  # a registration that was lost on a busy machine is made again after 30 s
POLL_S = 0.05


def create(
    broker: Cluster, topic: str, queues: int, write_queues: int | None = None, *, order: bool = False
) -> str:
    """As mqadmin asks for it; returns when the name server has a route to it on this broker."""
    asked(
        broker.broker_addr,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues if write_queues is None else write_queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=order,
    )
    wait_known(broker, topic)
    return topic


def wait_known(broker: Cluster, topic: str) -> None:
    deadline = time.monotonic() + KNOWN_WITHIN_S
    while not _is_known(broker, topic):
        assert time.monotonic() < deadline, f"no route to {topic} on {broker.broker_addr}"
        time.sleep(POLL_S)


def _is_known(broker: Cluster, topic: str) -> bool:
    answer = ask(broker.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    return answer.code == 0 and f'"{broker.broker_addr}"'.encode() in answer.body
