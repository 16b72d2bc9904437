"""Commands for topics: create, change, delete, show."""

from collections.abc import Sequence

import msgspec

from turbopump.admin.command import AdminCommand, Call, CommandFailed
from turbopump.admin.files import listed
from turbopump.admin.options import (
    UsageError,
    boolean,
    choice,
    defaulting,
    flag,
    host_port,
    number,
    optional,
    pairs_of_changes,
    required,
    text,
)
from turbopump.admin.render import TextTable, fields, front, java_number, moment
from turbopump.client.admin import Admin, ServerUnreachable
from turbopump.client.group.rebalance import averagely
from turbopump.protocol import dialect, names
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.bodies import QueueData, TopicConfig, TopicRouteData
from turbopump.protocol.errors import Refused, TopicNotFound
from turbopump.protocol.permissions import permission_text
from turbopump.protocol.sysflag import UNIT, UNIT_SUBSCRIBED

TOPIC = required("t", "topic", "topic name", text)

# --- updateTopic, updateTopicList, updateTopicPerm, deleteTopic ------------------------------------------

TO_BROKER = optional("b", "brokerAddr", "create topic to which broker", host_port)
TO_CLUSTER = optional("c", "clusterName", "create topic to which cluster", text)
ATTRIBUTES = optional("a", "attributes", "attribute(+a=b,+c=d,-e)", pairs_of_changes)
READ_QUEUES = defaulting("r", "readQueueNums", "set read queue nums", number, 8)
WRITE_QUEUES = defaulting("w", "writeQueueNums", "set write queue nums", number, 8)
PERM = defaulting("p", "perm", "set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]", number, 6)
ORDER = defaulting("o", "order", "set topic's order(true|false)", boolean, False)
IS_UNIT = defaulting("u", "unit", "is unit topic (true|false)", boolean, False)
HAS_UNIT_SUB = defaulting("s", "hasUnitSub", "has unit sub (true|false)", boolean, False)
NEW_PERM = required("p", "perm", "set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]", number)
TOPICS_FILE = required(
    "f",
    "filename",
    "Path to a file with list of org.apache.rocketmq.common.TopicConfig in json format",
    text,
)
FROM_CLUSTER = required("c", "clusterName", "delete topic from which cluster", text)


async def update_topic(call: Call) -> None:
    config = TopicConfig(
        topicName=call.given[TOPIC],
        readQueueNums=call.given[READ_QUEUES],
        writeQueueNums=call.given[WRITE_QUEUES],
        perm=call.given[PERM],
        order=call.given[ORDER],
        topicSysFlag=UNIT * call.given[IS_UNIT] | UNIT_SUBSCRIBED * call.given[HAS_UNIT_SUB],
        attributes=call.given[ATTRIBUTES] or {},
    )
    broker, cluster = call.given[TO_BROKER], call.given[TO_CLUSTER]
    order_conf = None
    addresses = [broker] if broker else await masters(call.admin, cluster)
    for address in addresses:
        await call.admin.topics.create(address, config)
        if config.order and broker:
            order_conf = await order_of_broker(call.admin, config, address)
            call.out.line(f"set broker orderConf. isOrder=true, orderConf=[{order_conf}]")
        call.out.line(f"create topic to {address} success.")
    if config.order and cluster:
        order_conf = await order_of_cluster(call.admin, config, cluster)
        call.out.line(f"set cluster orderConf. isOrder=true, orderConf=[{order_conf}]")
    document = {"topic": fields(config), "brokers": addresses, "orderConf": order_conf}
    call.out.show(document, [config_text(config)])


async def order_of_broker(admin: Admin, config: TopicConfig, address: str) -> str:
    """Sets a broker's queues in the topic's order configuration at name servers; returns `broker:queues`."""
    broker = (await admin.clusters.layout()).name_at(address)
    await admin.name_servers.put_order(config.topicName, broker, config.writeQueueNums)
    return f"{broker}:{config.writeQueueNums}"


async def order_of_cluster(admin: Admin, config: TopicConfig, cluster: str) -> str:
    brokers = {broker.name for broker in (await admin.clusters.layout()).of_cluster(cluster)}
    conf = ";".join(f"{name}:{config.writeQueueNums}" for name in sorted(brokers))
    await admin.name_servers.put_value(names.ORDER_TOPIC_NAMESPACE, config.topicName, conf)
    return conf


async def update_topic_list(call: Call) -> None:
    configs = listed(call.disk, call.given[TOPICS_FILE], TopicConfig)
    broker, cluster = call.given[TO_BROKER], call.given[TO_CLUSTER]
    addresses = [broker] if broker else await masters(call.admin, cluster)
    for address in addresses:
        await call.admin.topics.create_all(address, configs)
        call.out.line(f"submit batch of topic config to {address} success, please check the result later.")
    call.out.show({"topics": [config.topicName for config in configs], "brokers": addresses}, [])


async def update_topic_perm(call: Call) -> None:
    """Runs `updateTopicPerm`: changes a topic's permission at those of the given brokers that have it."""
    topic, perm, broker = call.given[TOPIC], call.given[NEW_PERM], call.given[TO_BROKER]
    have_it = {
        data.brokerAddrs[MASTER_ID]
        for data in (await call.admin.topics.route(topic)).brokerDatas
        if MASTER_ID in data.brokerAddrs
    }
    wanted = [broker] if broker else await masters(call.admin, call.given[TO_CLUSTER])
    addresses = [address for address in wanted if address in have_it]
    if not addresses:
        raise CommandFailed(f"{' '.join(wanted)}: not the master of a broker that has topic {topic}")
    changes = []
    for address in addresses:
        config = await call.admin.topics.config(address, topic)
        old, config.perm = config.perm, perm
        config.attributes = None  # attributes are sent as changes; there are none
        changes.append({"broker": address, "from": old, "to": perm})
        if broker and old == perm:
            call.out.line("new perm equals to the old one!")
            continue
        await call.admin.topics.create(address, config)
        call.out.line(f"update topic perm from {old} to {perm} in {address} success.")
        if broker:
            call.out.line(f"{config_text(config)}.")
    call.out.show({"topic": topic, "changes": changes}, [])


async def delete_topic(call: Call) -> None:
    topic, cluster = call.given[TOPIC], call.given[FROM_CLUSTER]
    addresses = await masters(call.admin, cluster)
    for address in addresses:
        await call.admin.topics.delete_in_broker(address, topic)
    call.out.line(f"delete topic [{topic}] from cluster [{cluster}] success.")
    await call.admin.topics.delete_in_name_servers(topic, cluster)
    call.out.line(f"delete topic [{topic}] from NameServer success.")
    servers = list(call.admin.name_servers.addresses)
    call.out.show({"topic": topic, "brokers": addresses, "nameServers": servers}, [])


async def masters(admin: Admin, cluster: str | None) -> list[str]:
    assert cluster is not None, "one of -b and -c was given"
    return (await admin.clusters.layout()).masters(cluster)


def config_text(config: TopicConfig) -> str:
    """Formats a configuration as Java's TopicConfig does."""
    attributes = ", ".join(f"{name}={value}" for name, value in (config.attributes or {}).items())
    return (
        f"TopicConfig [topicName={config.topicName}, readQueueNums={config.readQueueNums}, "
        f"writeQueueNums={config.writeQueueNums}, perm={permission_text(config.perm)}, "
        f"topicFilterType={config.topicFilterType}, topicSysFlag={config.topicSysFlag}, "
        f"order={str(config.order).lower()}, attributes={{{attributes}}}]"
    )


# --- topicList, topicRoute, topicStatus, topicClusterList ------------------------------------------------

WITH_CLUSTERS = flag("c", "clusterModel", "clusterModel")
AS_LIST = flag("l", "list", "Use list format to print data")
THROUGH = optional("c", "cluster", "cluster name or lmq parent topic, lmq is used to find the route.", text)

BY_CLUSTER = TextTable(
    "%-20s  %-48s  %-48s", ("#Cluster Name", "#Topic", "#Consumer Group"), "%-20s  %-64s  %-64s"
)
ROUTE = TextTable(
    "%-45s %-32s %-50s %-10s %-11s %-5s",
    ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"),
)
STATUS = TextTable(
    "%-32s  %-4s  %-20s  %-20s    %s",
    ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"),
)


async def topic_list(call: Call) -> None:
    topics = await call.admin.topics.names()
    if not call.given[WITH_CLUSTERS]:
        call.out.show({"topics": topics}, topics)
        return
    found = [
        await topic_in_cluster(call.admin, topic)
        for topic in topics
        if not topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))
    ]
    rows = [
        (front(each.cluster, 20), front(each.topic, 64), front(group, 64))
        for each in found
        for group in each.consumer_groups or [""]
    ]
    call.out.show({"topicsByCluster": found}, BY_CLUSTER.lines(rows))


class TopicInCluster(msgspec.Struct, rename="camel"):
    """A topic with its cluster and consumer groups, in the output of topicList."""

    cluster: str
    topic: str
    consumer_groups: list[str]


async def topic_in_cluster(admin: Admin, topic: str) -> TopicInCluster:
    """Returns a topic with its cluster and groups; both empty if unreadable, as when deleted meanwhile."""
    try:
        route = await admin.topics.route(topic)
        cluster = route.brokerDatas[0].cluster if route.brokerDatas else ""
        return TopicInCluster(cluster, topic, await admin.topics.consumers(topic))
    except (Refused, ServerUnreachable):
        return TopicInCluster("", topic, [])


async def topic_route(call: Call) -> None:
    route = await call.admin.topics.route(call.given[TOPIC])
    lines = route_lines(route) if call.given[AS_LIST] else [dialect.dumps_pretty(route).decode()]
    call.out.show(fields(route), lines)


def route_lines(route: TopicRouteData) -> list[str]:
    queues = {data.brokerName: data for data in route.queueDatas}
    rows = []
    for broker in sorted(route.brokerDatas, key=lambda broker: broker.brokerName):
        data = queues.get(broker.brokerName, QueueData())
        addresses = ", ".join(f"{number}={at}" for number, at in sorted(broker.brokerAddrs.items()))
        counts = (data.readQueueNums, data.writeQueueNums, data.perm)
        rows.append((broker.cluster, broker.brokerName, f"{{{addresses}}}", *counts))
    read = sum(data.readQueueNums for data in route.queueDatas)
    write = sum(data.writeQueueNums for data in route.queueDatas)
    return [*ROUTE.lines(rows), "-" * 158, ROUTE.row("Total:", len(queues), "", read, write, "")]


async def topic_status(call: Call) -> None:
    stats = await call.admin.topics.stats(call.given[TOPIC], call.given[THROUGH])
    rows = sorted(stats.offsetTable.items())
    tps = stats.topicPutTps or 0.0
    document = {
        "queues": [{**queue.to_wire(), **fields(ends)} for queue, ends in rows],
        "topicPutTps": tps,
    }
    table = STATUS.lines(
        (
            front(queue.brokerName, 32),
            queue.queueId,
            ends.minOffset,
            ends.maxOffset,
            moment(ends.lastUpdateTimestamp) if ends.lastUpdateTimestamp > 0 else "",
        )
        for queue, ends in rows
    )
    call.out.show(document, [*table, "", f"Topic Put TPS: {java_number(tps)}"])


async def topic_cluster_list(call: Call) -> None:
    route = await call.admin.topics.route(call.given[TOPIC])
    clusters = sorted({broker.cluster for broker in route.brokerDatas})
    call.out.show({"clusters": clusters}, clusters)


# --- updateOrderConf, allocateMQ -------------------------------------------------------------------------

ORDER_CONF = optional("v", "orderConf", "set order conf [eg. brokerName1:num;brokerName2:num]", text)
METHOD = required("m", "method", "option type [eg. put|get|delete]", choice("put", "get", "delete"))
CLIENTS = required("i", "ipList", "ipList", text)


async def update_order_conf(call: Call) -> None:
    topic, method, conf = call.given[TOPIC], call.given[METHOD], call.given[ORDER_CONF]
    settings = call.admin.name_servers
    if method == "get":
        conf = await settings.value(names.ORDER_TOPIC_NAMESPACE, topic)
        if conf is None:
            raise CommandFailed(f"topic {topic} has no orderConf")
        line = f"get orderConf success. topic=[{topic}], orderConf=[{conf}] "
    elif method == "put":
        if not conf:
            raise UsageError("please set orderConf with option -v.")
        await settings.put_value(names.ORDER_TOPIC_NAMESPACE, topic, conf)
        line = f"update orderConf success. topic=[{topic}], orderConf=[{conf}]"
    else:
        await settings.delete_value(names.ORDER_TOPIC_NAMESPACE, topic)
        conf, line = None, f"delete orderConf success. topic=[{topic}]"
    call.out.show({"topic": topic, "orderConf": conf}, [line])


async def allocate_mq(call: Call) -> None:
    """Runs `allocateMQ`: prints the queues that the default strategy would assign to each client."""
    clients: Sequence[str] = call.given[CLIENTS].split(",")
    queues = (await call.admin.topics.queues(call.given[TOPIC])).subscribe
    if not queues:
        raise TopicNotFound(f"topic {call.given[TOPIC]} is not readable on any broker")
    result = {
        client: [
            {"brokerName": queue.broker, "queueId": queue.id, "topic": queue.topic}
            for queue in averagely(queues, clients, client)
        ]
        for client in clients
    }
    document = {"result": result}
    call.out.show(document, [msgspec.json.encode(document).decode()])


TARGETS = (TO_BROKER, TO_CLUSTER)

COMMANDS = (
    AdminCommand(
        "updateTopic",
        "Update or create topic.",
        update_topic,
        (ATTRIBUTES, TOPIC, READ_QUEUES, WRITE_QUEUES, PERM, ORDER, IS_UNIT, HAS_UNIT_SUB),
        one_of=TARGETS,
    ),
    AdminCommand(
        "updateTopicList",
        "create or update topic in batch",
        update_topic_list,
        (TOPICS_FILE,),
        one_of=TARGETS,
    ),
    AdminCommand(
        "deleteTopic", "Delete topic from broker and NameServer.", delete_topic, (TOPIC, FROM_CLUSTER)
    ),
    AdminCommand(
        "updateTopicPerm", "Update topic perm.", update_topic_perm, (TOPIC, NEW_PERM), any_of=TARGETS
    ),
    AdminCommand("topicRoute", "Examine topic route info.", topic_route, (TOPIC, AS_LIST)),
    AdminCommand("topicStatus", "Examine topic Status info.", topic_status, (TOPIC, THROUGH)),
    AdminCommand("topicClusterList", "Get cluster info for topic.", topic_cluster_list, (TOPIC,)),
    AdminCommand("topicList", "Fetch all topic list from name server.", topic_list, (WITH_CLUSTERS,)),
    AdminCommand(
        "updateOrderConf",
        "Create or update or delete order conf.",
        update_order_conf,
        (TOPIC, ORDER_CONF, METHOD),
    ),
    AdminCommand("allocateMQ", "Allocate MQ.", allocate_mq, (TOPIC, CLIENTS)),
)
