"""Heartbeats without subscriptions, for brokers that have them already (`use_heartbeat_v2`).

Pure. A broker of 5.x says in its answer that it supports them. From then on it gets the subscriptions again
only when they have changed, when it asks for them, or when its connection is new. The fingerprint tells it
whether its copy is current; versions are not part of it, because they differ between members.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from turbopump.protocol import bodies
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.headers.client import HeartbeatResponse


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A hash of the groups and subscriptions in a heartbeat, and the versions of the subscriptions."""

    number: int
    versions: tuple[int, ...]
    """Versions of the subscriptions: pulls name them, so a broker must have the newest."""

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
        number = java_hash(bare.encode().decode()) or 1  # 0 means a heartbeat of the first version
        return cls(number, tuple(one.subVersion for own in found for one in own))


@dataclass
class ShortHeartbeats:
    """Decides for each broker whether a heartbeat can leave out the subscriptions."""

    _told: dict[str, Fingerprint] = field(default_factory=dict)
    """Address → what a broker has that supports short heartbeats."""

    def message(self, address: str, described: bodies.HeartbeatData) -> bodies.HeartbeatData:
        """Returns the heartbeat for a broker, without subscriptions if that broker has the current ones."""
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
