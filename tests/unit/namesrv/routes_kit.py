"""What the tests of routes share with others."""

from typing import Any

from turbopump.namesrv.routes import (
    BrokerRegistration,
)
from turbopump.protocol.bodies import DataVersion, TopicConfig


def topic(name: str, queues: int = 4, perm: int = 6, flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topicName=name, readQueueNums=queues, writeQueueNums=queues, perm=perm, topicSysFlag=flag
    )


def topics(*names: str, **settings: int) -> dict[str, TopicConfig]:
    return {name: topic(name, **settings) for name in names}


def version(counter: int = 1, state: int = 0) -> DataVersion:
    return DataVersion(counter=counter, timestamp=1000, stateVersion=state)


def broker(name: str = "a", number: int = 0, **changes: Any) -> BrokerRegistration:
    values: dict[str, Any] = {
        "cluster": "C",
        "broker_name": name,
        "broker_id": number,
        "address": f"10.0.0.{ord(name[0])}:{10911 + number * 10}",
        "ha_address": f"ha-{name}-{number}",
        "version": version(),
        "topics": topics("T", "TBW102"),
    }
    return BrokerRegistration(**{**values, **changes})
