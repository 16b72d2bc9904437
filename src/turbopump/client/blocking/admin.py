"""Blocking administration.

Written by scripts/faces.py from turbopump.client.admin.admin: change that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from turbopump.client.admin.admin import Admin as AsyncAdmin
from turbopump.client.admin.asking import TIMEOUT_S
from turbopump.client.admin.brokers import CONSUME_STATS_TIMEOUT_S, StatsName
from turbopump.client.admin.brokers import Brokers as AsyncBrokers
from turbopump.client.admin.clusters import Clusters as AsyncClusters
from turbopump.client.admin.clusters import Layout
from turbopump.client.admin.connections import Connections as AsyncConnections
from turbopump.client.admin.groups import Groups as AsyncGroups
from turbopump.client.admin.messages import FOREVER_MS, Track
from turbopump.client.admin.messages import Messages as AsyncMessages
from turbopump.client.admin.name_servers import NameServerSettings as AsyncNameServerSettings
from turbopump.client.admin.offsets import Offsets as AsyncOffsets
from turbopump.client.admin.offsets import Rollback
from turbopump.client.admin.queues import Queues as AsyncQueues
from turbopump.client.admin.topics import Topics as AsyncTopics
from turbopump.client.blocking.face import Face, Part
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.pull import BATCH, PullResult
from turbopump.client.routes import Route
from turbopump.protocol import bodies
from turbopump.protocol.bodies import TopicConfig
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network

__all__ = [
    "Admin",
    "Brokers",
    "Clusters",
    "Connections",
    "Groups",
    "Messages",
    "NameServerSettings",
    "Offsets",
    "Queues",
    "Topics",
]


class Admin(Face[AsyncAdmin]):
    def __init__(
        self,
        name_servers: Sequence[str],
        network: Network | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(lambda: AsyncAdmin(name_servers, network, clock, chance, timeout_s))
        self.clusters = Clusters(self, lambda core: core.clusters)
        self.topics = Topics(self, lambda core: core.topics)
        self.brokers = Brokers(self, lambda core: core.brokers)
        self.name_servers = NameServerSettings(self, lambda core: core.name_servers)
        self.connections = Connections(self, lambda core: core.connections)
        self.groups = Groups(self, lambda core: core.groups)
        self.offsets = Offsets(self, lambda core: core.offsets)
        self.messages = Messages(self, lambda core: core.messages)
        self.queues = Queues(self, lambda core: core.queues)

    def close(self) -> None:
        self._close()


class Clusters(Part[AsyncAdmin, AsyncClusters]):
    """Which clusters there are, which brokers belong to them, and at which addresses."""

    def layout(self) -> Layout:
        return self._run(lambda core: core.layout())


class Topics(Part[AsyncAdmin, AsyncTopics]):
    """Topics: their list, their routes, their configuration, how full their queues are and who reads them."""

    def names(self) -> list[str]:
        """Every topic that a name server knows, system topics too."""
        return self._run(lambda core: core.names())

    def names_in_cluster(self, cluster: str) -> list[str]:
        return self._run(lambda core: core.names_in_cluster(cluster))

    def route(self, topic: str) -> bodies.TopicRouteData:
        """Raises TopicNotFound when no broker has it."""
        return self._run(lambda core: core.route(topic))

    def readers(self, topic: str) -> dict[str, str]:
        """The brokers that have the topic, each with the address to ask: its master, else a slave."""
        return self._run(lambda core: core.readers(topic))

    def queues(self, topic: str) -> Route:
        """To which queues one can send, and from which one can read."""
        return self._run(lambda core: core.queues(topic))

    def config(self, address: str, topic: str) -> TopicConfig:
        """Raises TopicNotFound. Brokers before 5.0 cannot be asked for one topic, so all are read."""
        return self._run(lambda core: core.config(address, topic))

    def configs(self, address: str) -> bodies.TopicConfigSerializeWrapper:
        """Every topic of a broker, system topics too."""
        return self._run(lambda core: core.configs(address))

    def user_configs(
        self, address: str, with_retry_and_dead_letters: bool = False
    ) -> bodies.TopicConfigSerializeWrapper:
        """Without system topics, and without those that no one can read or write."""
        return self._run(lambda core: core.user_configs(address, with_retry_and_dead_letters))

    def create(self, address: str, config: TopicConfig) -> None:
        """Creates it on that broker, or changes it. Attributes are changes: `+name` with a value, `-name`.

        Raises NoPermission for a permission that is none: brokers would take it.
        """
        self._run(lambda core: core.create(address, config))

    def create_all(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Many at once; a broker before 5.3 cannot, so they are then created one by one."""
        self._run(lambda core: core.create_all(address, configs))

    def delete_in_broker(self, address: str, topic: str) -> None:
        self._run(lambda core: core.delete_in_broker(address, topic))

    def delete_in_name_servers(self, topic: str, cluster: str | None = None) -> None:
        self._run(lambda core: core.delete_in_name_servers(topic, cluster))

    def stats_at(self, address: str, topic: str) -> bodies.TopicStatsTable:
        """The ends of the topic's queues on one broker."""
        return self._run(lambda core: core.stats_at(address, topic))

    def stats(self, topic: str, found_through: str | None = None) -> bodies.TopicStatsTable:
        """The ends of all its queues; `found_through` is the topic whose brokers are asked, if another."""
        return self._run(lambda core: core.stats(topic, found_through))

    def consumers(self, topic: str) -> list[str]:
        """Groups that read the topic or have offsets in it, as any of its brokers knows."""
        return self._run(lambda core: core.consumers(topic))


class Brokers(Part[AsyncAdmin, AsyncBrokers]):
    """One broker, by its address: runtime figures, statistics, configuration, upkeep."""

    def figures(self, address: str) -> dict[str, str]:
        """What `brokerStatus` shows: each version of a broker has its own set of keys."""
        return self._run(lambda core: core.figures(address))

    def statistics(self, address: str, name: StatsName, key: str) -> bodies.BrokerStatsData:
        """Messages of the last minute, hour and day. Raises Refused where nothing was counted."""
        return self._run(lambda core: core.statistics(address, name, key))

    def consume_stats(
        self, address: str, of_order_topics: bool = False, timeout_s: float = CONSUME_STATS_TIMEOUT_S
    ) -> bodies.ConsumeStatsList:
        """Offsets of all groups in all queues of the broker."""
        return self._run(lambda core: core.consume_stats(address, of_order_topics, timeout_s))

    def config(self, address: str) -> dict[str, str]:
        return self._run(lambda core: core.config(address))

    def update_config(self, address: str, changes: Mapping[str, str]) -> None:
        self._run(lambda core: core.update_config(address, changes))

    def clean_expired_queues(self, address: str) -> None:
        """Consume-queue files whose messages are gone."""
        self._run(lambda core: core.clean_expired_queues(address))

    def clean_unused_topics(self, address: str) -> None:
        """Queues of topics that were deleted."""
        self._run(lambda core: core.clean_unused_topics(address))

    def delete_expired_files(self, address: str) -> None:
        """Commit-log files older than the retention, now and not at `deleteWhen`."""
        self._run(lambda core: core.delete_expired_files(address))


class NameServerSettings(Part[AsyncAdmin, AsyncNameServerSettings]):
    """Name servers: their key-value tables and settings, and the write permission they give to brokers."""

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._call(lambda core: core.addresses)

    def value(self, namespace: str, key: str) -> str | None:
        """None: there is none."""
        return self._run(lambda core: core.value(namespace, key))

    def put_value(self, namespace: str, key: str, value: str) -> None:
        self._run(lambda core: core.put_value(namespace, key, value))

    def delete_value(self, namespace: str, key: str) -> None:
        self._run(lambda core: core.delete_value(namespace, key))

    def put_order(self, topic: str, broker: str, queues: int) -> str:
        """Sets one broker's part of an order topic and leaves the others; the whole text that results."""
        return self._run(lambda core: core.put_order(topic, broker, queues))

    def wipe_write_permission(self, address: str, broker: str) -> int:
        """New messages go elsewhere. How many topics are concerned, on this name server."""
        return self._run(lambda core: core.wipe_write_permission(address, broker))

    def add_write_permission(self, address: str, broker: str) -> int:
        return self._run(lambda core: core.add_write_permission(address, broker))

    def configs(self) -> dict[str, dict[str, str]]:
        return self._run(lambda core: core.configs())

    def update_config(self, changes: Mapping[str, str]) -> None:
        self._run(lambda core: core.update_config(changes))


class Connections(Part[AsyncAdmin, AsyncConnections]):
    """Who is connected: producers and consumers of a group, as the brokers see them."""

    def producers(self, group: str, topic: str) -> bodies.ProducerConnection:
        """Producers of the group on the first broker of the topic that has any. Raises NobodyOnline."""
        return self._run(lambda core: core.producers(group, topic))

    def all_producers(self, address: str) -> dict[str, list[bodies.ProducerInfo]]:
        """By group. Brokers before 4.9 refuse."""
        return self._run(lambda core: core.all_producers(address))

    def consumers_at(self, address: str, group: str) -> bodies.ConsumerConnection:
        """Raises NobodyOnline."""
        return self._run(lambda core: core.consumers_at(address, group))

    def consumers(self, group: str) -> bodies.ConsumerConnection:
        """Consumers of the group on the first broker that has any: a consumer tells all of its brokers."""
        return self._run(lambda core: core.consumers(group))


class Groups(Part[AsyncAdmin, AsyncGroups]):
    """Consumer groups: their configuration, how far they are, and what their members say of themselves."""

    def names(self) -> list[str]:
        """Groups that have had a member: each of them has a retry topic."""
        return self._run(lambda core: core.names())

    def brokers(self, group: str, topic: str | None = None) -> dict[str, str]:
        """The brokers that know the group, found by its retry topic, or else those of the topic."""
        return self._run(lambda core: core.brokers(group, topic))

    def create(self, address: str, config: bodies.SubscriptionGroupConfig) -> None:
        """Creates it on that broker, or changes it."""
        self._run(lambda core: core.create(address, config))

    def create_all(self, address: str, configs: Iterable[bodies.SubscriptionGroupConfig]) -> None:
        """Many at once; a broker before 5.3 cannot, so they are then created one by one."""
        self._run(lambda core: core.create_all(address, configs))

    def delete(self, address: str, group: str, with_offsets: bool = False) -> None:
        self._run(lambda core: core.delete(address, group, with_offsets))

    def configs(self, address: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """Every group of a broker, by name."""
        return self._run(lambda core: core.configs(address))

    def user_table(self, address: str) -> bodies.SubscriptionGroupWrapper:
        """Without the groups of the system and of tools."""
        return self._run(lambda core: core.user_table(address))

    def table(self, address: str) -> bodies.SubscriptionGroupWrapper:
        """Every group of a broker, and the version of the table."""
        return self._run(lambda core: core.table(address))

    def progress_at(self, address: str, group: str, topic: str | None = None) -> bodies.ConsumeStats:
        """The group's offsets on one broker; empty when it has none."""
        return self._run(lambda core: core.progress_at(address, group, topic))

    def progress(self, group: str, topic: str | None = None) -> bodies.ConsumeStats:
        """On all of its brokers. Raises NoProgress when there is none and nobody is online."""
        return self._run(lambda core: core.progress(group, topic))

    def running_info(
        self, group: str, client_id: str, with_stack: bool = False
    ) -> bodies.ConsumerRunningInfo:
        """What one member says of itself, through the first broker that reaches it."""
        return self._run(lambda core: core.running_info(group, client_id, with_stack))

    def owners(self, group: str) -> dict[MessageQueue, str]:
        """Which member has which queue. Members that do not answer are left out."""
        return self._run(lambda core: core.owners(group))


class Offsets(Part[AsyncAdmin, AsyncOffsets]):
    """Moving a group's offsets: to a time, to the end, to those of another group."""

    def reset(self, group: str, topic: str, time_ms: int, force: bool = True) -> dict[MessageQueue, int]:
        """Through the brokers, also while the group runs; `force` allows going forward too.

        Raises ConsumerNotOnline: an older broker, and the group is stopped. Then `reset_stopped` does it.
        """
        return self._run(lambda core: core.reset(group, topic, time_ms, force))

    def reset_stopped(self, group: str, topic: str, time_ms: int, force: bool = True) -> list[Rollback]:
        return self._run(lambda core: core.reset_stopped(group, topic, time_ms, force))

    def reset_queue(self, address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """One queue to an offset. A member that runs follows only when the broker is 5.2 or later: older
        ones can move all queues and not one.
        """
        self._run(lambda core: core.reset_queue(address, group, topic, queue_id, offset))

    def clone(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """The offsets that one group has in a topic become those of another.

        Raises NoGroup or NoProgress. All topics of the group are asked for: asked for one, a broker tells 0
        of whoever has never been there.
        """
        return self._run(lambda core: core.clone(source, target, topic))

    def offset_at(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        """The first message stored at that time or later; END: behind the last."""
        return self._run(lambda core: core.offset_at(address, queue, time_ms))

    def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        self._run(lambda core: core.commit(address, group, queue, offset))


class Messages(Part[AsyncAdmin, AsyncMessages]):
    """Stored messages: found by id, by key, by place; handed to a consumer; followed to who has read them."""

    def as_group(self, group: str) -> "Messages":
        """Pulls in the name of that group, which brokers take note of; its offsets stay as they are."""
        return Messages(self._whole, lambda core: self._pick(core).as_group(group))

    def at_offset_id(self, message_id: str, topic: str | None = None) -> MessageExt:
        """The message stored where the id says. Raises Refused when there is none, or it is no such id."""
        return self._run(lambda core: core.at_offset_id(message_id, topic))

    def find(self, topic: str, message_id: str) -> MessageExt:
        """By either kind of id. Raises NoMessages."""
        return self._run(lambda core: core.find(topic, message_id))

    def by_key(
        self, topic: str, key: str, max_count: int = 64, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """In the order of storing. The sender's id is no key. Raises NoMessages."""
        return self._run(lambda core: core.by_key(topic, key, max_count, begin_ms, end_ms))

    def by_unique_key(
        self, topic: str, unique_key: str, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """The newest copies of the message, in the order of storing. Raises NoMessages."""
        return self._run(lambda core: core.by_unique_key(topic, unique_key, begin_ms, end_ms))

    def every_copy(self, topic: str, unique_key: str, begin_ms: int) -> list[MessageExt]:
        """All copies stored since then, however many. One answer has the newest: older ones are asked for
        until no other comes.
        """
        return self._run(lambda core: core.every_copy(topic, unique_key, begin_ms))

    def at_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """The message at one place of a queue; None: there is none."""
        return self._run(lambda core: core.at_offset(queue, offset))

    def pulls(
        self, queue: MessageQueue, begin: int, end: int, expression: str = "*", max_count: int = BATCH
    ) -> Iterator[PullResult]:
        """The answers of pulls from `begin` until they reach `end`, or until the queue has no more."""
        return self._iterate(lambda core: core.pulls(queue, begin, end, expression, max_count))

    def consume_directly(
        self, message: MessageExt, group: str, client_id: str
    ) -> bodies.ConsumeMessageDirectlyResult:
        """One member of a group consumes one message, whatever its offsets are; what its listener said."""
        return self._run(lambda core: core.consume_directly(message, group, client_id))

    def tracks(self, message: MessageExt) -> list[Track]:
        """What became of a message in each group that reads its topic."""
        return self._run(lambda core: core.tracks(message))


class Queues(Part[AsyncAdmin, AsyncQueues]):
    """Consume queues: the entries that point into the commit log."""

    def entries(
        self, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> bodies.QueryConsumeQueueResponseBody | None:
        """With a group, each entry says whether its subscription wants it. None: nothing at that index."""
        return self._run(lambda core: core.entries(address, topic, queue_id, index, count, group))
