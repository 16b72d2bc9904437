"""Commands that export a cluster to a file: topics and groups, configuration, figures."""

import posixpath
from collections.abc import Iterable

import msgspec

from turbopump.admin.cluster import LoadFigures
from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.options import defaulting, flag, host_port, optional, required, text
from turbopump.admin.render import fields
from turbopump.admin.stats import of_a_day
from turbopump.admin.topic import masters
from turbopump.client.admin import Admin, NotFound, ServerUnreachable
from turbopump.client.admin.clusters import BrokerAt
from turbopump.protocol import dialect, names
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.bodies import BrokerStatsData, SubscriptionGroupConfig, TopicConfig
from turbopump.protocol.codes import VERSION, version_name
from turbopump.protocol.errors import Refused

DIRECTORY = "/tmp/rocketmq/export"

CLUSTER = optional("c", "clusterName", "choose a cluster to export", text)
WHOLE_CLUSTER = required("c", "clusterName", "choose a cluster to export", text)
BROKER = optional("b", "brokerAddr", "choose a broker to export", host_port)
METADATA_PATH = defaulting(
    "f", "filePath", f"export metadata.json path | default {DIRECTORY}", text, DIRECTORY
)
CONFIGS_PATH = defaulting("f", "filePath", f"export configs.json path | default {DIRECTORY}", text, DIRECTORY)
METRICS_PATH = defaulting("f", "filePath", f"export metrics.json path | default {DIRECTORY}", text, DIRECTORY)
TOPICS_ONLY = flag("t", "topic", "only export topic metadata")
GROUPS_ONLY = flag("g", "subscriptionGroup", "only export subscriptionGroup metadata")
SPECIAL_TOO = flag("s", "specialTopic", "need retryTopic and dlqTopic")

CONFIG_KEYS = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)


def export(call: Call, directory: str, name: str, content: dict[str, object]) -> None:
    path = posixpath.join(directory, name)
    call.disk.make_dirs(directory)
    call.disk.write(path, dialect.dumps_pretty(content))
    call.out.show({"path": path, "exported": content}, [f"export {path} success"])


# --- exportMetadata --------------------------------------------------------------------------------------


async def export_metadata(call: Call) -> None:
    broker, directory = call.given[BROKER], call.given[METADATA_PATH]
    special = call.given[SPECIAL_TOO]
    if broker and call.given[TOPICS_ONLY]:
        export(call, directory, "topic.json", fields(await call.admin.topics.user_configs(broker, special)))
    elif broker and call.given[GROUPS_ONLY]:
        export(call, directory, "subscriptionGroup.json", fields(await call.admin.groups.user_table(broker)))
    else:
        addresses = [broker] if broker else await masters(call.admin, call.given[CLUSTER])
        topics, groups = await sums(call.admin, addresses, special)
        content: dict[str, object] = {"exportTime": call.admin.clock.now_ms()}
        if call.given[TOPICS_ONLY] or not call.given[GROUPS_ONLY]:
            content["topicConfigTable"] = fields(topics)
        if not call.given[TOPICS_ONLY]:
            content["subscriptionGroupTable"] = fields(groups)
        export(call, directory, name_of(call), content)


def name_of(call: Call) -> str:
    if call.given[TOPICS_ONLY]:
        return "topic.json"
    return "subscriptionGroup.json" if call.given[GROUPS_ONLY] else "metadata.json"


async def sums(
    admin: Admin, addresses: Iterable[str], special: bool
) -> tuple[dict[str, TopicConfig], dict[str, SubscriptionGroupConfig]]:
    """Returns user topics (`special`: retry and dead-letter too) and groups by name, with queues added up."""
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    for address in addresses:
        own_topics = (await admin.topics.user_configs(address, special)).topicConfigTable
        own_groups = (await admin.groups.user_table(address)).subscriptionGroupTable
        for name, topic in sorted(own_topics.items()):
            if name in topics:
                topic.readQueueNums += topics[name].readQueueNums
                topic.writeQueueNums += topics[name].writeQueueNums
            topics[name] = topic
        for name, group in sorted(own_groups.items()):
            if name in groups:
                group.retryQueueNums += groups[name].retryQueueNums
            groups[name] = group
    return topics, groups


# --- exportConfigs ---------------------------------------------------------------------------------------


async def export_configs(call: Call) -> None:
    brokers = (await call.admin.clusters.layout()).of_cluster(call.given[WHOLE_CLUSTER])
    leaders = [broker for broker in brokers if broker.id == MASTER_ID]
    configs = {}
    for broker in leaders:
        config = await call.admin.brokers.config(broker.address)
        configs[broker.name] = {key: config[key] for key in CONFIG_KEYS if key in config}
    scale = {
        "namesrvSize": len(call.admin.name_servers.addresses),
        "masterBrokerSize": len(leaders),
        "slaveBrokerSize": len(brokers) - len(leaders),
    }
    content: dict[str, object] = {"clusterScale": scale, "brokerConfigs": configs}
    export(call, call.given[CONFIGS_PATH], "configs.json", content)


# --- exportMetrics ---------------------------------------------------------------------------------------


class Rates(msgspec.Struct, rename="camel"):
    """Messages per second of a broker in exportMetrics: normal in and out, transactional, delayed."""

    normal_in_tps: float = 0.0
    normal_out_tps: float = 0.0
    trans_in_tps: float = 0.0
    schedule_in_tps: float = 0.0


class DayCounts(msgspec.Struct, rename="camel"):
    """Messages of a broker in exportMetrics: in and out yesterday; transactional, delayed in the last day."""

    normal_one_day_in_num: int = 0
    normal_one_day_out_num: int = 0
    trans_one_day_in_num: int = 0
    schedule_one_day_in_num: int = 0


class Quota(msgspec.Struct, rename="camel", omit_defaults=True):
    """Disk use, rates, and numbers of topics and groups of a broker in exportMetrics."""

    disk_ratio: dict[str, str]
    tps: Rates
    one_day_num: DayCounts
    topic_size: int
    group_size: int
    message_average_size: str | None = None


class BrokerReport(msgspec.Struct, rename="camel"):
    """The figures of one broker in exportMetrics."""

    runtime_env: dict[str, str]
    runtime_quota: Quota
    runtime_version: dict[str, str | list[str]]


async def export_metrics(call: Call) -> None:
    brokers = (await call.admin.clusters.layout()).of_cluster(call.given[WHOLE_CLUSTER])
    reports = {
        broker.name: await report_of(call.admin, broker) for broker in brokers if broker.id == MASTER_ID
    }
    rates = fields([report.runtime_quota.tps for report in reports.values()])
    counts = fields([report.runtime_quota.one_day_num for report in reports.values()])
    totals = {
        "totalTps": {f"total{key[0].upper()}{key[1:]}": total for key, total in added(rates).items()},
        "totalOneDayNum": added(counts),
    }
    content: dict[str, object] = {"evaluateReport": fields(reports), "totalData": totals}
    export(call, call.given[METRICS_PATH], "metrics.json", content)


async def report_of(admin: Admin, broker: BrokerAt) -> BrokerReport:
    address = broker.address
    figures = await admin.brokers.figures(address)
    config = await admin.brokers.config(address)
    groups = (await admin.groups.user_table(address)).subscriptionGroupTable
    topics = (await admin.topics.user_configs(address)).topicConfigTable
    env = {"cpuNum": config.get("clientCallbackExecutorThreads"), **picked(figures, "totalMemKBytes")}
    load = LoadFigures(broker, figures, admin.clock.now_ms()).document()
    half = await put_stats(admin, address, names.HALF_TOPIC)
    delayed = await put_stats(admin, address, names.SCHEDULE_TOPIC)
    return BrokerReport(
        runtime_env={key: value for key, value in env.items() if value is not None},
        runtime_quota=Quota(
            disk_ratio=picked(figures, "commitLogDiskRatio", "consumeQueueDiskRatio"),
            tps=Rates(load.in_tps, load.out_tps, half.statsMinute.tps, delayed.statsMinute.tps),
            one_day_num=DayCounts(
                load.in_total_yesterday, load.out_total_yesterday, of_a_day(half), of_a_day(delayed)
            ),
            topic_size=len(topics),
            group_size=len(groups),
            message_average_size=figures.get("putMessageAverageSize"),
        ),
        runtime_version={
            "rocketmqVersion": version_name(VERSION),
            "clientInfo": await clients_of(admin, groups),
        },
    )


async def put_stats(admin: Admin, address: str, topic: str) -> BrokerStatsData:
    try:
        return await admin.brokers.statistics(address, "TOPIC_PUT_NUMS", topic)
    except Refused:  # nothing counted yet
        return BrokerStatsData()


async def clients_of(admin: Admin, groups: Iterable[str]) -> list[str]:
    """Returns `language%version` of all connected consumers of these groups, each once."""
    found: set[str] = set()
    for group in groups:
        try:
            connections = (await admin.connections.consumers(group)).connectionSet
        except (NotFound, Refused, ServerUnreachable):
            continue
        found.update(f"{each.language}%{version_name(each.version)}" for each in connections)
    return sorted(found)


def picked(figures: dict[str, str], *keys: str) -> dict[str, str]:
    return {key: figures[key] for key in keys if key in figures}


def added(rows: list[dict[str, float]]) -> dict[str, float]:
    keys = rows[0] if rows else ()
    return {key: sum(row[key] for row in rows) for key in keys}


COMMANDS = (
    AdminCommand(
        "exportMetadata",
        "Export metadata.",
        export_metadata,
        (METADATA_PATH, TOPICS_ONLY, GROUPS_ONLY, SPECIAL_TOO),
        any_of=(BROKER, CLUSTER),
    ),
    AdminCommand("exportConfigs", "Export configs.", export_configs, (WHOLE_CLUSTER, CONFIGS_PATH)),
    AdminCommand("exportMetrics", "Export metrics.", export_metrics, (WHOLE_CLUSTER, METRICS_PATH)),
)
