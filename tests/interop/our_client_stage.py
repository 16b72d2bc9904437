"""What a story about our client has to play with: names of its own, clients, and handlers that remember."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from turbopump import (
    Admin,
    ConsumeFromWhere,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
)
from turbopump.errors import NotFound, Refused, TopicNotFound
from turbopump.protocol.bodies import TopicConfig

from . import artifacts, peers
from .peers import Cluster
from .workers import eventually

Facts = dict[str, Any]

MIB = 1 << 20
PATIENCE_S = 60.0
SEND_S = 30.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

Play: TypeAlias = Callable[["Stage"], Facts]
Enter: TypeAlias = Callable[[Play], Play]


@dataclass(frozen=True)
class Story:
    play: Play
    facts: Facts
    servers: tuple[str, ...]


class Stories(dict[str, Story]):
    """A table of stories by name, in which functions are entered by a decorator."""

    def tells(self, facts: Facts, servers: tuple[str, ...] = (peers.OURS, *artifacts.SERVERS)) -> Enter:
        """The function must tell these facts on these servers."""

        def enter(play: Play) -> Play:
            self[play.__name__] = Story(play, facts, servers)
            return play

        return enter


@dataclass(frozen=True)
class Old:
    """A topic whose first messages are gone; `half` is when the second half of the rest was sent."""

    topic: str
    half: float


@dataclass
class Stage:
    """What a story has: a cluster, names of its own and clients with the patience of a busy machine."""

    name: str
    cluster: Cluster
    home: Path
    old: Old
    settings: dict[str, Any] = field(default_factory=dict)

    def topic(self, more: str = "", queues: int = 4, perm: int = 6) -> str:
        """A new topic that clients can find."""
        name = f"{self.name}{more}"
        with self.admin() as admin:
            config = TopicConfig(topicName=name, readQueueNums=queues, writeQueueNums=queues, perm=perm)
            admin.topics.create(self.cluster.broker_addr, config)
            must(lambda: is_known(admin, name))
        return name

    def admin(self) -> Admin:
        return Admin(self.cluster.namesrv, timeout=SEND_S)

    def producer(self, **settings: Any) -> Producer:
        given = {"send_msg_timeout": SEND_S, **self.settings, **settings}
        return Producer(f"{self.name}-senders", name_servers=self.cluster.namesrv, **given)

    def consumer(self, more: str = "", **settings: Any) -> Consumer:
        given = {"consume_from_where": FIRST, **self.settings, **settings}
        return Consumer(f"{self.name}-readers{more}", name_servers=self.cluster.namesrv, **given)

    def pull_consumer(self, more: str = "", **settings: Any) -> PullConsumer:
        given = {"consume_from_where": FIRST, **self.settings, **settings}
        return PullConsumer(f"{self.name}-pullers{more}", name_servers=self.cluster.namesrv, **given)

    def send(self, producer: Producer, topic: str, *texts: str, **how: Any) -> None:
        for text in texts:
            producer.send(Message(topic, text.encode()), **how)

    def stored(self, topic: str, least: int = 0) -> list[MessageExt]:
        """All messages of a topic, in the order of its queues, when there are as many as that."""
        with self.pull_consumer("-census") as consumer:
            found: list[MessageExt] = []

            def all_there() -> bool:
                try:
                    queues = consumer.queues(topic)
                except TopicNotFound:  # a broker answers before the name server knows of a topic it created
                    return False
                found[:] = [one for queue in queues for one in all_of(consumer, queue)]
                return len(found) >= least

            must(all_there)
            return found

    @contextmanager
    def reading(self, topic: str, got: Got | None = None, more: str = "", **how: Any) -> Iterator[Got]:
        """A consumer of that topic runs; `how` goes to `on`, or is a setting."""
        got = got or Got()
        on = {name: how.pop(name) for name in ON & how.keys()}
        consumer = self.consumer(more, **how)
        consumer.subscribe(topic, got, **on)
        with consumer:
            got.consumer = consumer
            yield got


ON = {"tags", "sql", "ordered", "batch", "broadcast"}


class Got:
    """A handler that remembers. `refuses`: raises for these texts as often as that."""

    def __init__(self, refuses: Mapping[str, int] | None = None, error: Exception | None = None) -> None:
        self.messages: list[MessageExt] = []
        self.sizes: Counter[int] = Counter()
        self.consumer: Consumer
        self._refuses = Counter(refuses or {})
        self._error = error or ValueError("not this one")
        self._lock = threading.Lock()

    def __call__(self, given: Any) -> None:
        messages = given if isinstance(given, list) else [given]
        with self._lock:
            self.messages += messages
            self.sizes[len(messages)] += 1
            for message in messages:
                if self._refuses[message.text] > 0:
                    self._refuses[message.text] -= 1
                    raise self._error

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def wait(self, *texts: str) -> list[str]:
        """Until all of these have come; what came, sorted."""
        must(lambda: set(texts) <= set(self.texts))
        return sorted(self.texts)


def must(condition: Callable[[], bool], shown: Callable[[], object] | None = None) -> None:
    """Waits until the condition holds. `shown` says in the error what was there instead."""
    if not eventually(condition, PATIENCE_S, poll_s=0.05):
        found = "" if shown is None else f": {shown()}"
        raise AssertionError(f"not within {PATIENCE_S} s{found}")


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def text(size: int) -> bytes:
    """As Bodies.text: it compresses well."""
    line = b"the quick brown fox jumps over the lazy dog\n"
    return (line * (size // len(line) + 1))[:size]


def is_known(admin: Admin, topic: str) -> bool:
    try:
        return bool(admin.topics.route(topic).queueDatas)
    except TopicNotFound:
        return False


def all_of(consumer: PullConsumer, queue: MessageQueue) -> Iterator[MessageExt]:
    offset = consumer.min_offset(queue)
    while messages := consumer.pull(queue, offset, 32).messages:
        yield from messages
        offset = messages[-1].offset + 1


def by_key(admin: Admin, topic: str, key: str) -> list[MessageExt]:
    """None, too, while the broker's index does not know them."""
    try:
        return list(admin.messages.by_key(topic, key))
    except NotFound:
        return []


def failure(call: Callable[[], object]) -> str:
    try:
        call()
    except Refused as refused:
        return f"{type(refused).__name__} {int(refused.code)}"
    except Exception as error:
        return type(error).__name__
    return "no failure"


def lag(admin: Admin, group: str, topic: str) -> int:
    try:
        offsets = admin.groups.progress(group, topic).offsetTable.values()
    except NotFound:
        return -1
    return sum(one.brokerOffset - one.consumerOffset for one in offsets)
