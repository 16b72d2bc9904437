"""Blocking administration.

Written by scripts/faces.py from turbopump.client.admin.admin: change that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Unpack

from turbopump.client.admin.admin import Admin as AsyncAdmin
from turbopump.client.admin.brokers import CONSUME_STATS_TIMEOUT_S, StatsName
from turbopump.client.admin.brokers import Brokers as AsyncBrokers
from turbopump.client.admin.calls import TIMEOUT_S
from turbopump.client.admin.calls import AdminCalls as AsyncAdminCalls
from turbopump.client.admin.clusters import Clusters as AsyncClusters
from turbopump.client.admin.clusters import Layout
from turbopump.client.admin.connections import Connections as AsyncConnections
from turbopump.client.admin.dead_letters import ALWAYS, Target, Window
from turbopump.client.admin.dead_letters import DeadLetters as AsyncDeadLetters
from turbopump.client.admin.groups import Groups as AsyncGroups
from turbopump.client.admin.messages import FOREVER_MS, Track
from turbopump.client.admin.messages import Messages as AsyncMessages
from turbopump.client.admin.name_servers import NameServerSettings as AsyncNameServerSettings
from turbopump.client.admin.offsets import Offsets as AsyncOffsets
from turbopump.client.admin.offsets import Rollback
from turbopump.client.admin.queues import Queues as AsyncQueues
from turbopump.client.admin.timers import Timer
from turbopump.client.admin.timers import Timers as AsyncTimers
from turbopump.client.admin.topics import DEFAULT_QUEUES, READABLE_OR_WRITABLE
from turbopump.client.admin.topics import Topics as AsyncTopics
from turbopump.client.admin.transactions import Transactions as AsyncTransactions
from turbopump.client.blocking.face import Face, Part
from turbopump.client.message import MessageExt, MessageQueue, SendResult
from turbopump.client.options import ClientOptions
from turbopump.client.produce.sender import Sender
from turbopump.client.pull.puller import BATCH, PullResult
from turbopump.client.routes import TopicRoute
from turbopump.client.settings import ClientSettings
from turbopump.client.signature import spelled_out
from turbopump.client.times import Time
from turbopump.client.world import World
from turbopump.protocol import bodies
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.headers.base import Header
from turbopump.protocol.ledger import BookSummary

__all__ = [
    "Admin",
    "AdminCalls",
    "Brokers",
    "Clusters",
    "Connections",
    "DeadLetters",
    "Groups",
    "Messages",
    "NameServerSettings",
    "Offsets",
    "Queues",
    "Timers",
    "Topics",
    "Transactions",
]


@spelled_out(ClientSettings)
class Admin(Face[AsyncAdmin]):
    """Looks after a cluster, Apache's or ours: one part per subject.

    `clusters`, `brokers`, `name_servers` are about servers; `topics`, `queues`, `messages`, `transactions`,
    `timers` about what they store; `groups`, `offsets`, `connections` about who reads and writes it.

        with Admin("127.0.0.1:9876") as admin:
            admin.topics.create("OrderTopic", queues=8)
            print(admin.topics.names())

    Without `name_servers` they are found as for every client: `turbopump.configure()`, the configuration
    file, NAMESRV_ADDR, else 127.0.0.1:9876. `timeout` is for each question, in seconds; what is slow by
    nature has more. Every call raises `Refused` (or its class for the code) when a server says no, and
    `Unreachable`, an OSError, when it says nothing. Other keyword arguments are settings of every client,
    such as `use_tls`.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        world: World | None = None,
        timeout: float = TIMEOUT_S,
        **settings: Unpack[ClientOptions],
    ) -> None:
        super().__init__(lambda: AsyncAdmin(name_servers, world=world, timeout=timeout, **settings))
        self.asking = AdminCalls(self, lambda core: core.asking)
        self.clusters = Clusters(self, lambda core: core.clusters)
        self.topics = Topics(self, lambda core: core.topics)
        self.brokers = Brokers(self, lambda core: core.brokers)
        self.name_servers = NameServerSettings(self, lambda core: core.name_servers)
        self.connections = Connections(self, lambda core: core.connections)
        self.groups = Groups(self, lambda core: core.groups)
        self.offsets = Offsets(self, lambda core: core.offsets)
        self.messages = Messages(self, lambda core: core.messages)
        self.queues = Queues(self, lambda core: core.queues)
        self.transactions = Transactions(self, lambda core: core.transactions)
        self.timers = Timers(self, lambda core: core.timers)

    @property
    def settings(self) -> ClientSettings:
        """All settings, with the defaults."""
        return self._core.settings

    def dead_letters(self, group: str) -> "DeadLetters":
        """The messages that the group could not consume.

        Example:

            for letter in admin.dead_letters("billing").within():
                print(letter.message_id, letter.reconsume_times)
        """
        return DeadLetters(self, lambda core: core.dead_letters(group))

    def close(self) -> None:
        """Closes its connections. Again: nothing."""
        self._close()


class AdminCalls(Part[AsyncAdmin, AsyncAdminCalls]):
    """Requests of all parts of `Admin`: to one server, to any name server, or to all name servers."""

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self._call(lambda core: core.name_servers)

    def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> Command:
        """One server's answer. Raises Refused for any code but success, Unreachable for none."""
        return self._run(lambda core: core.ask(address, code, header, body, timeout_s))

    def ask_name_server(self, code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
        """The answer of whichever name server answers first."""
        return self._run(lambda core: core.ask_name_server(code, header, body))

    def ask_name_servers(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        addresses: Iterable[str] = (),
    ) -> dict[str, Command]:
        """The answers of these name servers, or of all of them: each keeps its own state."""
        return self._run(lambda core: core.ask_name_servers(code, header, body, addresses))


class Clusters(Part[AsyncAdmin, AsyncClusters]):
    """Which clusters there are, which brokers belong to them, and at which addresses."""

    def layout(self) -> Layout:
        """All brokers of all clusters, as one of the name servers knows them.

        Example:

            layout = admin.clusters.layout()
            print(layout.clusters, layout.masters("DefaultCluster"), layout.master_of("broker-a"))
        """
        return self._run(lambda core: core.layout())


class Topics(Part[AsyncAdmin, AsyncTopics]):
    """Topics: their list, their routes, their configuration, how full their queues are and who reads them.

    Example:

        admin.topics.create("OrderTopic", queues=8)
        for queue, ends in (admin.topics.stats("OrderTopic")).offsetTable.items():
            print(queue, ends.minOffset, ends.maxOffset)
        admin.topics.delete("OrderTopic")
    """

    def names(self) -> list[str]:
        """Every topic that a name server knows, system topics too, in order."""
        return self._run(lambda core: core.names())

    def names_in_cluster(self, cluster: str) -> list[str]:
        """Those that brokers of this cluster have, in order."""
        return self._run(lambda core: core.names_in_cluster(cluster))

    def system_names(self) -> list[str]:
        """Topics that brokers made for themselves, as a name server knows them: clusters and brokers."""
        return self._run(lambda core: core.system_names())

    def clusters(self, topic: str) -> list[str]:
        """The clusters whose brokers have it. Raises TopicNotFound."""
        return self._run(lambda core: core.clusters(topic))

    def route(self, topic: str) -> bodies.TopicRouteData:
        """Its queues and brokers, as a name server tells them. Raises TopicNotFound when no broker has it."""
        return self._run(lambda core: core.route(topic))

    def readers(self, topic: str) -> dict[str, str]:
        """The brokers that have the topic, each with the address to ask: its master, else a slave."""
        return self._run(lambda core: core.readers(topic))

    def queues(self, topic: str) -> TopicRoute:
        """To which queues one can send, and from which one can read. Raises TopicNotFound.

        Example:

            route = admin.topics.queues("OrderTopic")
            print(route.publish, route.subscribe, route.master("broker-a"))
        """
        return self._run(lambda core: core.queues(topic))

    def config(self, address: str, topic: str) -> TopicConfig:
        """How one broker has it configured. Raises TopicNotFound.

        Brokers before 5.0 cannot be asked for one topic, so all are read.
        """
        return self._run(lambda core: core.config(address, topic))

    def configs(self, address: str) -> bodies.TopicConfigSerializeWrapper:
        """Every topic of a broker, system topics too."""
        return self._run(lambda core: core.configs(address))

    def user_configs(
        self, address: str, with_retry_and_dead_letters: bool = False
    ) -> bodies.TopicConfigSerializeWrapper:
        """Without system topics, and without those that no one can read or write."""
        return self._run(lambda core: core.user_configs(address, with_retry_and_dead_letters))

    def create(
        self,
        topic: str,
        config: TopicConfig | None = None,
        *,
        queues: int = DEFAULT_QUEUES,
        cluster: str | None = None,
        permission: int = READABLE_OR_WRITABLE,
        ordered: bool = False,
    ) -> list[str]:
        """Creates a topic on every broker of the cluster, or of all clusters, or changes it. Returns the
        addresses of these brokers.

            admin.topics.create("OrderTopic", queues=8)

        With a `config`, which says everything about the topic, the first argument is the address of the one
        broker to create it on. Attributes are changes: `+name` with a value, `-name`.

            config = TopicConfig(topicName="OrderTopic", readQueueNums=8, writeQueueNums=8, perm=6)
            admin.topics.create("127.0.0.1:10911", config)

        Raises NoPermission for a permission that is none (brokers would take it), NotFound when there is no
        broker, and the first refusal, whose notes say which brokers have the topic then.
        """
        return self._run(
            lambda core: core.create(
                topic, config, queues=queues, cluster=cluster, permission=permission, ordered=ordered
            )
        )

    def create_like(self, template: str, config: TopicConfig) -> list[str]:
        """Creates it on every broker that has the topic `template`; a cluster's name is such a topic. Returns
        the addresses; when some of the brokers refuse and others do not, these have it.

        Raises the last refusal when none took it.

            admin.topics.create_like("DefaultCluster", TopicConfig(topicName="OrderTopic"))
        """
        return self._run(lambda core: core.create_like(template, config))

    def create_all(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Many at once; a broker before 5.3 cannot, so they are then created one by one."""
        self._run(lambda core: core.create_all(address, configs))

    def delete(self, topic: str) -> None:
        """From every broker that has it, and from the name servers. Its messages are gone for good.

        Example:

            admin.topics.delete("OrderTopic")
        """
        self._run(lambda core: core.delete(topic))

    def delete_in_broker(self, address: str, topic: str) -> None:
        """With its messages, on one broker."""
        self._run(lambda core: core.delete_in_broker(address, topic))

    def delete_in_name_servers(self, topic: str, cluster: str | None = None) -> None:
        """Its routes only; a broker that has it brings them back."""
        self._run(lambda core: core.delete_in_name_servers(topic, cluster))

    def stats_at(self, address: str, topic: str) -> bodies.TopicStatsTable:
        """The ends of the topic's queues on one broker."""
        return self._run(lambda core: core.stats_at(address, topic))

    def stats(self, topic: str, found_through: str | None = None) -> bodies.TopicStatsTable:
        """The ends of all its queues; `found_through` is the topic whose brokers are asked, if another."""
        return self._run(lambda core: core.stats(topic, found_through))

    def consumers(self, topic: str) -> list[str]:
        """Groups that read the topic or have offsets in it, as any of its brokers knows, in order."""
        return self._run(lambda core: core.consumers(topic))


class Brokers(Part[AsyncAdmin, AsyncBrokers]):
    """One broker, by its address: runtime figures, statistics, configuration, upkeep.

    Example:

        for broker in (admin.clusters.layout()).brokers:
            figures = admin.brokers.figures(broker.address)
            print(broker.name, figures["brokerVersionDesc"], figures["msgPutTotalTodayNow"])
    """

    def figures(self, address: str) -> dict[str, str]:
        """What `brokerStatus` shows: each version of a broker has its own set of keys.

        Example:

            (admin.brokers.figures("127.0.0.1:10911"))["putTps"]
        """
        return self._run(lambda core: core.figures(address))

    def statistics(self, address: str, name: StatsName, key: str) -> bodies.BrokerStatsData:
        """Messages of the last minute, hour and day. Raises Refused where nothing was counted.

        Example:

            found = admin.brokers.statistics(address, "TOPIC_PUT_NUMS", "OrderTopic")
            print(found.statsMinute.tps, found.statsDay.sum)
        """
        return self._run(lambda core: core.statistics(address, name, key))

    def consume_stats(
        self, address: str, of_order_topics: bool = False, timeout_s: float = CONSUME_STATS_TIMEOUT_S
    ) -> bodies.ConsumeStatsList:
        """Offsets of all groups in all queues of the broker.

        Example:

            for by_group in (admin.brokers.consume_stats(address)).consumeStatsList: ...
        """
        return self._run(lambda core: core.consume_stats(address, of_order_topics, timeout_s))

    def config(self, address: str) -> dict[str, str]:
        """All settings of a broker, by Apache's names.

        Example:

            (admin.brokers.config(address))["flushDiskType"]
        """
        return self._run(lambda core: core.config(address))

    def update_config(self, address: str, changes: Mapping[str, str]) -> None:
        """Changes settings while the broker runs, and in its file. Raises Refused for one that cannot change.

        Example:

            admin.brokers.update_config(address, {"fileReservedTime": "48"})
        """
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
    """Name servers: their key-value tables and settings, and the write permission they give to brokers.

    Example:

        admin.name_servers.put_value("ORDER_TOPIC_CONFIG", "OrderTopic", "broker-a:4;broker-b:4")
        for address in admin.name_servers.addresses:
            admin.name_servers.wipe_write_permission(address, "broker-b")
    """

    @property
    def addresses(self) -> tuple[str, ...]:
        """All that are known."""
        return self._call(lambda core: core.addresses)

    def value(self, namespace: str, key: str) -> str | None:
        """One value of a namespace; None: there is none."""
        return self._run(lambda core: core.value(namespace, key))

    def values(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace.

        Example:

            admin.name_servers.values("ORDER_TOPIC_CONFIG")
        """
        return self._run(lambda core: core.values(namespace))

    def put_value(self, namespace: str, key: str, value: str) -> None:
        """Sets it on every name server."""
        self._run(lambda core: core.put_value(namespace, key, value))

    def delete_value(self, namespace: str, key: str) -> None:
        """Removes it from every name server."""
        self._run(lambda core: core.delete_value(namespace, key))

    def put_order(self, topic: str, broker: str, queues: int) -> str:
        """Sets one broker's part of an order topic and leaves the others; the whole text that results."""
        return self._run(lambda core: core.put_order(topic, broker, queues))

    def wipe_write_permission(self, address: str, broker: str) -> int:
        """New messages go elsewhere. How many topics are concerned, on this name server."""
        return self._run(lambda core: core.wipe_write_permission(address, broker))

    def add_write_permission(self, address: str, broker: str) -> int:
        """New messages may come again. How many topics are concerned, on this name server."""
        return self._run(lambda core: core.add_write_permission(address, broker))

    def configs(self) -> dict[str, dict[str, str]]:
        """The settings of each name server, by its address."""
        return self._run(lambda core: core.configs())

    def update_config(self, changes: Mapping[str, str]) -> None:
        """Changes settings of every name server."""
        self._run(lambda core: core.update_config(changes))


class Connections(Part[AsyncAdmin, AsyncConnections]):
    """Who is connected: producers and consumers of a group, as the brokers see them.

    Example:

        for member in (admin.connections.consumers("billing")).connectionSet:
            print(member.clientId, member.clientAddr, member.language)
    """

    def producers(self, group: str, topic: str) -> bodies.ProducerConnection:
        """Producers of the group on the first broker of the topic that has any. Raises NobodyOnline.

        Example:

            (admin.connections.producers("orders", "OrderTopic")).connectionSet
        """
        return self._run(lambda core: core.producers(group, topic))

    def all_producers(self, address: str) -> dict[str, list[bodies.ProducerInfo]]:
        """By group. Brokers before 4.9 refuse."""
        return self._run(lambda core: core.all_producers(address))

    def consumers_at(self, address: str, group: str) -> bodies.ConsumerConnection:
        """Consumers of the group that one broker knows. Raises NobodyOnline."""
        return self._run(lambda core: core.consumers_at(address, group))

    def consumers(self, group: str) -> bodies.ConsumerConnection:
        """Consumers of the group on the first broker that has any: a consumer tells all of its brokers.

        Also what they subscribe to, and how they consume. Raises NobodyOnline.
        """
        return self._run(lambda core: core.consumers(group))


class Groups(Part[AsyncAdmin, AsyncGroups]):
    """Consumer groups: their configuration, how far they are, and what their members say of themselves.

    Example:

        progress = admin.groups.progress("billing")
        for queue, at in progress.offsetTable.items():
            print(queue, at.brokerOffset - at.consumerOffset)
    """

    def names(self) -> list[str]:
        """Groups that have had a member, in order: each of them has a retry topic."""
        return self._run(lambda core: core.names())

    def brokers(self, group: str, topic: str | None = None) -> dict[str, str]:
        """The brokers that know the group, found by its retry topic, or else those of the topic."""
        return self._run(lambda core: core.brokers(group, topic))

    def create(self, address: str, config: bodies.SubscriptionGroupConfig) -> None:
        """Creates it on that broker, or changes it.

        Example:

            admin.groups.create(address, SubscriptionGroupConfig(groupName="billing", retryMaxTimes=5))
        """
        self._run(lambda core: core.create(address, config))

    def create_all(self, address: str, configs: Iterable[bodies.SubscriptionGroupConfig]) -> None:
        """Many at once; a broker before 5.3 cannot, so they are then created one by one."""
        self._run(lambda core: core.create_all(address, configs))

    def delete(self, address: str, group: str, with_offsets: bool = False) -> None:
        """From one broker; its offsets stay unless they are to go too."""
        self._run(lambda core: core.delete(address, group, with_offsets))

    def config(self, address: str, group: str) -> bodies.SubscriptionGroupConfig:
        """How one broker has it configured. Raises NoGroup; a broker that creates groups by itself has each.

        Brokers before 5.0 cannot be asked for one group, so all are read.
        """
        return self._run(lambda core: core.config(address, group))

    def set_readable(self, address: str, group: str, topic: str, readable: bool) -> bool:
        """Whether the group may read the topic on this broker, from now on; what the broker says it is.

        Brokers before 5.0 refuse.
        """
        return self._run(lambda core: core.set_readable(address, group, topic, readable))

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
        """On all of its brokers, in all topics or one. Raises NoProgress when there is none and nobody is
        online, NoGroup when no broker knows the group.

            behind = sum(
                at.brokerOffset - at.consumerOffset
                for at in (admin.groups.progress("billing", "OrderTopic")).offsetTable.values()
            )
        """
        return self._run(lambda core: core.progress(group, topic))

    def topics_read(self, group: str) -> list[str]:
        """Topics in which the group has committed offsets, in order. Raises NoGroup."""
        return self._run(lambda core: core.topics_read(group))

    def subscription(self, group: str, topic: str) -> bodies.SubscriptionData | None:
        """What the members that are online want of the topic; None: nobody is, or nothing."""
        return self._run(lambda core: core.subscription(group, topic))

    def time_spans(self, group: str, topic: str) -> list[bodies.QueueTimeSpan]:
        """For each queue of the topic: when its first and last message were stored, and the one the group is
        at; the delay is between the latter two.

            for span in admin.groups.time_spans("billing", "OrderTopic"):
                print(span.messageQueue, span.delayTime)
        """
        return self._run(lambda core: core.time_spans(group, topic))

    def running_info(
        self, group: str, client_id: str, with_stack: bool = False
    ) -> bodies.ConsumerRunningInfo:
        """What one member says of itself, through the first broker that reaches it.

        Example:

            for member in (admin.connections.consumers("billing")).connectionSet:
                info = admin.groups.running_info("billing", member.clientId)
                print(member.clientId, info.properties["PROP_CLIENT_VERSION"], len(info.mqTable))
        """
        return self._run(lambda core: core.running_info(group, client_id, with_stack))

    def member_positions(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """How far each member says that it is in its queues of the topic, by its id; or one member alone.

        Members that pull by themselves and those in other languages than Java may not tell.
        """
        return self._run(lambda core: core.member_positions(group, topic, client_id))

    def owners(self, group: str) -> dict[MessageQueue, str]:
        """Which member has which queue. Members that do not answer are left out."""
        return self._run(lambda core: core.owners(group))


class Offsets(Part[AsyncAdmin, AsyncOffsets]):
    """Moving a group's offsets: to a time, to the end, to those of another group.

    Example:

        admin.offsets.reset_to("billing", "OrderTopic", "2026-11-01T00:00:00Z")
        admin.offsets.reset_to("billing", "OrderTopic", END)
        admin.offsets.clone("billing", "audit", "OrderTopic")
    """

    def reset_to(self, group: str, topic: str, when: Time, force: bool = True) -> dict[MessageQueue, int]:
        """The group goes on in the topic at the first message stored at that time or later, whether it runs
        or not. `when` is a datetime with a time zone, a negative timedelta from now, milliseconds since 1970,
        ISO text with a zone, an age such as `10m`, or END. Without `force` only back.

        Where the group goes on now. Raises GroupNotFound for a group that a broker does not know.
        """
        return self._run(lambda core: core.reset_to(group, topic, when, force))

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Where the group goes on in one queue; None: it has never committed an offset there."""
        return self._run(lambda core: core.committed(group, queue))

    def reset(self, group: str, topic: str, time_ms: int, force: bool = True) -> dict[MessageQueue, int]:
        """Through the brokers, also while the group runs; `force` allows going forward too.

        Raises ConsumerNotOnline: an older broker, and the group is stopped. Then `reset_stopped` does it.
        """
        return self._run(lambda core: core.reset(group, topic, time_ms, force))

    def reset_stopped(self, group: str, topic: str, time_ms: int, force: bool = True) -> list[Rollback]:
        """Queue by queue, for a group none of which is online: members that run would commit over it."""
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
        """As a member of the group would. A member that runs goes on where it is, and commits over it."""
        self._run(lambda core: core.commit(address, group, queue, offset))


class Messages(Part[AsyncAdmin, AsyncMessages]):
    """Stored messages: found by id, by key, by place; handed to a consumer; followed to who has read them.

    Example:

        for message in admin.messages.by_key("OrderTopic", "A-1"):
            print(message.message_id, message.text)
            for track in admin.messages.tracks(message):
                print(track.group, track.type)
    """

    def as_group(self, group: str) -> "Messages":
        """Pulls in the name of that group, which brokers take note of; its offsets stay as they are."""
        return Messages(self._whole, lambda core: self._pick(core).as_group(group))

    def at_offset_id(self, message_id: str, topic: str | None = None) -> MessageExt:
        """The message stored where the id says. Raises Refused when there is none, or it is no such id.

        Example:

            admin.messages.at_offset_id("7F00000100002A9F00000000000000DE")
        """
        return self._run(lambda core: core.at_offset_id(message_id, topic))

    def find(self, topic: str, message_id: str) -> MessageExt:
        """By either kind of id. Raises NoMessages.

        Example:

            message = admin.messages.find("OrderTopic", receipt.message_id)
        """
        return self._run(lambda core: core.find(topic, message_id))

    def by_key(
        self, topic: str, key: str, max_count: int = 64, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """Those with that key, in the order of storing. The sender's id is no key. Raises NoMessages.

        Example:

            admin.messages.by_key("OrderTopic", "A-1", max_count=10)
        """
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
        """The message at one place of a queue; None: there is none.

        Example:

            admin.messages.at_offset(MessageQueue("OrderTopic", "broker-a", 0), 41)
        """
        return self._run(lambda core: core.at_offset(queue, offset))

    def pulls(
        self, queue: MessageQueue, begin: int, end: int, expression: str = "*", max_count: int = BATCH
    ) -> Iterator[PullResult]:
        """The answers of pulls from `begin` until they reach `end`, or until the queue has no more."""
        return self._iterate(lambda core: core.pulls(queue, begin, end, expression, max_count))

    def consume_directly(
        self, message: MessageExt, group: str, client_id: str
    ) -> bodies.ConsumeMessageDirectlyResult:
        """One member of a group consumes one message, whatever its offsets are; what its listener said.

        Example:

            result = admin.messages.consume_directly(message, "billing", member.clientId)
            print(result.consumeResult, result.remark)
        """
        return self._run(lambda core: core.consume_directly(message, group, client_id))

    def tracks(self, message: MessageExt) -> list[Track]:
        """What became of a message in each group that reads its topic."""
        return self._run(lambda core: core.tracks(message))


class Queues(Part[AsyncAdmin, AsyncQueues]):
    """Queues: where they begin and end, where a time is in them, and what their entries say.

    Example:

        for queue in (admin.topics.queues("OrderTopic")).subscribe:
            print(queue, admin.queues.min_offset(queue), admin.queues.max_offset(queue))
    """

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that is still there."""
        return self._run(lambda core: core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will have."""
        return self._run(lambda core: core.max_offset(queue))

    def offset_at(self, queue: MessageQueue, when: Time) -> int:
        """The offset of the first message stored at that time or later.

        Example:

            admin.queues.offset_at(queue, "2026-11-01T00:00:00Z")
        """
        return self._run(lambda core: core.offset_at(queue, when))

    def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """When the first message that is still there was stored; -1: there is none."""
        return self._run(lambda core: core.earliest_store_time_ms(queue))

    def entries(
        self, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> bodies.QueryConsumeQueueResponseBody | None:
        """Entries of a consume queue, from that index on. None: there is nothing.

        With a group, each entry says whether its subscription wants it.

            found = admin.queues.entries(address, "OrderTopic", 0, 100, 10, "billing")
        """
        return self._run(lambda core: core.entries(address, topic, queue_id, index, count, group))


class Transactions(Part[AsyncAdmin, AsyncTransactions]):
    """Half messages that nobody has ended.

    Example:

        for half in admin.transactions.open():
            print(half.message_id, topic_of(half), group_of(half))
        for half in admin.transactions.expired():
            admin.transactions.resume(half)
    """

    def open(self) -> Iterator[MessageExt]:
        """Those that wait for their end, broker by broker, oldest first."""
        return self._iterate(lambda core: core.open())

    def expired(self) -> Iterator[MessageExt]:
        """Those that producers were asked about as often as is allowed, broker by broker, oldest first. Some
        may have ended, or have been resumed, since then.
        """
        return self._iterate(lambda core: core.expired())

    def resume(self, half: MessageExt) -> None:
        """An expired one waits again, and its producers are asked. Raises Refused: it is open or ended."""
        self._run(lambda core: core.resume(half))

    def ids(self) -> Iterator[BookSummary]:
        """Transactional ids of the ledger, by name, each as its home knows it: state, last batch, last use.
        Only our brokers keep a ledger; others are passed over.

        Example:

            for book in admin.transactions.ids():
                print(book.id, book.state, book.highest, book.used_ms)
        """
        return self._iterate(lambda core: core.ids())

    def forget(self, id: str) -> int:
        """Removes an id from the ledger: a batch of it may be written again. How many brokers knew it.
        Raises Refused while messages of it wait for a decision or an end.
        """
        return self._run(lambda core: core.forget(id))


class Timers(Part[AsyncAdmin, AsyncTimers]):
    """Messages that wait for a time of their own.

    Example:

        for timer in admin.timers.pending("OrderTopic"):
            print(timer.message.message_id, timer.due_ms)
            admin.timers.recall(timer.handle)
    """

    def pending(self, topic: str | None = None) -> list[Timer]:
        """All that wait, or those for one topic; the next first. Reads the whole of what brokers keep of
        them. Raises NoTimers.
        """
        return self._run(lambda core: core.pending(topic))

    def recall(self, handle: str) -> str:
        """Takes a message back: nobody will get it. Returns its id. Raises Refused when it is too late."""
        return self._run(lambda core: core.recall(handle))


class DeadLetters(Part[AsyncAdmin, AsyncDeadLetters]):
    """Of one group; `admin.dead_letters(group)` gives them.

    Example:

        letters = admin.dead_letters("billing")
        for letter in letters.within():
            if not letters.copies(letter):
                letters.resend(letter)
    """

    @property
    def topic(self) -> str:
        """Where they are."""
        return self._call(lambda core: core.topic)

    def within(self, window: Window = ALWAYS) -> Iterator[MessageExt]:
        """Those that are there now, or of them those stored within that time: queue by queue, oldest first.
        Raises NoLetters.
        """
        return self._iterate(lambda core: core.within(window))

    def with_id(self, message_id: str) -> MessageExt:
        """By either kind of id. Raises NoLetters."""
        return self._run(lambda core: core.with_id(message_id))

    def copies(self, letter: MessageExt, target: Target = Target.GROUP) -> list[MessageExt]:
        """What `resend` has made from this letter before and is still stored."""
        return self._run(lambda core: core.copies(letter, target))

    def resend(
        self, letter: MessageExt, target: Target = Target.GROUP, producer: Sender | None = None
    ) -> SendResult:
        """Sends a copy, for this group alone or to all that read the topic it was first sent to. The letter
        stays where it is. Raises Refused, OSError, or BrokenBody for a body that cannot be read.
        """
        return self._run(lambda core: core.resend(letter, target, producer))

    def target_of(self, letter: MessageExt, target: Target) -> str:
        """Raises NoLetters for one that does not say where it was first."""
        return self._call(lambda core: core.target_of(letter, target))
