"""`Topics`, the topic table of this broker: lookup, creation, changes, and its form in files and on the wire.

In: lookups and changes from the handlers. Out: topics, or a refusal with Apache's remark; every change is
passed to `on_change`, which keeps it on disk and in the routes. No disk and no socket is touched here.
"""

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from turbopump.broker import attributes
from turbopump.broker.config import BrokerIdentity, TopicRules
from turbopump.protocol import names
from turbopump.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from turbopump.protocol.errors import InvalidParameter, SystemFailure, TopicNotFound
from turbopump.protocol.light import is_good as is_good_light_queue
from turbopump.protocol.permissions import INHERIT, READ_WRITE, permission_text
from turbopump.protocol.sysflag import UNIT, UNIT_SUBSCRIBED
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
MAX_QUEUES = 65_536
MAX_CREATED_LINES = 20  # in the log, about topics that clients create, per interval:
CREATED_INTERVAL_S = 1.0  # a burst of thousands would stall the broker with its own log
ADOPTED_QUEUES = 4  # as producers ask for when a send creates a topic
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic, immutable: a change puts a new `Topic` into the table, so look it up again afterwards."""

    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = READ_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Returns the text in which Apache's broker shows a topic in remarks."""
        pairs = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.name}, readQueueNums={self.read_queues}, "
            f"writeQueueNums={self.write_queues}, perm={permission_text(self.perm)}, "
            f"topicFilterType={self.filter_type}, topicSysFlag={self.sys_flag}, "
            f"order={str(self.order).lower()}, attributes={{{pairs}}}]"
        )

    def to_wire(self) -> TopicConfig:
        return TopicConfig(
            topicName=self.name,
            readQueueNums=self.read_queues,
            writeQueueNums=self.write_queues,
            perm=self.perm,
            topicFilterType=self.filter_type,
            topicSysFlag=self.sys_flag,
            order=self.order,
            attributes=dict(self.attributes),
        )


def from_wire(config: TopicConfig) -> Topic:
    return Topic(
        config.topicName,
        config.readQueueNums,
        config.writeQueueNums,
        config.perm,
        config.topicFilterType,
        config.topicSysFlag,
        config.order,
        dict(config.attributes or {}),
    )


OnChange = Callable[[list[Topic]], None]


class TopicTable:
    """The topic table. Calls `on_change` with new or changed topics; with [] if deleted or marked ordered."""

    def __init__(
        self, rules: TopicRules, identity: BrokerIdentity, clock: Clock, light_queues: bool = False
    ) -> None:
        """Creates the table with the built-in topics; `load` adds those of topics.json.

        `light_queues`: names that begin with %LMQ% are light queues, without an entry in the table.
        """
        self._rules = rules
        self._light_queues = light_queues
        self._clock = clock
        self._created = RateLimitedLog(log, CREATED_INTERVAL_S, logging.INFO, MAX_CREATED_LINES)
        built_in = built_in_topics(rules, identity)
        self._table: dict[str, Topic] = {topic.name: topic for topic in built_in}
        self._system = names.SYSTEM_TOPICS | self._table.keys()
        self.version = DataVersion(counter=0, stateVersion=0, timestamp=clock.now_ms())
        self.on_change: OnChange = lambda topics: None

    # looking up

    def find(self, name: str) -> Topic | None:
        topic = self._table.get(name)
        if topic is None and self.is_light(name):
            return Topic(name, 1, 1)
        return topic

    def is_light(self, name: str) -> bool:
        return self._light_queues and is_good_light_queue(name)

    def all(self) -> list[Topic]:
        return list(self._table.values())

    def is_system(self, name: str) -> bool:
        return name in self._system or names.is_system_topic(name)

    def system_names(self) -> list[str]:
        return sorted(self._system)

    # changing

    def configure(self, rules: TopicRules) -> None:
        """Replaces the rules. If the permission of the broker changed, calls `on_change` with all topics."""
        permission_changed = rules.permission != self._rules.permission
        self._rules = rules
        if permission_changed:
            self._changed(self.all())

    def for_send(
        self, name: str, default_topic: str, default_queues: int, unit_mode: bool, peer: tuple[str, int]
    ) -> Topic:
        """Returns the topic of a send, or creates it like `default_topic`. Raises TopicNotFound.

        Raises when the topic is unknown and may not be created. A retry topic is always created.
        """
        topic = self._table.get(name)
        if topic is not None:
            return topic
        is_retry = name.startswith(names.RETRY_PREFIX)
        sys_flag = (UNIT_SUBSCRIBED if is_retry else UNIT) if unit_mode else 0
        model = self._model(default_topic)
        if model is not None:
            queues = max(0, min(default_queues, model.write_queues))
            perm = model.perm & ~INHERIT
            self._log_created("Created topic %s, %d queues, by a send from %s:%d", name, queues, *peer)
            return self._put(Topic(name, queues, queues, perm, model.filter_type, sys_flag))
        if is_retry:
            return self.for_group(name, 1, sys_flag=sys_flag)
        raise TopicNotFound(f"topic[{name}] not exist, apply first please!{FAQ}")

    def for_group(
        self,
        name: str,
        queues: int,
        order: bool | None = None,
        sys_flag: int = 0,
        purpose: str = "for a consumer group",
    ) -> Topic:
        """Returns the retry or dead-letter topic `name`, created or enlarged to at least `queues` queues.

        `order` None leaves the order flag of an existing topic unchanged. A topic grows with the group's
        number of retry queues: no consumer reads messages beyond its queues.
        """
        topic = self._table.get(name)
        if topic is None:
            self._log_created("Created topic %s, %d queues, %s", name, queues, purpose)
            return self._put(Topic(name, queues, queues, READ_WRITE, sys_flag=sys_flag, order=bool(order)))
        if order is None:
            order = topic.order
        if topic.order == order and min(topic.read_queues, topic.write_queues) >= queues:
            return topic
        read_queues, write_queues = max(topic.read_queues, queues), max(topic.write_queues, queues)
        return self._put(replace(topic, order=order, read_queues=read_queues, write_queues=write_queues))

    def check_changeable(self, name: str) -> None:
        if self._rules.guard_system_topics and self.is_system(name):
            raise InvalidParameter(f"The topic[{name}] is conflict with system topic.")

    def update(self, wanted: Topic, changes: Mapping[str, str]) -> bool:
        """Creates or replaces a topic, with `changes` to its attributes. Returns whether anything changed."""
        return self.update_all([(wanted, changes)])

    def update_all(self, wanted: Iterable[tuple[Topic, Mapping[str, str]]]) -> bool:
        """Creates or replaces all of these topics, or none and raises. Returns whether anything changed.

        Each comes with the changes to its attributes. Light queues are skipped.
        """
        after = [self._checked(topic, changes) for topic, changes in wanted if not self.is_light(topic.name)]
        changed = [topic for topic in after if topic != self._table.get(topic.name)]
        for topic in changed:
            log.info("%s: %s", "Topic changed" if topic.name in self._table else "Topic created", topic)
            self._table[topic.name] = topic
        if changed:
            self._changed(changed)
        return bool(changed)

    def delete(self, name: str) -> bool:
        if not name or name.isspace():
            raise InvalidParameter("The specified topic is blank.")
        self.check_changeable(name)
        if self._table.pop(name, None) is None:
            return False
        log.info("Deleted topic %s", name)
        self._changed([])
        return True

    def mark_ordered(self, ordered: Iterable[str]) -> None:
        """Sets the order flag of those topics in `ordered` that exist: names from a name server."""
        found = [topic for name in ordered if (topic := self._table.get(name)) and not topic.order]
        for topic in found:
            self._table[topic.name] = replace(topic, order=True)
        if found:
            log.info(
                "Topics marked as ordered by a name server: %s", ", ".join(topic.name for topic in found)
            )
            self._changed([])

    # files and routes

    def load(self, data: bytes) -> int:
        """Adds the topics in the bytes of topics.json to the table, over built-in ones. Returns how many."""
        table = TopicConfigSerializeWrapper.decode(data)
        for name, config in table.topicConfigTable.items():
            topic = from_wire(config)
            self._table[name] = topic if topic.name == name else replace(topic, name=name)
        self.version = table.dataVersion
        return len(table.topicConfigTable)

    def copy(self, data: bytes) -> None:
        """Makes the table that of a master's topics.json, on a slave: topics that are not in it are gone."""
        before, self._table = self._table, {}
        try:
            self.load(data)
        except BaseException:
            self._table = before
            raise
        self._system |= before.keys() & names.SYSTEM_TOPICS
        changed = [topic for name, topic in self._table.items() if before.get(name) != topic]
        if changed or len(self._table) < len(before):
            self.on_change(changed)

    def merge(self, data: bytes) -> None:
        """Adds the topics of `data`, in the form of topics.json; those of the same name are replaced."""
        before = dict(self._table)
        self.load(data)
        if changed := [topic for name, topic in self._table.items() if before.get(name) != topic]:
            self.on_change(changed)

    def adopt(self, with_queues: Callable[[Container[str]], Mapping[str, int]]) -> None:
        """Adds a topic for each name that has queues in the store but no entry in the table.

        Such a topic was created, and messages in it acknowledged, just before a crash. `with_queues` returns
        the number of queues by topic, for topics outside of the given names.
        """
        for name, count in with_queues(self._table).items():
            if self.is_system(name) or name.startswith(names.LIGHT_PREFIX) or not is_valid(name):
                continue
            count = count if names.is_retry_or_dlq(name) else max(count, ADOPTED_QUEUES)
            log.warning(
                "Topic %s has messages but no entry in topics.json: restored with %d queues", name, count
            )
            self._put(Topic(name, count, count))

    def dump(self) -> bytes:
        """Returns the bytes of topics.json, which Apache's 4.9 and 5.x brokers can read too."""
        return msgspec.json.format(msgspec.json.encode(self.to_wire(self._table.values())), indent=1)

    def to_wire(self, topics: Iterable[Topic]) -> TopicConfigSerializeWrapper:
        table = {topic.name: topic.to_wire() for topic in topics}
        return TopicConfigSerializeWrapper(dataVersion=self.version, topicConfigTable=table)

    def registrations(self, names: Iterable[str] | None = None) -> TopicConfigSerializeWrapper:
        """Returns the topics in the form in which they are registered: all, or those in `names` that exist.

        No topic has more permission than the broker as a whole.
        """
        found = self.all() if names is None else [topic for name in names if (topic := self.find(name))]
        allowed = self._rules.permission
        if allowed & READ_WRITE != READ_WRITE:
            found = [replace(topic, perm=topic.perm & allowed) for topic in found]
        return self.to_wire(found)

    # parts

    def _model(self, default_topic: str) -> Topic | None:
        if default_topic == names.AUTO_CREATE_TOPIC and not self._rules.auto_create:
            return None
        model = self._table.get(default_topic)
        return model if model is not None and model.perm & INHERIT else None

    def _checked(self, wanted: Topic, changes: Mapping[str, str]) -> Topic:
        names.check_topic(wanted.name)
        self.check_changeable(wanted.name)
        if wanted.filter_type not in FILTER_TYPES:
            raise SystemFailure(f"topicFilterType = [{wanted.filter_type}] value invalid")
        queues = max(wanted.read_queues, wanted.write_queues)
        if queues > MAX_QUEUES:  # Apache accepts any number
            raise InvalidParameter(f"a topic must have at most {MAX_QUEUES} queues, got {queues}")
        if changes.get(f"+{attributes.MESSAGE_TYPE}") == "MIXED" and not self._rules.mixed_types:
            raise InvalidParameter("MIXED message type is not supported.")
        known = self._table.get(wanted.name)
        after = attributes.altered(known.attributes if known else None, changes)
        return replace(wanted, attributes=after)

    def _log_created(self, text: str, *args: object) -> None:
        self._created.log(self._clock.monotonic(), text, *args)

    def _put(self, topic: Topic) -> Topic:
        self._table[topic.name] = topic
        self._changed([topic])
        return topic

    def _changed(self, topics: list[Topic]) -> None:
        self.version = DataVersion(
            counter=self.version.counter + 1, stateVersion=0, timestamp=self._clock.now_ms()
        )
        self.on_change(topics)


def built_in_topics(rules: TopicRules, identity: BrokerIdentity) -> list[Topic]:
    """Returns the topics that a 5.5.0 broker has from the start, also those of features missing here.

    Those are empty and closed to senders, so tools that list or look for them find what they expect.
    """
    cluster, broker = identity.cluster_name, identity.broker_name
    one = [
        names.SELF_TEST_TOPIC,
        names.OFFSET_MOVED_TOPIC,
        f"{cluster}_{names.REPLY_POSTFIX}",
        names.HALF_TOPIC,
        names.OP_HALF_TOPIC,
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        names.TIMER_TOPIC,
    ]
    if rules.trace_topic:
        one.append(rules.trace_topic_name)
    topics = [Topic(name, 1, 1) for name in one]
    topics += [
        Topic(names.BENCHMARK_TOPIC, 1024, 1024),
        Topic(names.SCHEDULE_TOPIC, 18, 18),
        Topic(cluster, 16, 16, INHERIT | (READ_WRITE if rules.cluster_topic else 0)),
        Topic(broker, 1, 1, INHERIT | (READ_WRITE if rules.broker_topic else 0)),
        Topic(f"{names.REVIVE_PREFIX}{cluster}", rules.revive_queues, rules.revive_queues),
        Topic(f"{names.SYNC_MEMBER_PREFIX}{broker}", 1, 1, INHERIT),
    ]
    if rules.auto_create:
        queues = rules.default_queues
        topics.append(Topic(names.AUTO_CREATE_TOPIC, queues, queues, INHERIT | READ_WRITE))
    return topics


def is_valid(name: str) -> bool:
    try:
        names.check_topic(name)
    except InvalidParameter:
        return False
    return True
