"""Configuration of consumer groups: whether they may read, and how often a message is retried.

In: lookups and changes from the handlers. Out: groups, or a refusal with Apache's text; every change calls
`on_change`, which writes it to disk. The connected members of a group are in `members.py`.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from turbopump.broker import attributes
from turbopump.broker.config import GroupRules
from turbopump.broker.topics import FAQ, MAX_QUEUES
from turbopump.protocol import names
from turbopump.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from turbopump.protocol.errors import GroupNotFound, InvalidParameter, Refused
from turbopump.protocol.permissions import READ
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

CREATED_LINES = 20  # log lines about groups that clients create, per ...
CREATED_INTERVAL_S = 1.0  # ... a burst of thousands would stall the broker with its own log


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """Configuration of a consumer group: properties for what this broker uses, all fields in `config`."""

    config: SubscriptionGroupConfig

    @property
    def name(self) -> str:
        return self.config.groupName

    @property
    def consume_enable(self) -> bool:
        return self.config.consumeEnable

    @property
    def notifies_members(self) -> bool:
        return self.config.notifyConsumerIdsChangedEnable

    @property
    def may_broadcast(self) -> bool:
        return self.config.consumeBroadcastEnable

    @property
    def retry_queues(self) -> int:
        return min(self.config.retryQueueNums, MAX_QUEUES)  # a file of Apache's may have any number

    @property
    def retry_max_times(self) -> int:
        return self.config.retryMaxTimes

    @property
    def sys_flag(self) -> int:
        return self.config.groupSysFlag or 0


class SubscriptionGroups:
    """Table of the consumer groups' configurations, kept in subscriptionGroup.json."""

    def __init__(self, rules: GroupRules, clock: Clock, light_queues: bool = False) -> None:
        """With `light_queues`, any name that begins with %LMQ% is a group, without an entry in the table."""
        self._rules = rules
        self._light_queues = light_queues
        self._clock = clock
        self._table = _built_in()
        self._created = RateLimitedLog(log, CREATED_INTERVAL_S, logging.INFO, CREATED_LINES)
        self._forbidden: dict[str, dict[str, int]] = {}  # group -> topic -> bits; only READ is used here
        self.version = DataVersion(counter=0, stateVersion=0, timestamp=clock.now_ms())
        self.on_change: Callable[[], None] = lambda: None

    def configure(self, rules: GroupRules) -> None:
        self._rules = rules

    def find(self, name: str) -> SubscriptionGroup | None:
        group = self._table.get(name)
        if group is None and self.is_light(name):
            return SubscriptionGroup(SubscriptionGroupConfig(groupName=name))
        return group

    def is_light(self, name: str) -> bool:
        return self._light_queues and name.startswith(names.LIGHT_PREFIX)

    def all(self) -> list[SubscriptionGroup]:
        return list(self._table.values())

    def for_consume(self, name: str) -> SubscriptionGroup:
        """Returns the group, created with defaults if that is allowed; raises GroupNotFound if it is not."""
        group = self.find_or_create(name)
        if group is None:
            raise GroupNotFound(f"subscription group [{name}] does not exist, {FAQ}")
        return group

    def find_or_create(self, name: str) -> SubscriptionGroup | None:
        """Returns the group, created with defaults if allowed; None if unknown and not allowed."""
        group = self.find(name)
        if group is not None or not self._may_create(name):
            return group
        self._created.log(self._clock.monotonic(), "Consumer group %s is created", name)
        group = self._table[name] = SubscriptionGroup(SubscriptionGroupConfig(groupName=name))
        self._changed()
        return group

    def update_all(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Creates or replaces groups; raises Refused, and changes none of them, if one is invalid.

        The attributes of a configuration are changes to those that the group has.
        """
        after = [self._accepted(config) for config in configs if not self.is_light(config.groupName)]
        for config in after:
            log.info("Consumer group %s is set", config.groupName)
            self._table[config.groupName] = SubscriptionGroup(config)
        if after:
            self._changed()

    def _accepted(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        names.check_group(config.groupName)
        if config.retryQueueNums > MAX_QUEUES:  # Apache takes any number
            raise InvalidParameter(
                f"retryQueueNums must be at most {MAX_QUEUES}, got {config.retryQueueNums}"
            )
        known = self._table.get(config.groupName)
        after = attributes.altered(
            known.config.attributes if known else None, config.attributes, attributes.OF_GROUPS
        )
        return msgspec.structs.replace(config, attributes=after)

    def is_forbidden(self, name: str, topic: str) -> bool:
        """Returns whether an operator has forbidden the group to read this topic."""
        return bool(self._forbidden) and self._forbidden.get(name, {}).get(topic, 0) & READ != 0

    def forbid(self, name: str, topic: str, may_read: bool) -> None:
        """Forbids a group to read one topic, or allows it again if `may_read`."""
        bits = self._forbidden.get(name, {}).get(topic, 0)
        after = bits & ~READ if may_read else bits | READ
        if after == bits:
            return
        log.info("Consumer group %s %s read %s", name, "may" if may_read else "may not", topic)
        topics = self._forbidden.setdefault(name, {})
        topics[topic] = after
        if not after:
            del topics[topic]
        if not topics:
            del self._forbidden[name]
        self._changed()

    def delete(self, name: str) -> bool:
        """Deletes the configuration of a group; returns whether the group existed."""
        self._forbidden.pop(name, None)
        if self._table.pop(name, None) is None:
            return False
        log.info("Consumer group %s is deleted", name)
        self._changed()
        return True

    def to_wire(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(
            dataVersion=self.version,
            forbiddenTable=self._forbidden,
            subscriptionGroupTable={name: group.config for name, group in self._table.items()},
        )

    def load(self, data: bytes) -> int:
        """Adds the groups of a subscriptionGroup.json to the built-in ones; returns how many the file has."""
        found = SubscriptionGroupWrapper.decode(data)
        for name, config in found.subscriptionGroupTable.items():
            self._table[name] = SubscriptionGroup(msgspec.structs.replace(config, groupName=name))
        self._forbidden = found.forbiddenTable or {}
        self.version = found.dataVersion
        return len(found.subscriptionGroupTable)

    def copy(self, data: bytes) -> None:
        """Makes the table that of a master's file, on a slave: groups that are not in it are gone."""
        before, self._table = self._table, _built_in()
        try:
            self.load(data)
        except BaseException:
            self._table = before
            raise
        self.on_change()

    def dump(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.to_wire()), indent=1)

    def _may_create(self, name: str) -> bool:
        is_system = self._rules.create_system_groups and name.startswith(names.SYSTEM_GROUP_PREFIX)
        if not (self._rules.auto_create or is_system):
            return False
        try:
            names.check_group(name)
        except Refused:
            return False
        return True

    def _changed(self) -> None:
        self.version = DataVersion(
            counter=self.version.counter + 1, stateVersion=0, timestamp=self._clock.now_ms()
        )
        self.on_change()


def _built_in() -> dict[str, SubscriptionGroup]:
    return {name: SubscriptionGroup(SubscriptionGroupConfig(groupName=name)) for name in names.SYSTEM_GROUPS}
