"""Commands for consumer groups: create, change, delete, show. Progress and members are in other modules."""

from turbopump.admin import consumer_progress, consumer_status, monitoring
from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.consumer_text import GROUP_FIELDS, group_text, group_value
from turbopump.admin.files import listed
from turbopump.admin.options import (
    boolean,
    defaulting,
    host_port,
    number,
    optional,
    pairs_of_changes,
    required,
    text,
)
from turbopump.admin.render import fields
from turbopump.admin.topic import masters
from turbopump.client.admin import NotFound
from turbopump.protocol import bodies, names
from turbopump.protocol.bodies import SubscriptionGroupConfig
from turbopump.protocol.errors import BrokenBody

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
    """Runs `updateSubGroup`: creates or changes a group; options that are not given get defaults.

    That is as Apache's does; two of the defaults are `false`.
    """
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
    """Runs `deleteSubGroup`: deletes a group; from a cluster also its retry and dead-letter topics."""
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
    """Runs `getConsumerConfig`: prints a group's configuration, one block per broker that has it."""
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


COMMANDS = (
    AdminCommand(
        "updateSubGroup",
        "Update or create subscription group.",
        update_group,
        (
            *(GROUP_NAME, CONSUME, FROM_MIN, BROADCAST, ORDERLY, RETRY_QUEUES, RETRIES, RETRY_POLICY),
            *(BROKER_ID, WHEN_SLOW, NOTIFIES, ATTRIBUTES),
        ),
        any_of=(TO_BROKER, TO_CLUSTER),
    ),
    AdminCommand(
        "updateSubGroupList",
        "Update or create subscription group in batch",
        update_group_list,
        (GROUPS_FILE,),
        one_of=(LIST_TO_BROKER, LIST_TO_CLUSTER),
    ),
    AdminCommand(
        "deleteSubGroup",
        "Delete subscription group from broker.",
        delete_group,
        (DELETED, REMOVE_OFFSETS),
        any_of=(FROM_BROKER, FROM_CLUSTER),
    ),
    AdminCommand(
        "getConsumerConfig", "Get consumer config by subscription group name.", group_config, (CONFIG_OF,)
    ),
    *consumer_progress.COMMANDS,
    *consumer_status.COMMANDS,
    *monitoring.COMMANDS,
)
