"""Registers SQL92 filter expressions of consumer groups and turns them into filters of pulls.

In: subscriptions from heartbeats, the last member of a group leaving, the expression of a pull. Out:
predicates over property strings, or a refusal with Apache's texts and codes. An expression is parsed once,
when it is new. Registered expressions are stored in consumerFilter.json in Apache's format, for a day after
the group has left too: the bit maps of messages stored meanwhile include its bits.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec

from turbopump.broker.config import FilterRules
from turbopump.broker.consume.filter_modules import FilterModule, FilterModules
from turbopump.filter import BadExpression, Predicate, compile_sql
from turbopump.filter.bloom import BloomFilter, mask
from turbopump.protocol import properties
from turbopump.protocol.bodies import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
    SubscriptionData,
)
from turbopump.protocol.errors import (
    FilterDataNotFound,
    FilterDataNotLatest,
    SubscriptionUnreadable,
    SystemFailure,
)
from turbopump.protocol.names import RETRY_PREFIX, SQL92, TAG, WASM
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.store.queue_ext import Bits

log = logging.getLogger(__name__)

FILE = "consumerFilter.json"
TAG_TYPES = (None, "", TAG)
MAX_FILTERS = 10_000  # of all groups together; more are not registered, and their pulls are refused
MAX_PARSED = 1024  # parsed expressions that are cached, valid and invalid ...
MAX_PARSED_LENGTH = 4096  # ... if they are no longer than this; longer ones are parsed for each pull
LOADED_INACTIVE_MS = 30_000  # at a start, all consumers are taken to have left this long ago
MAX_TERMS_PER_PULL = 100_000  # terms evaluated for one pull, about 50 ms: then it is answered as it is
BAD_LINES = 10  # log lines about invalid expressions, per ...
BAD_INTERVAL_S = 60.0

Matches = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class PullFilter:
    """SQL92 filter of one pull: by bit maps, then by property strings of at most `max_scanned` messages."""

    matches: Matches
    max_scanned: int
    bits: Bits | None = None


@dataclass(slots=True)
class GroupFilter:
    """Registered SQL92 expression of one group for one topic, with its Bloom filter positions."""

    group: str
    topic: str
    expression: str
    kind: str
    client_version: int
    born_ms: int
    dead_ms: int
    positions: tuple[int, ...]
    predicate: Predicate | None
    """None when it was loaded from a file and is not a valid expression here."""

    @property
    def is_inactive(self) -> bool:
        """Whether the group's last consumer has left, or the group no longer subscribes to the topic."""
        return self.dead_ms >= self.born_ms


def is_tag(kind: str | None) -> bool:
    return kind in TAG_TYPES


def predicate_of(kind: str | None, expression: str | None) -> Predicate:
    """Returns the parsed SQL92 expression; raises SubscriptionUnreadable if kind or expression is invalid."""
    if kind != SQL92:
        raise SubscriptionUnreadable(f"the expression type must be TAG or {SQL92}, got {kind}")
    if not expression:
        raise SubscriptionUnreadable("the expression is empty")
    found = _read(expression) if len(expression) <= MAX_PARSED_LENGTH else _read.__wrapped__(expression)
    if isinstance(found, BadExpression):
        raise SubscriptionUnreadable(str(found))
    return found


@lru_cache(maxsize=MAX_PARSED)
def _read(expression: str) -> Predicate | BadExpression:
    try:
        return compile_sql(expression)
    except BadExpression as bad:
        return bad


class GroupFilters:
    """Table of the groups' registered filters; builds the filters of pulls and checks subscriptions."""

    def __init__(self, rules: FilterRules, clock: Clock, modules: FilterModules | None = None) -> None:
        self._rules = rules
        self._clock = clock
        self._modules = modules
        self.bloom = BloomFilter(rules.error_percent, rules.expected_groups)
        self._by_topic: dict[str, dict[str, GroupFilter]] = {}
        self._by_group: dict[str, dict[str, GroupFilter]] = {}
        self._count = 0
        self._complaints = RateLimitedLog(log, BAD_INTERVAL_S, logging.WARNING, BAD_LINES)
        self.version = 0
        """Grows when a filter is added, changed or removed: parked pulls then check theirs again."""
        self.on_change: Callable[[], None] = lambda: None

    def configure(self, rules: FilterRules) -> None:
        self._rules = rules

    # --- pulls ----------------------------------------------------------------------------------------

    def check(self, kind: str | None, expression: str | None) -> None:
        """Raises Refused if a subscription with this expression cannot be served; tags always can."""
        if kind == WASM:
            self.module(expression)
        elif not is_tag(kind):
            self._check_enabled(kind)
            predicate_of(kind, expression)

    def module(self, name: str | None) -> FilterModule:
        """Returns the loaded filter module `name`; raises Refused, with the reason, if there is none."""
        if self._modules is None:
            raise SystemFailure(f"The broker does not support consumer to filter message by {WASM}")
        found = self._modules.get(name or "")
        if found is None:
            why = self._modules.refused.get(name or "", "there is no module of that name")
            known = ", ".join(self._modules) or "none"
            raise SubscriptionUnreadable(f"filter module {name!r}: {why}; usable are: {known}")
        return found

    def of_pull(self, kind: str | None, expression: str | None) -> PullFilter:
        """Returns the filter for the SQL92 expression of a pull request; raises Refused if it is invalid."""
        if not expression:
            raise SubscriptionUnreadable("parse the consumer's subscription failed")
        self._check_enabled(kind)
        return _pull_filter(predicate_of(kind, expression))

    def of_group(self, group: str, topic: str, kind: str | None, version: int) -> PullFilter:
        """Returns the filter from a group's heartbeats; raises Refused if missing or before `version`."""
        found = self._by_topic.get(topic, {}).get(group)
        if found is None or found.predicate is None:
            raise FilterDataNotFound(
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
            )
        if found.client_version < version:
            raise FilterDataNotLatest("the consumer's consumer filter data not latest")
        self._check_enabled(kind)
        if self._rules.retries and topic.startswith(RETRY_PREFIX):
            return PullFilter(lambda message: self._matches_retried(group, message), MAX_TERMS_PER_PULL)
        bits = Bits(mask(found.positions), self.bloom.size // 8, found.born_ms)
        return replace(_pull_filter(found.predicate), bits=bits)

    def shown(self, group: str, topic: str) -> str | None:
        """Returns the group's registered filter as indented JSON, for tools; None if none is registered."""
        found = self._by_topic.get(topic, {}).get(group)
        if found is None:
            return None
        return msgspec.json.format(msgspec.json.encode(self._stored(found)), indent=1).decode()

    def bit_map(self, topic: str, message: bytes) -> bytes:
        """Returns the Bloom bits of all groups, inactive too, whose expressions match a message's properties.

        Empty when there are no expressions for the topic.
        """
        groups = self._by_topic.get(topic)
        if not groups:
            return b""
        bits = 0
        for one in groups.values():
            if one.predicate is not None and one.predicate.matches(message):
                bits |= mask(one.positions)
        return bits.to_bytes(self.bloom.size // 8, "little")

    def _check_enabled(self, kind: str | None) -> None:
        if not self._rules.enabled:
            raise SystemFailure(f"The broker does not support consumer to filter message by {kind}")

    def _matches_retried(self, group: str, message: bytes) -> bool:
        """Returns whether the group's expression for the original topic accepts a retry; True without one."""
        topic = properties.find(message, properties.RETRY_TOPIC)
        found = self._by_topic.get(topic or "", {}).get(group)
        return found is None or found.predicate is None or found.predicate.matches(message)

    # --- heartbeats -----------------------------------------------------------------------------------

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Registers the SQL92 subscriptions of a heartbeat; deactivates the filters of unlisted topics."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if subscription.expressionType not in (*TAG_TYPES, WASM) and subscription.subString:
                self._register(group, subscription)
        for topic, found in self._by_group.get(group, {}).items():
            if topic not in topics and not found.is_inactive:
                self._deactivate(found)

    def unregister(self, group: str) -> None:
        """Deactivates all filters of a group; called when its last consumer has left."""
        for found in self._by_group.get(group, {}).values():
            if not found.is_inactive:
                self._deactivate(found)

    def _register(self, group: str, told: SubscriptionData) -> None:
        known = self._by_group.get(group, {}).get(told.topic)
        if known is not None and told.subVersion <= known.client_version:
            if told.subVersion == known.client_version and known.is_inactive:
                self._activate(known)
            return
        is_same = known is not None and (told.subString, told.expressionType) == (
            known.expression,
            known.kind,
        )
        if known is not None and is_same:
            known.client_version = told.subVersion
            self._activate(known)
            return
        try:
            predicate = predicate_of(told.expressionType, told.subString)
        except SubscriptionUnreadable as bad:
            words = "Group %s has an invalid filter expression for topic %s: %s"
            self._complaints.log(self._clock.monotonic(), words, group, told.topic, bad.remark)
            if known is not None:
                self._remove(known)
            return
        if known is not None or self._count < MAX_FILTERS:
            self._add(self._new(group, told, predicate))

    def _new(self, group: str, told: SubscriptionData, predicate: Predicate) -> GroupFilter:
        return GroupFilter(
            group,
            told.topic,
            predicate.text,
            SQL92,
            told.subVersion,
            self._clock.now_ms(),
            0,
            self.bloom.positions(group, told.topic),
            predicate,
        )

    def _add(self, new: GroupFilter) -> None:
        self._count += new.group not in self._by_topic.get(new.topic, {})
        self._by_topic.setdefault(new.topic, {})[new.group] = new
        self._by_group.setdefault(new.group, {})[new.topic] = new
        self._changed()

    def _remove(self, old: GroupFilter) -> None:
        self._count -= 1
        for table, first, second in (
            (self._by_topic, old.topic, old.group),
            (self._by_group, old.group, old.topic),
        ):
            del table[first][second]
            if not table[first]:
                del table[first]
        self._changed()

    def _deactivate(self, found: GroupFilter) -> None:
        found.dead_ms = self._clock.now_ms()
        self._changed()

    def _activate(self, found: GroupFilter) -> None:
        found.dead_ms = 0
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.on_change()

    # --- file -----------------------------------------------------------------------------------------

    def load(self, data: bytes) -> int:
        """Adds the unexpired filters of a consumerFilter.json; returns how many. 0: of another Bloom filter.

        Nothing is loaded when its bits are those of another Bloom filter: they mean other groups.
        """
        stored = ConsumerFilterWrapper.decode(data)
        found = [
            one
            for topic in stored.filterDataByTopic.values()
            for one in topic.groupFilterData.values()
            if one.expressionType == SQL92 and one.consumerGroup and one.topic
        ]
        # A filter that was dropped has no bits in the messages stored since: it must not be loaded again.
        limit = self._clock.now_ms() - self._rules.keep_ms
        found = [one for one in found if not one.bornTime <= one.deadTime <= limit]
        if not all(self._is_valid(one.bloomFilterData) for one in found):
            log.info("%s was written with another Bloom filter and is ignored", FILE)
            return 0
        for one in found[:MAX_FILTERS]:
            self._add(self._loaded(one))
        return len(found)

    def _is_valid(self, data: BloomFilterData | None) -> bool:
        return (
            data is not None
            and data.bitNum == self.bloom.size
            and len(data.bitPos) == self.bloom.bits_per_group
            and all(0 <= position < self.bloom.size for position in data.bitPos)
        )

    def _loaded(self, one: ConsumerFilterData) -> GroupFilter:
        assert one.bloomFilterData is not None
        try:
            predicate = predicate_of(one.expressionType, one.expression)
        except SubscriptionUnreadable as bad:
            words = "%s: group %s has an invalid filter expression for topic %s: %s"
            log.warning(words, FILE, one.consumerGroup, one.topic, bad)
            predicate = None
        dead_ms = one.deadTime or max(self._clock.now_ms() - LOADED_INACTIVE_MS, one.bornTime)
        positions = tuple(one.bloomFilterData.bitPos)
        return GroupFilter(
            one.consumerGroup,
            one.topic,
            one.expression,
            one.expressionType,
            one.clientVersion,
            one.bornTime,
            dead_ms,
            positions,
            predicate,
        )

    def dump(self) -> bytes:
        """Drops filters that were inactive for too long, then returns the content of consumerFilter.json."""
        self._drop_expired()
        stored = ConsumerFilterWrapper(
            {
                topic: FilterDataMapByTopic(
                    {group: self._stored(one) for group, one in groups.items()}, topic
                )
                for topic, groups in self._by_topic.items()
            }
        )
        return msgspec.json.format(msgspec.json.encode(stored), indent=1)

    def _drop_expired(self) -> None:
        limit = self._clock.now_ms() - self._rules.keep_ms
        for groups in list(self._by_topic.values()):
            for one in list(groups.values()):
                if one.is_inactive and one.dead_ms <= limit:
                    self._remove(one)

    def _stored(self, one: GroupFilter) -> ConsumerFilterData:
        return ConsumerFilterData(
            BloomFilterData(self.bloom.size, list(one.positions)),
            one.born_ms,
            one.client_version,
            one.group,
            one.is_inactive,
            one.dead_ms,
            one.expression,
            one.kind,
            one.topic,
        )


def _pull_filter(predicate: Predicate) -> PullFilter:
    return PullFilter(predicate.matches, max(MAX_TERMS_PER_PULL // predicate.terms, 1))
