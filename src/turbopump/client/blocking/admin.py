"""Blocking administration.

Written by scripts/faces.py from turbopump.client.admin.admin: change that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Unpack

from turbopump.client.admin.accounts import AclAccounts as AsyncAclAccounts
from turbopump.client.admin.accounts import AclFiles
from turbopump.client.admin.admin import Admin as AsyncAdmin
from turbopump.client.admin.brokers import CONSUME_STATS_TIMEOUT_S, RAFT_TRANSFER_TIMEOUT_S, StatsName
from turbopump.client.admin.brokers import Brokers as AsyncBrokers
from turbopump.client.admin.calls import TIMEOUT_S
from turbopump.client.admin.clusters import Clusters as AsyncClusters
from turbopump.client.admin.clusters import Layout
from turbopump.client.admin.connections import Connections as AsyncConnections
from turbopump.client.admin.dead_letters import ALWAYS, Target, Window
from turbopump.client.admin.dead_letters import DeadLetters as AsyncDeadLetters
from turbopump.client.admin.global_transactions import BookEntry, GlobalCount
from turbopump.client.admin.global_transactions import GlobalTransactions as AsyncGlobalTransactions
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
from turbopump.client.admin.users import Acls as AsyncAcls
from turbopump.client.admin.users import Users as AsyncUsers
from turbopump.client.blocking.face import Face, FacePart
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
from turbopump.protocol.ledger import BookSummary

__all__ = [
    "AclAccounts",
    "Acls",
    "Admin",
    "Brokers",
    "Clusters",
    "Connections",
    "DeadLetters",
    "GlobalTransactions",
    "Groups",
    "Messages",
    "NameServerSettings",
    "Offsets",
    "Queues",
    "Timers",
    "Topics",
    "Transactions",
    "Users",
]


@spelled_out(ClientSettings)
class Admin(Face[AsyncAdmin]):
    """Administers a cluster of Apache's or Turbopump's servers, with one part per subject.

    `clusters`, `brokers`, `name_servers` are about servers; `topics`, `queues`, `messages`, `transactions`,
    `timers` about stored messages; `global_transactions` about transactions over several participants;
    `groups`, `offsets`, `connections` about producers and consumers; `users`, `acls` and, for servers of 4.x,
    `accounts` about access control.

        with Admin("127.0.0.1:9876") as admin:
            admin.topics.create("OrderTopic", queues=8)
            print(admin.topics.names())

    Without `name_servers` they are found as for every client: `turbopump.configure()`, the configuration
    file, NAMESRV_ADDR, else 127.0.0.1:9876. `timeout` is for each request, in seconds; slow requests have
    more. Every call raises `Refused` (or its class for the code) when a server refuses, and `Unreachable`, an
    OSError, when it does not answer. Other keyword arguments are settings of every client, such as `use_tls`.
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
        self.clusters = Clusters(self, lambda core: core.clusters)
        self.topics = Topics(self, lambda core: core.topics)
        self.brokers = Brokers(self, lambda core: core.brokers)
        self.name_servers = NameServerSettings(self, lambda core: core.name_servers)
        self.users = Users(self, lambda core: core.users)
        self.acls = Acls(self, lambda core: core.acls)
        self.accounts = AclAccounts(self, lambda core: core.accounts)
        self.connections = Connections(self, lambda core: core.connections)
        self.groups = Groups(self, lambda core: core.groups)
        self.offsets = Offsets(self, lambda core: core.offsets)
        self.messages = Messages(self, lambda core: core.messages)
        self.queues = Queues(self, lambda core: core.queues)
        self.transactions = Transactions(self, lambda core: core.transactions)
        self.global_transactions = GlobalTransactions(self, lambda core: core.global_transactions)
        self.timers = Timers(self, lambda core: core.timers)

    @property
    def settings(self) -> ClientSettings:
        """All settings, defaults included."""
        return self._core.settings

    def dead_letters(self, group: str) -> "DeadLetters":
        """Returns the object that lists, finds and resends the dead letters of a group; sends no request.

        Example:

            for letter in admin.dead_letters("billing").within():
                print(letter.message_id, letter.reconsume_times)
        """
        return DeadLetters(self, lambda core: core.dead_letters(group))

    def close(self) -> None:
        """Closes all connections of this Admin. May be called again."""
        self._close()


class Clusters(FacePart[AsyncAdmin, AsyncClusters]):
    """Lists the clusters, their brokers and the addresses of the brokers."""

    def layout(self) -> Layout:
        """Returns all brokers of all clusters, as one of the name servers knows them.

        Example:

            layout = admin.clusters.layout()
            print(layout.clusters, layout.masters("DefaultCluster"), layout.master_of("broker-a"))
        """
        return self._run(lambda core: core.layout())


class Topics(FacePart[AsyncAdmin, AsyncTopics]):
    """Administers topics: lists, routes, configuration, the offsets of their queues, and reading groups.

    Example:

        admin.topics.create("OrderTopic", queues=8)
        for queue, ends in (admin.topics.stats("OrderTopic")).offsetTable.items():
            print(queue, ends.minOffset, ends.maxOffset)
        admin.topics.delete("OrderTopic")
    """

    def names(self) -> list[str]:
        """Returns every topic that a name server knows, system topics included, in order."""
        return self._run(lambda core: core.names())

    def names_in_cluster(self, cluster: str) -> list[str]:
        """Returns the topics that brokers of this cluster have, in order."""
        return self._run(lambda core: core.names_in_cluster(cluster))

    def system_names(self) -> list[str]:
        """Returns the topics that brokers register for themselves: names of clusters and brokers."""
        return self._run(lambda core: core.system_names())

    def clusters(self, topic: str) -> list[str]:
        """Returns the clusters whose brokers have the topic. Raises TopicNotFound."""
        return self._run(lambda core: core.clusters(topic))

    def route(self, topic: str) -> bodies.TopicRouteData:
        """Returns the route of a topic as a name server knows it. Raises TopicNotFound."""
        return self._run(lambda core: core.route(topic))

    def readers(self, topic: str) -> dict[str, str]:
        """Returns broker name → address to ask, for each broker of a topic: its master's, else a slave's."""
        return self._run(lambda core: core.readers(topic))

    def queues(self, topic: str) -> TopicRoute:
        """Returns the queues of a topic to send to and to read from, and its brokers. Raises TopicNotFound.

        Example:

            route = admin.topics.queues("OrderTopic")
            print(route.publish, route.subscribe, route.master("broker-a"))
        """
        return self._run(lambda core: core.queues(topic))

    def config(self, address: str, topic: str) -> TopicConfig:
        """Returns the configuration of a topic at one broker. Raises TopicNotFound.

        Brokers before 5.0 cannot be asked for one topic, so all are read.
        """
        return self._run(lambda core: core.config(address, topic))

    def configs(self, address: str) -> bodies.TopicConfigSerializeWrapper:
        """Returns the configuration of every topic of a broker, system topics included."""
        return self._run(lambda core: core.configs(address))

    def user_configs(
        self, address: str, with_retry_and_dead_letters: bool = False
    ) -> bodies.TopicConfigSerializeWrapper:
        """Returns a broker's topic configurations, without system topics and those without a permission."""
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
        """Creates or changes a topic on all masters (of `cluster`); with `config`, at broker address `topic`.

            admin.topics.create("OrderTopic", queues=8)

        With a `config`, which says everything about the topic, the first argument is the address of the one
        broker to create it on. Attributes are changes: `+name` with a value, `-name`.

            config = TopicConfig(topicName="OrderTopic", readQueueNums=8, writeQueueNums=8, perm=6)
            admin.topics.create("127.0.0.1:10911", config)

        Raises NoPermission for a permission that does not exist (brokers would accept it), NotFound when
        there is no broker, and the first refusal, whose notes say which brokers have the topic then.
        """
        return self._run(
            lambda core: core.create(
                topic, config, queues=queues, cluster=cluster, permission=permission, ordered=ordered
            )
        )

    def create_like(self, template: str, config: TopicConfig) -> list[str]:
        """Creates a topic on the masters that have topic `template`; returns the addresses that accepted it.

        Returns the addresses of the brokers that accepted it. Raises the last refusal when none did.

            admin.topics.create_like("DefaultCluster", TopicConfig(topicName="OrderTopic"))
        """
        return self._run(lambda core: core.create_like(template, config))

    def create_all(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Creates or changes many topics on one broker: by one request, or one by one before 5.3."""
        self._run(lambda core: core.create_all(address, configs))

    def delete(self, topic: str) -> None:
        """Deletes a topic, with its messages, from every broker that has it and from the name servers.

        Example:

            admin.topics.delete("OrderTopic")
        """
        self._run(lambda core: core.delete(topic))

    def delete_in_broker(self, address: str, topic: str) -> None:
        """Deletes a topic, with its messages, from one broker."""
        self._run(lambda core: core.delete_in_broker(address, topic))

    def delete_in_name_servers(self, topic: str, cluster: str | None = None) -> None:
        """Deletes the routes of a topic from all name servers; a broker that has it registers them again."""
        self._run(lambda core: core.delete_in_name_servers(topic, cluster))

    def stats_at(self, address: str, topic: str) -> bodies.TopicStatsTable:
        """Returns the first and the next offset of each of the topic's queues on one broker."""
        return self._run(lambda core: core.stats_at(address, topic))

    def stats(self, topic: str, found_through: str | None = None) -> bodies.TopicStatsTable:
        """Returns the first and the next offset of all queues of a topic. Raises NotFound without data.

        `found_through` is another topic whose brokers are asked.
        """
        return self._run(lambda core: core.stats(topic, found_through))

    def consumers(self, topic: str) -> list[str]:
        """Returns the consumer groups that read the topic or have offsets in it, in order."""
        return self._run(lambda core: core.consumers(topic))


class Brokers(FacePart[AsyncAdmin, AsyncBrokers]):
    """Administers one broker, by its address: runtime figures, statistics, configuration, clean-up.

    Example:

        for broker in (admin.clusters.layout()).brokers:
            figures = admin.brokers.figures(broker.address)
            print(broker.name, figures["brokerVersionDesc"], figures["msgPutTotalTodayNow"])
    """

    def figures(self, address: str) -> dict[str, str]:
        """Returns the runtime figures of a broker, as `mqadmin brokerStatus` shows them.

        Each version of a broker has its own set of keys.

        Example:

            (admin.brokers.figures("127.0.0.1:10911"))["putTps"]
        """
        return self._run(lambda core: core.figures(address))

    def ha_status(self, address: str) -> bodies.HARuntimeInfo:
        """Returns how far the slaves of a master are, or what a slave knows of its master. Needs 5.x.

        Example:

            for slave in (admin.brokers.ha_status("127.0.0.1:10911")).haConnectionInfo:
                print(slave.addr, slave.diff, slave.inSync)
        """
        return self._run(lambda core: core.ha_status(address))

    def raft_status(self, address: str) -> bodies.RaftStatus:
        """Returns what a broker knows of its DLedger group. Raises Refused at a broker in none, or of Apache.

        Example:

            status = admin.brokers.raft_status("127.0.0.1:10911")
            print(status.member, status.role, status.term, status.leader, status.leaderAddress)
        """
        return self._run(lambda core: core.raft_status(address))

    def raft_transfer(self, address: str, member: str, timeout_s: float = RAFT_TRANSFER_TIMEOUT_S) -> None:
        """Has the leader of a DLedger group, by its address, give the leadership to another member.

        Returns when that member leads. Raises Refused if the asked one does not lead, or with why it failed.

        Example:

            admin.brokers.raft_transfer(status.leaderAddress, "n1")
        """
        self._run(lambda core: core.raft_transfer(address, member, timeout_s))

    def statistics(self, address: str, name: StatsName, key: str) -> bodies.BrokerStatsData:
        """Returns sum and rate of a counter over the last minute, hour and day. Raises Refused without data.

        Example:

            found = admin.brokers.statistics(address, "TOPIC_PUT_NUMS", "OrderTopic")
            print(found.statsMinute.tps, found.statsDay.sum)
        """
        return self._run(lambda core: core.statistics(address, name, key))

    def consume_stats(
        self, address: str, of_order_topics: bool = False, timeout_s: float = CONSUME_STATS_TIMEOUT_S
    ) -> bodies.ConsumeStatsList:
        """Returns the committed offsets of all groups in all queues of a broker, and the queues' ends.

        Example:

            for by_group in (admin.brokers.consume_stats(address)).consumeStatsList: ...
        """
        return self._run(lambda core: core.consume_stats(address, of_order_topics, timeout_s))

    def config(self, address: str) -> dict[str, str]:
        """Returns all settings of a broker, by Apache's names.

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
        """Makes a broker delete the consume-queue files whose messages are gone from its commit log."""
        self._run(lambda core: core.clean_expired_queues(address))

    def clean_unused_topics(self, address: str) -> None:
        """Makes a broker delete the consume queues of topics that no longer exist there."""
        self._run(lambda core: core.clean_unused_topics(address))

    def delete_expired_files(self, address: str) -> None:
        """Makes a broker delete commit-log files past their retention now, instead of at `deleteWhen`."""
        self._run(lambda core: core.delete_expired_files(address))


class NameServerSettings(FacePart[AsyncAdmin, AsyncNameServerSettings]):
    """Administers name servers: key-value tables, settings, and the write permission of brokers.

    Example:

        admin.name_servers.put_value("ORDER_TOPIC_CONFIG", "OrderTopic", "broker-a:4;broker-b:4")
        for address in admin.name_servers.addresses:
            admin.name_servers.wipe_write_permission(address, "broker-b")
    """

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the name servers in use, as configured or discovered."""
        return self._call(lambda core: core.addresses)

    def value(self, namespace: str, key: str) -> str | None:
        """Returns one value of a namespace, from one name server; None if there is none."""
        return self._run(lambda core: core.value(namespace, key))

    def values(self, namespace: str) -> dict[str, str]:
        """Returns all keys and values of a namespace, from one name server; empty if there are none.

        Example:

            admin.name_servers.values("ORDER_TOPIC_CONFIG")
        """
        return self._run(lambda core: core.values(namespace))

    def put_value(self, namespace: str, key: str, value: str) -> None:
        """Sets a key of a namespace to a value on every name server."""
        self._run(lambda core: core.put_value(namespace, key, value))

    def delete_value(self, namespace: str, key: str) -> None:
        """Removes a key of a namespace from every name server."""
        self._run(lambda core: core.delete_value(namespace, key))

    def put_order(self, topic: str, broker: str, queues: int) -> str:
        """Sets one broker's queue count in a topic's order configuration; returns the whole `broker:n;…`."""
        return self._run(lambda core: core.put_order(topic, broker, queues))

    def wipe_write_permission(self, address: str, broker: str) -> int:
        """Removes a broker's write permission at one name server; returns how many of its topics changed."""
        return self._run(lambda core: core.wipe_write_permission(address, broker))

    def add_write_permission(self, address: str, broker: str) -> int:
        """Restores a broker's write permission at one name server; returns how many of its topics changed."""
        return self._run(lambda core: core.add_write_permission(address, broker))

    def configs(self) -> dict[str, dict[str, str]]:
        """Returns the settings of each name server, by its address."""
        return self._run(lambda core: core.configs())

    def update_config(self, changes: Mapping[str, str]) -> None:
        """Changes settings of every name server."""
        self._run(lambda core: core.update_config(changes))


class Users(FacePart[AsyncAdmin, AsyncUsers]):
    """Administers users at one broker, by its address. Brokers of Apache do not tell each other their users.

    Example:

        admin.users.create(address, "billing", "a long secret")
        admin.acls.create(address, "User:billing", ["Topic:orders"], ["Sub"], "Allow")
    """

    def create(self, address: str, name: str, password: str, kind: str | None = None) -> None:
        """Creates a user, `Normal` or `Super`; Normal by default. Raises Refused if there is one already.

        Example:

            admin.users.create("127.0.0.1:10911", "billing", "a long secret")
        """
        self._run(lambda core: core.create(address, name, password, kind))

    def update(
        self,
        address: str,
        name: str,
        *,
        password: str | None = None,
        kind: str | None = None,
        status: str | None = None,
        keep_secret: bool = False,
    ) -> None:
        """Changes password, kind (`Normal`, `Super`) or status (`enable`, `disable`) of a user.

        What is None stays as it is. `keep_secret`: the password before stays valid beside the new one, until
        the password is set again without it. Only Turbopump can do that: of a broker that has set the new
        password alone, SystemFailure is raised.

        Example:

            admin.users.update(address, "billing", password="the next secret", keep_secret=True)
            # ... all clients sign with the next secret now ...
            admin.users.update(address, "billing", password="the next secret")
        """
        self._run(
            lambda core: core.update(
                address, name, password=password, kind=kind, status=status, keep_secret=keep_secret
            )
        )

    def delete(self, address: str, name: str) -> None:
        """Deletes a user and its policies. Apache's brokers do so without a word if there is none."""
        self._run(lambda core: core.delete(address, name))

    def get(self, address: str, name: str) -> bodies.UserInfo | None:
        """Returns a user, None if there is none. Apache's brokers tell the password, Turbopump's never do."""
        return self._run(lambda core: core.get(address, name))

    def find(self, address: str, containing: str | None = None) -> list[bodies.UserInfo]:
        """Returns the users whose name contains a text, or all."""
        return self._run(lambda core: core.find(address, containing))


class Acls(FacePart[AsyncAdmin, AsyncAcls]):
    """Administers the policies of users at one broker, by its address.

    Resources are `Topic:name`, `Group:name`, `Cluster:name`, with a `*` at the end for all names that begin
    so, or `*` alone for everything; actions `All`, `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`.

    Example:

        admin.acls.create(address, "User:billing", ["Topic:orders", "Group:billing"], ["Sub"], "Allow")
    """

    def create(
        self,
        address: str,
        subject: str,
        resources: Sequence[str],
        actions: Sequence[str],
        decision: str,
        sources: Sequence[str] | None = None,
    ) -> None:
        """Gives a user one entry per resource. An entry for the same resource is replaced.

        `decision` is `Allow` or `Deny`; `sources` are addresses or networks from which the entry counts.
        """
        self._run(lambda core: core.create(address, subject, resources, actions, decision, sources))

    def update(
        self,
        address: str,
        subject: str,
        resources: Sequence[str],
        actions: Sequence[str],
        decision: str,
        sources: Sequence[str] | None = None,
    ) -> None:
        """Adds or replaces one entry per resource, as `create` does."""
        self._run(lambda core: core.update(address, subject, resources, actions, decision, sources))

    def put(self, address: str, acl: bodies.AclInfo, *, is_new: bool = False) -> None:
        """Adds or replaces entries, of any policy type, as `get` returns them."""
        self._run(lambda core: core.put(address, acl, is_new=is_new))

    def explain(
        self, address: str, user: str, action: str, resource: str, source: str | None = None
    ) -> bodies.AccessExplanation:
        """Returns whether a user, or an account of 4.x, may do something at a broker or name server, and why.

        `resource` is one, such as `Topic:orders`; `source` the address that the user would ask from, by
        default that of this client. Of Turbopump's servers with access control only; others raise Refused.

        Example:

            answer = admin.acls.explain(address, "billing", "Sub", "Topic:orders")
            print(answer.allowed, answer.why)
        """
        return self._run(lambda core: core.explain(address, user, action, resource, source))

    def delete(self, address: str, subject: str, resource: str | None = None) -> None:
        """Deletes a user's entry for a resource, or all its entries."""
        self._run(lambda core: core.delete(address, subject, resource))

    def get(self, address: str, subject: str) -> bodies.AclInfo | None:
        """Returns the policies of `User:name`, None if it has none. Raises Refused without such a user."""
        return self._run(lambda core: core.get(address, subject))

    def find(
        self, address: str, subject: str | None = None, resource: str | None = None
    ) -> list[bodies.AclInfo]:
        """Returns the policies whose subject and resources contain these texts, or all."""
        return self._run(lambda core: core.find(address, subject, resource))


class AclAccounts(FacePart[AsyncAdmin, AsyncAclAccounts]):
    """Administers accounts of access control 4.x at one broker, by its address.

    Brokers of 4.5.2 to 5.3.2 have these requests, those of 5.x that have no such accounts do not answer.

    Example:

        account = PlainAccessConfig(accessKey="billing", secretKey="a long secret", topicPerms=["orders=SUB"])
        admin.accounts.update("127.0.0.1:10911", account)
    """

    def update(self, address: str, account: bodies.PlainAccessConfig) -> None:
        """Creates an account or changes it. `accessKey` and `secretKey` must be given each time."""
        self._run(lambda core: core.update(address, account))

    def delete(self, address: str, access_key: str) -> None:
        """Deletes an account. Raises Refused if there is none."""
        self._run(lambda core: core.delete(address, access_key))

    def allow_addresses(self, address: str, patterns: Sequence[str], path: str | None = None) -> None:
        """Replaces the addresses that need no key, in the default file or in the one at `path`."""
        self._run(lambda core: core.allow_addresses(address, patterns, path))

    def files(self, address: str) -> AclFiles:
        """Returns which files with accounts a broker has loaded, and their versions."""
        return self._run(lambda core: core.files(address))

    def config(self, address: str) -> bodies.AclConfig:
        """Returns all accounts and white addresses. Brokers up to 4.9.7 and 5.1 answer, with the secrets."""
        return self._run(lambda core: core.config(address))


class Connections(FacePart[AsyncAdmin, AsyncConnections]):
    """Lists the connected producers and consumers of a group, as the brokers see them.

    Example:

        for member in (admin.connections.consumers("billing")).connectionSet:
            print(member.clientId, member.clientAddr, member.language)
    """

    def producers(self, group: str, topic: str) -> bodies.ProducerConnection:
        """Returns producers of the group at the first broker of the topic that has any. Raises NobodyOnline.

        Example:

            (admin.connections.producers("orders", "OrderTopic")).connectionSet
        """
        return self._run(lambda core: core.producers(group, topic))

    def all_producers(self, address: str) -> dict[str, list[bodies.ProducerInfo]]:
        """Returns the connected producers of one broker, by group. Brokers before 4.9 refuse."""
        return self._run(lambda core: core.all_producers(address))

    def consumers_at(self, address: str, group: str) -> bodies.ConsumerConnection:
        """Returns the consumers of the group that one broker knows. Raises NobodyOnline."""
        return self._run(lambda core: core.consumers_at(address, group))

    def consumers(self, group: str) -> bodies.ConsumerConnection:
        """Returns the consumers of the group on the first broker that has any: each registers at all brokers.

        The answer includes their subscriptions and how they consume. Raises NobodyOnline.
        """
        return self._run(lambda core: core.consumers(group))


class Groups(FacePart[AsyncAdmin, AsyncGroups]):
    """Administers consumer groups: their configuration, their progress, and the state of their members.

    Example:

        progress = admin.groups.progress("billing")
        for queue, at in progress.offsetTable.items():
            print(queue, at.brokerOffset - at.consumerOffset)
    """

    def names(self) -> list[str]:
        """Returns the groups that have a retry topic, in order: those that have ever had a member."""
        return self._run(lambda core: core.names())

    def brokers(self, group: str, topic: str | None = None) -> dict[str, str]:
        """Returns broker name → address of the brokers with the group's retry topic, else with `topic`."""
        return self._run(lambda core: core.brokers(group, topic))

    def create(self, address: str, config: bodies.SubscriptionGroupConfig) -> None:
        """Creates or changes a group on one broker.

        Example:

            admin.groups.create(address, SubscriptionGroupConfig(groupName="billing", retryMaxTimes=5))
        """
        self._run(lambda core: core.create(address, config))

    def create_all(self, address: str, configs: Iterable[bodies.SubscriptionGroupConfig]) -> None:
        """Creates or changes many groups on one broker: by one request, or one by one before 5.3."""
        self._run(lambda core: core.create_all(address, configs))

    def delete(self, address: str, group: str, with_offsets: bool = False) -> None:
        """Deletes a group from one broker; its offsets stay unless `with_offsets` is set."""
        self._run(lambda core: core.delete(address, group, with_offsets))

    def config(self, address: str, group: str) -> bodies.SubscriptionGroupConfig:
        """Returns the configuration of a group at one broker. Raises NoGroup.

        A broker that creates groups by itself has every group. Brokers before 5.0 cannot be asked for one
        group, so all are read.
        """
        return self._run(lambda core: core.config(address, group))

    def set_readable(self, address: str, group: str, topic: str, readable: bool) -> bool:
        """Allows or forbids a group to read a topic on one broker; returns whether it may then read.

        Brokers before 5.0 refuse.
        """
        return self._run(lambda core: core.set_readable(address, group, topic, readable))

    def configs(self, address: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """Returns the configuration of every group of a broker, by group name."""
        return self._run(lambda core: core.configs(address))

    def user_table(self, address: str) -> bodies.SubscriptionGroupWrapper:
        """Returns the configurations of a broker's groups, without groups of the system and of tools."""
        return self._run(lambda core: core.user_table(address))

    def table(self, address: str) -> bodies.SubscriptionGroupWrapper:
        """Returns the configuration of every group of a broker, and the version of the table."""
        return self._run(lambda core: core.table(address))

    def progress_at(self, address: str, group: str, topic: str | None = None) -> bodies.ConsumeStats:
        """Returns a group's committed offsets and the queues' ends on one broker; empty: none committed."""
        return self._run(lambda core: core.progress_at(address, group, topic))

    def progress(self, group: str, topic: str | None = None) -> bodies.ConsumeStats:
        """Returns a group's committed offsets and the queues' ends on all its brokers, in all topics or one.

        Raises NoProgress when there are none and no member is online, NoGroup when no broker knows the group.

            behind = sum(
                at.brokerOffset - at.consumerOffset
                for at in (admin.groups.progress("billing", "OrderTopic")).offsetTable.values()
            )
        """
        return self._run(lambda core: core.progress(group, topic))

    def topics_read(self, group: str) -> list[str]:
        """Returns the topics in which the group has committed offsets, in order. Raises NoGroup."""
        return self._run(lambda core: core.topics_read(group))

    def subscription(self, group: str, topic: str) -> bodies.SubscriptionData | None:
        """Returns the subscription to the topic of the members online; None: no broker knows one."""
        return self._run(lambda core: core.subscription(group, topic))

    def time_spans(self, group: str, topic: str) -> list[bodies.QueueTimeSpan]:
        """Returns for each queue the store times of its first and last message, and of the group's position.

        The delay is the time between the latter two.

            for span in admin.groups.time_spans("billing", "OrderTopic"):
                print(span.messageQueue, span.delayTime)
        """
        return self._run(lambda core: core.time_spans(group, topic))

    def running_info(
        self, group: str, client_id: str, with_stack: bool = False
    ) -> bodies.ConsumerRunningInfo:
        """Returns a member's report (settings, queues, statistics), through a broker that reaches the member.

        Example:

            for member in (admin.connections.consumers("billing")).connectionSet:
                info = admin.groups.running_info("billing", member.clientId)
                print(member.clientId, info.properties["PROP_CLIENT_VERSION"], len(info.mqTable))
        """
        return self._run(lambda core: core.running_info(group, client_id, with_stack))

    def member_positions(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Returns client id → queue → offset, as the online members report them for a topic.

        With `client_id` only that member is asked. Pull consumers and clients in languages other than Java
        may not report.
        """
        return self._run(lambda core: core.member_positions(group, topic, client_id))

    def owners(self, group: str) -> dict[MessageQueue, str]:
        """Returns queue → client id of the member that has it; members that do not answer are left out."""
        return self._run(lambda core: core.owners(group))


class Offsets(FacePart[AsyncAdmin, AsyncOffsets]):
    """Moves the offsets of a group: to a time, to the end, or to those of another group.

    Example:

        admin.offsets.reset_to("billing", "OrderTopic", "2026-11-01T00:00:00Z")
        admin.offsets.reset_to("billing", "OrderTopic", END)
        admin.offsets.clone("billing", "audit", "OrderTopic")
    """

    def reset_to(self, group: str, topic: str, when: Time, force: bool = True) -> dict[MessageQueue, int]:
        """Moves a group to the first messages stored at `when` or later; returns the new offsets by queue.

        The group may run or not. `when` is a datetime with a time zone, a negative timedelta from now,
        milliseconds since 1970, ISO text with a zone, an age such as `10m`, or END. Without `force` only
        back. Raises GroupNotFound for a group that a broker does not know.
        """
        return self._run(lambda core: core.reset_to(group, topic, when, force))

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Returns the committed offset of a group in one queue; None: it never committed one there."""
        return self._run(lambda core: core.committed(group, queue))

    def reset(self, group: str, topic: str, time_ms: int, force: bool = True) -> dict[MessageQueue, int]:
        """Makes the brokers move a group to a time, even while it runs; returns the new offsets by queue.

        `force` allows moving forward too. Raises ConsumerNotOnline for a stopped group at an older broker;
        then call `reset_stopped`.
        """
        return self._run(lambda core: core.reset(group, topic, time_ms, force))

    def reset_stopped(self, group: str, topic: str, time_ms: int, force: bool = True) -> list[Rollback]:
        """Moves a stopped group to a time by commits, queue by queue; returns old and new offsets.

        `force` allows moving forward too. Running members would overwrite the offsets.
        """
        return self._run(lambda core: core.reset_stopped(group, topic, time_ms, force))

    def reset_queue(self, address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commits `offset` for a group in one queue; a broker since 5.2 also moves running members there.

        Older brokers can move running members in all queues but not in one.
        """
        self._run(lambda core: core.reset_queue(address, group, topic, queue_id, offset))

    def clone(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """Commits group `source`'s offsets in a topic for group `target`; returns them by queue.

        Raises NoGroup or NoProgress. All topics of the group are asked for, because a broker asked for one
        topic answers 0 for a group that never committed there.
        """
        return self._run(lambda core: core.clone(source, target, topic))

    def offset_at(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        """Returns the queue offset of the first message stored at `time_ms` or later, or with END the end."""
        return self._run(lambda core: core.offset_at(address, queue, time_ms))

    def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Commits an offset for a group. A running member keeps its position and overwrites the offset."""
        self._run(lambda core: core.commit(address, group, queue, offset))


class Messages(FacePart[AsyncAdmin, AsyncMessages]):
    """Finds stored messages by id, key or offset, passes one to a consumer, and tells which groups read it.

    Example:

        for message in admin.messages.by_key("OrderTopic", "A-1"):
            print(message.message_id, message.text)
            for track in admin.messages.tracks(message):
                print(track.group, track.type)
    """

    def as_group(self, group: str) -> "Messages":
        """Returns a copy of this object that pulls as group `group`; the group's offsets do not change."""
        return Messages(self._whole, lambda core: self._pick(core).as_group(group))

    def at_offset_id(self, message_id: str, topic: str | None = None) -> MessageExt:
        """Returns the message that an offset id names, of any topic. Raises Refused when there is none.

        `topic` is part of the request; our broker does not check it.

        Example:

            admin.messages.at_offset_id("7F00000100002A9F00000000000000DE")
        """
        return self._run(lambda core: core.at_offset_id(message_id, topic))

    def find(self, topic: str, message_id: str) -> MessageExt:
        """Returns a message by its offset id, of any topic, or its unique id in `topic`. Raises NoMessages.

        Example:

            message = admin.messages.find("OrderTopic", receipt.message_id)
        """
        return self._run(lambda core: core.find(topic, message_id))

    def by_key(
        self, topic: str, key: str, max_count: int = 64, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """Returns messages with a key, up to `max_count` per broker, by store time. Raises NoMessages.

        Example:

            admin.messages.by_key("OrderTopic", "A-1", max_count=10)
        """
        return self._run(lambda core: core.by_key(topic, key, max_count, begin_ms, end_ms))

    def by_unique_key(
        self, topic: str, unique_key: str, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """Returns the newest copies of a message, 32 per broker, by store time. Raises NoMessages."""
        return self._run(lambda core: core.by_unique_key(topic, unique_key, begin_ms, end_ms))

    def every_copy(self, topic: str, unique_key: str, begin_ms: int) -> list[MessageExt]:
        """Returns all copies of a message stored since `begin_ms`, by store time; empty: there are none.

        One answer has the newest ones: older ones are asked for until no more come.
        """
        return self._run(lambda core: core.every_copy(topic, unique_key, begin_ms))

    def at_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Returns the message at a queue offset; None: the queue has none there.

        Example:

            admin.messages.at_offset(MessageQueue("OrderTopic", "broker-a", 0), 41)
        """
        return self._run(lambda core: core.at_offset(queue, offset))

    def pulls(
        self, queue: MessageQueue, begin: int, end: int, expression: str = "*", max_count: int = BATCH
    ) -> Iterator[PullResult]:
        """Pulls a queue from offset `begin` up to `end`, exclusive, and yields the result of each pull.

        It stops before `end` where the queue ends.
        """
        return self._iterate(lambda core: core.pulls(queue, begin, end, expression, max_count))

    def consume_directly(
        self, message: MessageExt, group: str, client_id: str
    ) -> bodies.ConsumeMessageDirectlyResult:
        """Makes one member of a group consume one message, without changing offsets; returns its result.

        Example:

            result = admin.messages.consume_directly(message, "billing", member.clientId)
            print(result.consumeResult, result.remark)
        """
        return self._run(lambda core: core.consume_directly(message, group, client_id))

    def tracks(self, message: MessageExt) -> list[Track]:
        """Returns the state of a message in each consumer group that reads its topic."""
        return self._run(lambda core: core.tracks(message))


class Queues(FacePart[AsyncAdmin, AsyncQueues]):
    """Reads the first and next offset of queues, the offset at a time, and entries of consume queues.

    Example:

        for queue in (admin.topics.queues("OrderTopic")).subscribe:
            print(queue, admin.queues.min_offset(queue), admin.queues.max_offset(queue))
    """

    def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the first message that the queue still has."""
        return self._run(lambda core: core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the queue's next message will have."""
        return self._run(lambda core: core.max_offset(queue))

    def offset_at(self, queue: MessageQueue, when: Time) -> int:
        """Returns the queue offset of the first message stored at `when` or later.

        Example:

            admin.queues.offset_at(queue, "2026-11-01T00:00:00Z")
        """
        return self._run(lambda core: core.offset_at(queue, when))

    def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """Returns the store time of the queue's first message, in ms since 1970; -1: there is none."""
        return self._run(lambda core: core.earliest_store_time_ms(queue))

    def entries(
        self, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> bodies.QueryConsumeQueueResponseBody | None:
        """Returns up to `count` entries of a consume queue from offset `index` on; None: there are none.

        With a group, each entry says whether the group's subscription wants it.

            found = admin.queues.entries(address, "OrderTopic", 0, 100, 10, "billing")
        """
        return self._run(lambda core: core.entries(address, topic, queue_id, index, count, group))


class Transactions(FacePart[AsyncAdmin, AsyncTransactions]):
    """Lists half messages that are open or expired, resumes expired ones, and lists ids of the ledger.

    Example:

        for half in admin.transactions.open():
            print(half.message_id, topic_of(half), group_of(half))
        for half in admin.transactions.expired():
            admin.transactions.resume(half)
    """

    def open(self) -> Iterator[MessageExt]:
        """Yields the half messages that are neither committed nor rolled back, by broker, oldest first."""
        return self._iterate(lambda core: core.open())

    def expired(self) -> Iterator[MessageExt]:
        """Yields the half messages that brokers no longer check, broker by broker, oldest first.

        Some may have ended, or have been resumed, since then.
        """
        return self._iterate(lambda core: core.expired())

    def resume(self, half: MessageExt) -> None:
        """Makes the broker ask producers about an expired half message again.

        Raises Refused if it is open or ended.
        """
        self._run(lambda core: core.resume(half))

    def ids(self) -> Iterator[BookSummary]:
        """Yields a summary of each transactional id of the ledger: state, last batch, last use.

        Only Turbopump's brokers keep a ledger; others are skipped.

        Example:

            for book in admin.transactions.ids():
                print(book.id, book.state, book.highest, book.used_ms)
        """
        return self._iterate(lambda core: core.ids())

    def forget(self, id: str) -> int:
        """Removes a transactional id from the ledger; returns how many brokers knew the id.

        Its batches may be written again then. Raises Refused while messages of it wait for a decision or an
        end.
        """
        return self._run(lambda core: core.forget(id))


class GlobalTransactions(FacePart[AsyncAdmin, AsyncGlobalTransactions]):
    """Lists, shows and resolves global transactions (XA, 3PC, TCC, SAGA) at all brokers of a cluster.

    Example:

        for entry in admin.global_transactions.all(state="parked"):
            print(entry.broker, entry.transaction.gid, entry.transaction.error)
        admin.global_transactions.resolve("tp1.…", "retry", "ann", "the bank is open again")
    """

    def all(
        self, kind: str = "", state: str = "", group: str = "", before_ms: int = 0
    ) -> Iterator[BookEntry]:
        """Yields transactions by broker and gid, without their plans and records.

        Empty arguments select all, also those that have ended and are still kept; `before_ms`: opened before.
        Needs Get on the cluster, or Pub or Get on the group if there is one.
        """
        return self._iterate(lambda core: core.all(kind, state, group, before_ms))

    def counts(self, group: str = "") -> list[GlobalCount]:
        """Returns how many transactions there are of each kind and state, also of those that have ended."""
        return self._run(lambda core: core.counts(group))

    def find(self, gid: str, group: str = "") -> BookEntry:
        """Returns a transaction with its plan and records.

        Raises NotFound when no broker knows it, or when several groups have one of this gid and none is
        given.
        """
        return self._run(lambda core: core.find(gid, group))

    def resolve(
        self,
        gid: str,
        action: str,
        who: str,
        because: str,
        *,
        branch: str = "",
        heuristic: bool = False,
        group: str = "",
    ) -> BookEntry:
        """Resolves a transaction by hand; `who` and `because` are kept with it.

        `action`: retry has it tried again now, commit and abort decide it, done says that `branch` was ended
        by hand. `heuristic` allows what contradicts its decision. Needs Update on the cluster.

        Raises NotFound, or Refused.
        """
        return self._run(
            lambda core: core.resolve(
                gid, action, who, because, branch=branch, heuristic=heuristic, group=group
            )
        )


class Timers(FacePart[AsyncAdmin, AsyncTimers]):
    """Lists and recalls messages that wait for an exact time.

    Example:

        for timer in admin.timers.pending("OrderTopic"):
            print(timer.message.message_id, timer.due_ms)
            admin.timers.recall(timer.handle)
    """

    def pending(self, topic: str | None = None) -> list[Timer]:
        """Returns the messages that wait for an exact time, in all topics or one, by time. Raises NoTimers.

        It reads everything that the brokers store of them.
        """
        return self._run(lambda core: core.pending(topic))

    def recall(self, handle: str) -> str:
        """Recalls a waiting message, so that no consumer gets it; returns its id. Refused if it is too late.

        Raises Refused when it is too late, InvalidArgument for what is not a recall handle.
        """
        return self._run(lambda core: core.recall(handle))


class DeadLetters(FacePart[AsyncAdmin, AsyncDeadLetters]):
    """Lists, finds and resends the dead letters of one group; made by `admin.dead_letters(group)`.

    Example:

        letters = admin.dead_letters("billing")
        for letter in letters.within():
            if not letters.copies(letter):
                letters.resend(letter)
    """

    @property
    def topic(self) -> str:
        """The dead-letter topic of the group."""
        return self._call(lambda core: core.topic)

    def within(self, window: Window = ALWAYS) -> Iterator[MessageExt]:
        """Yields the dead letters stored within `window`: queue by queue, oldest first. Raises NoLetters."""
        return self._iterate(lambda core: core.within(window))

    def with_id(self, message_id: str) -> MessageExt:
        """Returns a dead letter by its unique id or its offset id. Raises NoLetters."""
        return self._run(lambda core: core.with_id(message_id))

    def copies(self, letter: MessageExt, target: Target = Target.GROUP) -> list[MessageExt]:
        """Returns the stored copies of this letter that `resend` sent to `target` before; empty: none."""
        return self._run(lambda core: core.copies(letter, target))

    def resend(
        self, letter: MessageExt, target: Target = Target.GROUP, producer: Sender | None = None
    ) -> SendResult:
        """Sends a copy of a dead letter to the group's retry topic, or to its original topic (`target`).

        The dead letter stays. Raises Refused, OSError, or BrokenBody for a body that cannot be read.
        """
        return self._run(lambda core: core.resend(letter, target, producer))

    def target_of(self, letter: MessageExt, target: Target) -> str:
        """Returns the topic a copy goes to. NoLetters: `target` is TOPIC and the letter names no original."""
        return self._call(lambda core: core.target_of(letter, target))
