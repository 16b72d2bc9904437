"""Heartbeats without subscriptions, for brokers that have them already (`use_heartbeat_v2`).

Pure. A broker of 5.x says in its answer that it understands them. From then on it hears the subscriptions
again only when they have changed, when it asks for them, or when its connection is a new one. The fingerprint
tells it whether what it has is what we mean; versions are no part of that, since members differ in them.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from turbopump.protocol import bodies
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.headers.client import HeartbeatResponse


@dataclass(frozen=True, slots=True)
class Fingerprint:
    number: int
    versions: tuple[int, ...]
    """Of the subscriptions: pulls name them, so a broker must have heard the newest."""

    @classmethod
    def of(cls, described: bodies.HeartbeatData) -> "Fingerprint":
        groups = sorted(described.consumerDataSet, key=lambda one: one.groupName)
        found = [sorted(group.subscriptionDataSet, key=lambda one: one.topic) for group in groups]
        bare = replace(
            described,
            clientID="",
            consumerDataSet=[
                replace(group, subscriptionDataSet=[replace(one, subVersion=0) for one in own])
                for group, own in zip(groups, found, strict=True)
            ],
        )
        number = java_hash(bare.encode().decode()) or 1  # 0 is that of heartbeats of the first kind
        return cls(number, tuple(one.subVersion for own in found for one in own))


@dataclass
class ShortHeartbeats:
    _told: dict[str, Fingerprint] = field(default_factory=dict)
    """By address: what brokers have heard that understand short ones."""

    def message(self, address: str, described: bodies.HeartbeatData) -> bodies.HeartbeatData:
        """What to tell this broker."""
        mark = Fingerprint.of(described)
        marked = replace(described, heartbeatFingerprint=mark.number)
        if self._told.get(address) != mark:
            return marked
        without = [replace(one, subscriptionDataSet=[]) for one in described.consumerDataSet]
        return replace(marked, consumerDataSet=without, withoutSub=True)

    def heard(self, address: str, described: bodies.HeartbeatData, answer: HeartbeatResponse) -> None:
        if answer.IS_SUPPORT_HEART_BEAT_V2 and not answer.IS_SUB_CHANGE:
            self._told[address] = Fingerprint.of(described)
        else:
            self.forget(address)

    def forget(self, address: str) -> None:
        self._told.pop(address, None)
