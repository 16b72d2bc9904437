"""Collects Prometheus metrics: one class per subject, which can be switched off as in Apache's broker.

Names, units and labels are those that Apache 5.5 exports to Prometheus. Its metrics of thread pools and POP
are left out where this broker has neither; transactions and timers are in `message_kinds.py`. Metrics that
Apache does not have are called `turbopump_…`.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from turbopump.broker.config import BrokerConfig
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.members import ConsumerGroup, Members
from turbopump.broker.metrics.exposition import Family, Histogram, Labels
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.metrics.traffic import Traffic
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.protocol.codes import RequestCode, ResponseCode, version_name
from turbopump.protocol.names import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    is_retry_or_dlq,
    is_system_group,
)
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import AnsweredRequest
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Usage
from turbopump.store.consume_queue import BLANK_SIZE, ENTRY, ConsumeQueue
from turbopump.store.queues import QueueCounts

log = logging.getLogger(__name__)

SIZE_BOUNDS = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
LATENCY_BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
MAX_RPC_KINDS = 10_000  # pairs of request and answer code: peers choose the code of a request
REMOTING = {"protocol_type": "remoting"}
LOCAL_DISK = {"storage_medium": "disk", "storage_type": "local"}
CONSUME_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
ENTRIES_PER_TURN = 2000
COUNT_SIZES_S = 1.0
PROCESSORS = (
    *("send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull"),
    *("transaction", "consumer_manager", "admin", "reply"),
)


class Collector(Protocol):
    """Interface of a source of metric families that the configuration can switch off."""

    subject: str
    """The configuration field that switches it off."""

    async def families(self) -> list[Family]: ...


@dataclass(frozen=True, slots=True)
class WaitingRequests:
    """Counts of requests not begun, waiting for a sync, running and parked, and of open connections."""

    to_begin: int
    for_sync: int
    running: int  # as coroutines
    parked: int
    connections: int


class BrokerFigures:
    """Collects metrics of the broker as a whole: permission, counts of topics, groups and requests."""

    subject = "stats"

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        topics: TopicTable,
        groups: SubscriptionGroups,
        waiting: Callable[[], WaitingRequests],
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._waiting = waiting

    async def families(self) -> list[Family]:
        waiting = self._waiting()
        sizes = {"send": waiting.to_begin, "async_put": waiting.for_sync, "admin": waiting.running}
        permission = self._config().topics.permission
        return [
            Family(
                "rocketmq_processor_watermark",
                "gauge",
                "Requests that wait for a processor",
                [({"processor": name}, sizes.get(name, 0)) for name in PROCESSORS],
            ),
            _one("rocketmq_broker_permission", "4 read, 2 write, 6 both", permission),
            _one("rocketmq_topic_number", "Topics", len(self._topics.all())),
            _one("rocketmq_consumer_group_number", "Subscription groups", len(self._groups.all())),
            _one("turbopump_connections", "Open connections", waiting.connections),
            _one("turbopump_parked_pulls", "Pulls that wait for a message", waiting.parked),
        ]


class RequestFigures:
    """Collects metrics of stored and pulled messages; sizes are counted later, from queue entries."""

    subject = "requests"

    def __init__(self, topics: TopicTable, statistics: Statistics, traffic: Traffic, clock: Clock) -> None:
        self._topics = topics
        self._statistics = statistics
        self._traffic = traffic
        self._clock = clock
        self._pending: deque[tuple[ConsumeQueue, int, int]] = deque()  # queue, first offset, how many
        self._sizes: dict[str, Histogram] = {}

    async def families(self) -> list[Family]:
        await self._statistics.fold()
        await self._count_pending()
        totals = self._statistics.totals
        sizes = [(self._of_topic(topic), histogram) for topic, histogram in self._sizes.items()]
        return [
            self._incoming("rocketmq_messages_in_total", "Messages stored", totals("TOPIC_PUT_NUMS")),
            self._incoming("rocketmq_throughput_in_total", "Bytes stored", totals("TOPIC_PUT_SIZE")),
            self._outgoing("rocketmq_messages_out_total", "Messages pulled", totals("GROUP_GET_NUMS")),
            self._outgoing("rocketmq_throughput_out_total", "Bytes pulled", totals("GROUP_GET_SIZE")),
            Family("rocketmq_message_size", "histogram", "Bytes of stored messages", [*sizes]),
            _one("turbopump_put_failures_total", "Messages refused", self._traffic.put_failures, "counter"),
        ]

    def stored(self, puts: QueueCounts) -> None:
        """Queues stored messages, whose sizes are counted later; skips retry and dead letter topics."""
        if not is_retry_or_dlq(puts.queue.topic):
            self._pending.append((puts.queue, puts.queue.counted - puts.messages, puts.messages))

    def topic_deleted(self, topic: str) -> None:
        self._sizes.pop(topic, None)

    async def watch(self) -> None:
        """Counts the sizes of newly stored messages every second; runs until cancelled."""
        while True:
            await self._clock.sleep(COUNT_SIZES_S)
            await self._count_pending()

    async def _count_pending(self) -> None:
        for _ in range(len(self._pending)):
            if not self._pending:
                break  # `watch` and `families` may both be counting
            queue, first, messages = self._pending.popleft()
            try:
                await self._count_sizes(queue, first, messages)
            except OSError as error:
                words = "Cannot count the sizes of %d messages of %s queue %d: %s"
                log.warning(words, messages, queue.topic, queue.queue_id, error)

    async def _count_sizes(self, queue: ConsumeQueue, first: int, messages: int) -> None:
        end = first + messages
        while first < end and not queue.is_deleted:
            units = queue.units(first, min(end - first, ENTRIES_PER_TURN))
            if not units:
                break
            histogram = self._sizes.setdefault(queue.topic, Histogram(SIZE_BOUNDS))
            for _, size, _ in ENTRY.iter_unpack(units):
                if size != BLANK_SIZE:
                    histogram.add(size)
            first = queue.behind(first, units)
            await asyncio.sleep(0)
        if first < queue.next_offset and first < end and not queue.is_deleted:
            self._pending.append((queue, first, end - first))  # not readable until they are synced

    def _incoming(self, name: str, words: str, totals: Mapping[str, int]) -> Family:
        samples = [
            (self._of_topic(topic), total) for topic, total in totals.items() if not is_retry_or_dlq(topic)
        ]
        return Family(name, "counter", words, [*samples])

    def _outgoing(self, name: str, words: str, totals: Mapping[str, int]) -> Family:
        family = Family(name, "counter", words)
        for key, total in totals.items():
            topic, _, group = key.partition("@")
            if not is_retry_or_dlq(topic):
                family.samples.append((self._of_group(topic, group), total))
        return family

    def _of_topic(self, topic: str) -> Labels:
        return {
            "topic": topic,
            "message_type": self._message_type(topic),
            "is_system": text_of(self._topics.is_system(topic)),
        }

    def _of_group(self, topic: str, group: str) -> Labels:
        is_system = self._topics.is_system(topic) or is_system_group(group)
        return {"topic": topic, "consumer_group": group, "is_system": text_of(is_system)}

    def _message_type(self, name: str) -> str:
        """Returns the declared message type of a topic; "normal" without one."""
        if name in TYPES_OF_TOPICS:
            return TYPES_OF_TOPICS[name]
        topic = self._topics.find(name)
        declared = topic.attributes.get("message.type", "") if topic is not None else ""
        return declared.lower() if declared and declared != "UNSPECIFIED" else "normal"


TYPES_OF_TOPICS = {SCHEDULE_TOPIC: "delay", HALF_TOPIC: "transaction"}


class ConnectionFigures:
    """Collects the numbers of connected producers and consumers by language and version."""

    subject = "connections"

    def __init__(self, members: Members[Connection]) -> None:
        self._members = members

    async def families(self) -> list[Family]:
        producers: Counter[tuple[str, int]] = Counter()
        for group in self._members.producer_groups():
            for member in self._members.producer_group(group):
                producers[member.language, member.version] += 1
        consumers = Family("rocketmq_consumer_connections", "gauge", "Consumers that are there")
        for name in self._members.consumer_groups():
            if (found := self._members.consumer_group(name)) is not None:
                consumers.samples.extend(_consumers(name, found))
        return [
            Family(
                "rocketmq_producer_connections",
                "gauge",
                "Producers that are there",
                [(_client(*client), count) for client, count in producers.items()],
            ),
            consumers,
        ]


class StoreFigures:
    """Collects metrics of the store: disk use, bytes not synced or committed, age of the oldest message."""

    subject = "store"

    def __init__(self, store: Storage, usage: Callable[[str], Usage], clock: Clock) -> None:
        self._store = store
        self._usage = usage
        self._clock = clock

    async def families(self) -> list[Family]:
        store = self._store
        usage = self._usage(store.config.root_dir)
        figures = [
            ("rocketmq_storage_size_bytes", "Used bytes of the disk", usage.total - usage.free),
            (
                "rocketmq_storage_flush_behind_bytes",
                "Bytes not synced yet",
                store.log.end - store.log.synced,
            ),
            (
                "rocketmq_storage_dispatch_behind_bytes",
                "Bytes that consumers cannot see yet",
                store.log.end - store.log.dispatched,
            ),
        ]
        times = await store.times.read([store.log.min_offset])
        if times[store.log.min_offset] > 0:
            age = self._clock.now_ms() - times[store.log.min_offset]
            figures.append(
                ("rocketmq_storage_message_reserve_time_milliseconds", "Age of the oldest message", age)
            )
        return [Family(name, "gauge", words, [(LOCAL_DISK, value)]) for name, words, value in figures]


class RemotingFigures:
    """Collects latencies of requests; those of successful sends are the times to store the messages."""

    subject = "remoting"

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._seen: dict[tuple[int, int, bool], Histogram] = {}

    async def families(self) -> list[Family]:
        sends = Histogram(LATENCY_BOUNDS_MS)
        for milliseconds, messages in self._traffic.put_times.items():
            sends.add(milliseconds, messages)
        samples = [(_rpc(*kind), histogram) for kind, histogram in self._seen.items()]
        if self._traffic.put_times:
            samples.append((_rpc(RequestCode.SEND_MESSAGE_V2, ResponseCode.SUCCESS, False), sends))
        return [
            Family(
                "rocketmq_rpc_latency_milliseconds", "histogram", "From a request to its answer", [*samples]
            )
        ]

    def observe(self, observed: AnsweredRequest) -> None:
        """Adds an answered request to the latencies, except successful sends, which `Traffic` counts."""
        if observed.code in SENDS and observed.answer == ResponseCode.SUCCESS:
            return
        kind = (observed.code, observed.answer, observed.was_parked)
        histogram = self._seen.get(kind)
        if histogram is None:
            if len(self._seen) >= MAX_RPC_KINDS:
                return
            histogram = self._seen[kind] = Histogram(LATENCY_BOUNDS_MS)
        histogram.add(int(observed.seconds * 1000))


SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


def _one(name: str, words: str, value: float, kind: str = "gauge") -> Family:
    return Family(name, "counter" if kind == "counter" else "gauge", words, [({}, value)])


def _consumers(name: str, group: ConsumerGroup[Connection]) -> Iterator[tuple[Labels, int]]:
    clients = Counter((member.language, member.version) for member in group.members.values())
    mode = CONSUME_MODES.get(group.consume_type, group.consume_type.lower())
    for client, count in clients.items():
        of_group = {
            "consumer_group": name,
            "consume_mode": mode,
            "is_system": text_of(is_system_group(name)),
        }
        yield {**_client(*client), **of_group}, count


def _client(language: str, version: int) -> dict[str, str]:
    return {"language": language.lower(), "version": version_name(version).lower(), **REMOTING}


def _rpc(code: int, answer: int, was_parked: bool) -> Labels:
    return {
        "request_code": _name(RequestCode, code),
        "response_code": _name(ResponseCode, answer),
        "is_long_polling": text_of(was_parked),
        "result": "success",
        **REMOTING,
    }


def _name(codes: "type[RequestCode] | type[ResponseCode]", code: int) -> str:
    try:
        return codes(code).name.lower()
    except ValueError:
        return str(code)


def text_of(value: bool) -> str:
    return "true" if value else "false"
