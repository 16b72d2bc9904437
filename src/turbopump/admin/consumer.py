"""Commands of consumer groups: create, change, delete, how far they are, and what their members do."""

from dataclasses import dataclass
from typing import Any

import msgspec

from turbopump.admin import monitoring
from turbopump.admin.command import Call, Command, Failed
from turbopump.admin.consumer_text import GROUP_FIELDS, group_text, group_value, running_lines, troubles
from turbopump.admin.files import listed
from turbopump.admin.options import (
    boolean,
    defaulting,
    flag,
    host_port,
    number,
    optional,
    pairs_of_changes,
    required,
    text,
)
from turbopump.admin.render import Table, fields, front
from turbopump.admin.times import local_second
from turbopump.admin.topic import masters
from turbopump.client.admin import Admin, NotFound
from turbopump.client.message import MessageQueue
from turbopump.protocol import bodies, names
from turbopump.protocol.bodies import ConsumerRunningInfo, OffsetWrapper, SubscriptionGroupConfig
from turbopump.protocol.codes import version_name
from turbopump.protocol.errors import BrokenBody, Refused

# --- updateSubGroup, deleteSubGroup ----------------------------------------------------------------------


def retry_policy(word: str) -> bodies.GroupRetryPolicy:
    try:
        return bodies.GroupRetryPolicy.decode(word.strip().encode())
    except BrokenBody:
        raise ValueError(
            'JSON such as {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}'
        ) from None


TO_BROKER = optional("b", "brokerAddr", "create subscription group to which broker", host_port)
TO_CLUSTER = optional("c", "clusterName", "create subscription group to which cluster", text)
GROUP_NAME = required("g", "groupName", "consumer group name", text)
CONSUME = defaulting("s", "consumeEnable", "consume enable", boolean, True)
FROM_MIN = defaulting("m", "consumeFromMinEnable", "from min offset", boolean, False)
BROADCAST = defaulting("d", "consumeBroadcastEnable", "broadcast", boolean, False)
ORDERLY = defaulting("o", "consumeMessageOrderly", "consume message orderly", boolean, False)
RETRY_QUEUES = defaulting("q", "retryQueueNums", "retry queue nums", number, 1)
RETRIES = defaulting("r", "retryMaxTimes", "retry max times", number, 16)
RETRY_POLICY = optional(
    "p",
    "groupRetryPolicy",
    "the json string of retry policy ( exp: "
    '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}} '
    '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}} )',
    retry_policy,
)
BROKER_ID = defaulting("i", "brokerId", "consumer from which broker id", number, 0)
WHEN_SLOW = defaulting("w", "whichBrokerWhenConsumeSlowly", "which broker id when consume slowly", number, 1)
NOTIFIES = defaulting("a", "notifyConsumerIdsChanged", "notify consumerId changed", boolean, True)
ATTRIBUTES = optional("", "attributes", "attribute(+a=b,+c=d,-e)", pairs_of_changes)


async def update_group(call: Call) -> None:
    """As Apache's: what is not given is set to the default, and two of these are `false` here."""
    given = call.given
    changes: dict[str, str] | None = given[ATTRIBUTES]
    config = SubscriptionGroupConfig(
        groupName=given[GROUP_NAME],
        consumeEnable=given[CONSUME],
        consumeFromMinEnable=given[FROM_MIN],
        consumeBroadcastEnable=given[BROADCAST],
        consumeMessageOrderly=given[ORDERLY],
        retryQueueNums=given[RETRY_QUEUES],
        retryMaxTimes=given[RETRIES],
        groupRetryPolicy=given[RETRY_POLICY] or bodies.GroupRetryPolicy(),
        brokerId=given[BROKER_ID],
        whichBrokerWhenConsumeSlowly=given[WHEN_SLOW],
        notifyConsumerIdsChangedEnable=given[NOTIFIES],
        attributes=changes or {},
    )
    addresses = await targets(call)
    for address in addresses:
        await call.admin.groups.create(address, config)
        call.out.line(f"create subscription group to {address} success.")
    call.out.show({"group": fields(config), "brokers": addresses}, [group_text(config)])


async def targets(call: Call) -> list[str]:
    broker = call.given[TO_BROKER]
    return [broker] if broker else await masters(call.admin, call.given[TO_CLUSTER])


LIST_TO_BROKER = optional("b", "brokerAddr", "create groups to which broker", host_port)
LIST_TO_CLUSTER = optional("c", "clusterName", "create groups to which cluster", text)
GROUPS_FILE = required(
    "f",
    "filename",
    "Path to a file with a list of org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig"
    " in json format",
    text,
)


async def update_group_list(call: Call) -> None:
    path, broker = call.given[GROUPS_FILE], call.given[LIST_TO_BROKER]
    configs = listed(call.disk, path, SubscriptionGroupConfig)
    addresses = [broker] if broker else await masters(call.admin, call.given[LIST_TO_CLUSTER])
    what = "group config" if broker else "subscription group config"
    for address in addresses:
        await call.admin.groups.create_all(address, configs)
        call.out.line(f"submit batch of {what} to {address} success, please check the result later.")
    call.out.show({"groups": [config.groupName for config in configs], "brokers": addresses}, [])


FROM_BROKER = optional("b", "brokerAddr", "delete subscription group from which broker", host_port)
FROM_CLUSTER = optional("c", "clusterName", "delete subscription group from which cluster", text)
DELETED = required("g", "groupName", "subscription group name", text)
REMOVE_OFFSETS = defaulting("r", "removeOffset", "remove offset", boolean, False)


async def delete_group(call: Call) -> None:
    """From a cluster together with its retry and dead-letter topics."""
    group, broker, cluster = call.given[DELETED], call.given[FROM_BROKER], call.given[FROM_CLUSTER]
    addresses = [broker] if broker else await masters(call.admin, cluster)
    where = "" if broker else f" in cluster [{cluster}]"
    for address in addresses:
        await call.admin.groups.delete(address, group, call.given[REMOVE_OFFSETS])
        call.out.line(f"delete subscription group [{group}] from broker [{address}]{where} success.")
    topics = [] if broker else [names.retry_topic(group), names.dlq_topic(group)]
    for topic in topics:
        for address in addresses:
            await call.admin.topics.delete_in_broker(address, topic)
        await call.admin.topics.delete_in_name_servers(topic, cluster)
    call.out.show({"group": group, "brokers": addresses, "topics": topics}, [])


# --- getConsumerConfig -----------------------------------------------------------------------------------

CONFIG_OF = required("g", "groupName", "subscription group name", text)


async def group_config(call: Call) -> None:
    """One block per broker that has the group."""
    group = call.given[CONFIG_OF]
    documents, lines = [], []
    for broker in (await call.admin.clusters.layout()).brokers:
        if broker.id != 0:
            continue
        config = (await call.admin.groups.configs(broker.address)).get(group)
        if config is None:
            continue
        documents.append({"cluster": broker.cluster, "brokerName": broker.name} | fields(config))
        lines.append(f"{'=' * 29}{broker.cluster}:{broker.name}{'=' * 29}")
        lines += [f"{name:<40}=  {group_value(config, name)}" for name in GROUP_FIELDS]
    if not documents:
        raise NotFound(f"no broker has a consumer group {group}")
    call.out.show({"configs": documents}, lines)


# --- consumerProgress ------------------------------------------------------------------------------------

PROGRESS_OF = optional("g", "groupName", "consumer group name", text)
IN_TOPIC = optional("t", "topicName", "topic name", text)
WITH_CLIENTS = defaulting("s", "showClientIP", "Show Client IP per Queue", boolean, False)
THROUGH = optional("c", "cluster", "Cluster name or lmq parent topic, lmq is used to find the route.", text)

PROGRESS = Table(
    "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s",
    (
        *("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"),
        *("#Diff", "#Inflight", "#LastTime"),
    ),
    "%-64s  %-32s  %-4d  %-20d  %-20d  %-20d %-20d %s",
)
PROGRESS_WITH_CLIENTS = Table(
    "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s",
    (
        *("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"),
        *("#Client IP", "#Diff", "#Inflight", "#LastTime"),
    ),
    "%-64s  %-32s  %-4d  %-20d  %-20d  %-20s %-20d %-20d %s",
)
OVERVIEW = Table(
    "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s",
    ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"),
    "%-64s  %-6d  %-24s %-5s  %-14s  %-7d  %d",
)


async def consumer_progress(call: Call) -> None:
    group = call.given[PROGRESS_OF]
    if group:
        await progress_of_group(call, group)
    else:
        await progress_of_all(call)


@dataclass(frozen=True, slots=True)
class Position:
    queue: MessageQueue
    offsets: OffsetWrapper
    client_id: str | None

    @property
    def diff(self) -> int:
        return self.offsets.brokerOffset - self.offsets.consumerOffset

    @property
    def in_flight(self) -> int:
        """Pulled and not committed; brokers before 5.0 do not know what was pulled."""
        pulled = self.offsets.pullOffset
        return 0 if pulled is None else pulled - self.offsets.consumerOffset

    def row(self, with_client: bool) -> tuple[object, ...]:
        queue, offsets = self.queue, self.offsets
        at = (front(queue.topic, 64), front(queue.broker, 32), queue.id)
        when = local_second(offsets.lastTimestamp) if offsets.lastTimestamp else "N/A"
        client = ((self.client_id or "N/A").partition("@")[0],) if with_client else ()
        return (
            *(*at, offsets.brokerOffset, offsets.consumerOffset),
            *(*client, self.diff, self.in_flight, when),
        )

    def document(self) -> dict[str, object]:
        return {
            "topic": self.queue.topic,
            "brokerName": self.queue.broker,
            "queueId": self.queue.id,
            "brokerOffset": self.offsets.brokerOffset,
            "consumerOffset": self.offsets.consumerOffset,
            "clientId": self.client_id,
            "diff": self.diff,
            "inflight": self.in_flight,
            "lastTimestamp": self.offsets.lastTimestamp,
        }


async def progress_of_group(call: Call, group: str) -> None:
    with_clients = call.given[WITH_CLIENTS]
    stats = await call.admin.groups.progress(group, call.given[IN_TOPIC])
    owners = await owners_of(call.admin, group) if with_clients else {}
    found = []
    for wire, offsets in sorted(stats.offsetTable.items()):
        queue = MessageQueue.of_wire(wire)
        found.append(Position(queue, offsets, owners.get(queue)))
    diff, in_flight = sum(one.diff for one in found), sum(one.in_flight for one in found)
    table = PROGRESS_WITH_CLIENTS if with_clients else PROGRESS
    lines = [
        *table.lines(one.row(with_clients) for one in found),
        "",
        f"Consume TPS: {stats.consumeTps:.2f}",
        f"Consume Diff Total: {diff}",
        f"Consume Inflight Total: {in_flight}",
    ]
    document = {"queues": [one.document() for one in found], "consumeTps": stats.consumeTps}
    call.out.show(document | {"diffTotal": diff, "inflightTotal": in_flight}, lines)


async def owners_of(admin: Admin, group: str) -> dict[MessageQueue, str]:
    try:
        return await admin.groups.owners(group)
    except NotFound:
        return {}


async def progress_of_all(call: Call) -> None:
    groups = await call.admin.groups.names()
    call.out.line(OVERVIEW.form % OVERVIEW.headings)
    found = []
    for group in groups:
        summary = await summary_of(call.admin, group)
        found.append(summary)
        count, kind = summary.count, "PULL" if summary.type == "CONSUME_ACTIVELY" else "PUSH"
        call.out.line(
            OVERVIEW.row(
                *(front(group, 64), count, version_name(summary.version) if count else "OFFLINE"),
                *(kind if count else "", summary.model if count and kind == "PUSH" else ""),
                *(int(summary.tps), summary.diff),
            )
        )
    call.out.show({"groups": [msgspec.to_builtins(summary) for summary in found]}, [])


@dataclass(frozen=True, slots=True)
class Summary:
    group: str
    count: int = 0
    version: int = 0
    type: str | None = None
    model: str | None = None
    tps: float = 0.0
    diff: int = 0


async def summary_of(admin: Admin, group: str) -> Summary:
    """What can be had; a group may be stopped, or have consumed nothing."""
    tps, diff = 0.0, 0
    try:
        stats = await admin.groups.progress(group)
        tps = stats.consumeTps
        diff = sum(one.brokerOffset - one.consumerOffset for one in stats.offsetTable.values())
    except (NotFound, Refused, OSError):
        pass
    try:
        members = await admin.connections.consumers(group)
    except (NotFound, Refused, OSError):
        return Summary(group, tps=tps, diff=diff)
    versions = [member.version for member in members.connectionSet]
    oldest = min(versions, default=0)
    return Summary(group, len(versions), oldest, members.consumeType, members.messageModel, tps, diff)


# --- consumerStatus --------------------------------------------------------------------------------------

STATUS_OF = required("g", "consumerGroup", "consumer group name", text)
CLIENT_ID = optional("i", "clientId", "The consumer's client id", text)
AT_BROKER = optional("b", "brokerAddr", "broker address", host_port)
STACK = flag("s", "jstack", "Run jstack command in the consumer progress")

MEMBERS = Table(
    "%-10s %-40s %-20s %s",
    ("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"),
    "%-10d %-40s %-20s %s",
)


async def consumer_status(call: Call) -> None:
    group, client_id = call.given[STATUS_OF], call.given[CLIENT_ID]
    if client_id:
        info = await call.admin.groups.running_info(group, client_id, call.given[STACK])
        call.out.show({"clientId": client_id} | running_document(info), running_lines(info))
        return
    broker = call.given[AT_BROKER]
    connections = call.admin.connections
    members = await (connections.consumers_at(broker, group) if broker else connections.consumers(group))
    await status_of_members(call, group, members.connectionSet)


async def status_of_members(call: Call, group: str, members: list[bodies.Connection]) -> None:
    now_ms = call.admin.clock.now_ms()
    call.out.line(MEMBERS.form % MEMBERS.headings)
    found: dict[str, ConsumerRunningInfo] = {}
    for member in members:
        try:
            info = await call.admin.groups.running_info(group, member.clientId, call.given[STACK])
        except (Refused, OSError) as error:
            call.out.warn(f"{member.clientId} does not tell about itself: {error}")
            continue
        found[member.clientId] = info
        if not call.out.as_json:
            path = save_status(call, now_ms, member.clientId, info)
            call.out.line(MEMBERS.row(len(found), member.clientId, version_name(member.version), path))
    if not found:
        raise Failed(f"no member of group {group} told about itself")
    documents = [{"clientId": name} | running_document(info) for name, info in found.items()]
    same = same_subscriptions(found, now_ms)
    stuck = [line for name in sorted(found) for line in troubles(name, found[name], now_ms)]
    ending = (
        ["", "", "Same subscription in the same group of consumer", "", "Rebalance OK", *stuck]
        if same
        else ["", "", "WARN: Different subscription in the same group of consumer!!!"]
    )
    call.out.show({"members": documents, "sameSubscription": same, "troubles": stuck}, ending)


def save_status(call: Call, now_ms: int, client_id: str, info: ConsumerRunningInfo) -> str:
    """Below the working directory, as Apache's; a client may call itself anything, a file may not be."""
    path = f"{now_ms}/{client_id.replace('/', '_')}"
    call.disk.make_dirs(str(now_ms))
    call.disk.write(path, "\n".join([*running_lines(info), ""]).encode(), sync=False)
    return path


def same_subscriptions(found: dict[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """Only of members that run for two minutes: before, a change may still be on its way."""
    seen = {
        frozenset((one.topic, one.subString, one.expressionType) for one in info.subscriptionSet)
        for info in found.values()
        if now_ms - int(info.properties.get("PROP_CONSUMER_START_TIMESTAMP") or 0) > 120_000
    }
    return len(seen) <= 1


def running_document(info: ConsumerRunningInfo) -> dict[str, Any]:
    return {
        "properties": info.properties,
        "subscriptionSet": fields(info.subscriptionSet),
        "queues": [queue.to_wire() | fields(held) for queue, held in sorted(info.mqTable.items())],
        "statusTable": fields(info.statusTable),
        "jstack": info.jstack,
    }


COMMANDS = (
    Command(
        "updateSubGroup",
        "Update or create subscription group.",
        update_group,
        (
            *(GROUP_NAME, CONSUME, FROM_MIN, BROADCAST, ORDERLY, RETRY_QUEUES, RETRIES, RETRY_POLICY),
            *(BROKER_ID, WHEN_SLOW, NOTIFIES, ATTRIBUTES),
        ),
        any_of=(TO_BROKER, TO_CLUSTER),
    ),
    Command(
        "updateSubGroupList",
        "Update or create subscription group in batch",
        update_group_list,
        (GROUPS_FILE,),
        one_of=(LIST_TO_BROKER, LIST_TO_CLUSTER),
    ),
    Command(
        "deleteSubGroup",
        "Delete subscription group from broker.",
        delete_group,
        (DELETED, REMOVE_OFFSETS),
        any_of=(FROM_BROKER, FROM_CLUSTER),
    ),
    Command(
        "getConsumerConfig", "Get consumer config by subscription group name.", group_config, (CONFIG_OF,)
    ),
    Command(
        "consumerProgress",
        "Query consumer's progress, speed.",
        consumer_progress,
        (PROGRESS_OF, IN_TOPIC, WITH_CLIENTS, THROUGH),
    ),
    Command(
        "consumerStatus",
        "Query consumer's internal data structure.",
        consumer_status,
        (STATUS_OF, CLIENT_ID, AT_BROKER, STACK),
    ),
    *monitoring.COMMANDS,
)
