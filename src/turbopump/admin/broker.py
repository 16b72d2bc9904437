"""Commands for brokers: figures, configuration, cleaning, and the lag of consumers."""

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from turbopump.admin.command import AdminCommand, Call, CommandFailed
from turbopump.admin.failures import line_of
from turbopump.admin.options import boolean, defaulting, host_port, number, optional, required, text
from turbopump.admin.render import TextTable, front
from turbopump.admin.sending import SEND_MSG_STATUS
from turbopump.admin.times import local_second
from turbopump.client.admin import ServerUnreachable
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.bodies import ConsumeStatsList
from turbopump.protocol.errors import Refused, ServiceNotAvailable

# --- brokerStatus ----------------------------------------------------------------------------------------

BROKER = optional("b", "brokerAddr", "Broker address", host_port)
CLUSTER = optional("c", "clusterName", "which cluster", text)


async def broker_status(call: Call) -> None:
    broker = call.given[BROKER]
    if broker:
        figures = await call.admin.brokers.figures(broker)
        lines = [f"{key:<32}: {value}" for key, value in sorted(figures.items())]
        call.out.show({"brokers": [{"address": broker, "figures": figures}]}, lines)
        return
    documents = []
    for address in await addresses_in(call, call.given[CLUSTER]):
        try:
            figures = await call.admin.brokers.figures(address)
        except (Refused, ServerUnreachable) as error:
            call.out.warn(line_of(error))
            continue
        for key, value in sorted(figures.items()):
            call.out.line(f"{address:<24} {key:<32}: {value}")
        documents.append({"address": address, "figures": figures})
    call.out.show({"brokers": documents}, [])


async def addresses_in(call: Call, cluster: str | None, masters_only: bool = False) -> list[str]:
    """Returns the addresses of all brokers, or masters only, of a cluster or of all clusters."""
    layout = await call.admin.clusters.layout()
    brokers = layout.of_cluster(cluster) if cluster else layout.brokers
    return [broker.address for broker in brokers if broker.id == MASTER_ID or not masters_only]


# --- getBrokerConfig, updateBrokerConfig -----------------------------------------------------------------

CONFIG_OF_BROKER = optional("b", "brokerAddr", "get which broker", host_port)
CONFIG_OF_CLUSTER = optional("c", "clusterName", "get which cluster", text)
UPDATED_BROKER = optional("b", "brokerAddr", "update which broker", host_port)
UPDATED_CLUSTER = optional("c", "clusterName", "update which cluster", text)
SLAVES_TOO = defaulting("a", "updateAllBroker", "update all brokers include slave", boolean, False)
KEY = required("k", "key", "config key", text)
VALUE = required("v", "value", "config value", text)


async def get_broker_config(call: Call) -> None:
    broker, cluster = call.given[CONFIG_OF_BROKER], call.given[CONFIG_OF_CLUSTER]
    titles = {broker: broker} if broker else await titles_in(call, cluster)
    documents = []
    for address, title in titles.items():
        config = await call.admin.brokers.config(address)
        for line in (f"============{title}============", *config_lines(config), ""):
            call.out.line(line)
        documents.append({"address": address, "config": config})
    call.out.show({"brokers": documents}, [])


async def titles_in(call: Call, cluster: str | None) -> dict[str, str]:
    """Returns a heading per broker address of a cluster, which says whether it is a master or a slave."""
    assert cluster is not None, "one of -b and -c was given"
    brokers = (await call.admin.clusters.layout()).of_cluster(cluster)
    masters = {broker.name: broker.address for broker in brokers if broker.id == MASTER_ID}
    return {
        broker.address: f"Master: {broker.address}"
        if broker.id == MASTER_ID
        else f"My Master: {masters.get(broker.name, 'NO_MASTER')}=====Slave: {broker.address}"
        for broker in brokers
    }


def config_lines(config: dict[str, str]) -> list[str]:
    return [f"{key:<50}=  {value}" for key, value in sorted(config.items())]


async def update_broker_config(call: Call) -> None:
    """Runs `updateBrokerConfig`: changes a setting; goes on when a broker of a cluster refuses."""
    change = {call.given[KEY]: call.given[VALUE]}
    broker = call.given[UPDATED_BROKER]
    if broker:
        addresses = [broker]
    else:
        addresses = await addresses_in(call, call.given[UPDATED_CLUSTER], not call.given[SLAVES_TOO])
    done = []
    for address in addresses:
        try:
            await call.admin.brokers.update_config(address, change)
        except (Refused, ServerUnreachable) as error:
            if broker:
                raise
            call.out.warn(line_of(error))
            continue
        done.append(address)
        call.out.line(f"update broker config success, {address}")
    call.out.show({"brokers": done, "changed": change}, [])
    if len(done) < len(addresses):
        raise CommandFailed(f"{len(addresses) - len(done)} of {len(addresses)} brokers were not changed")


# --- cleanExpiredCQ, cleanUnusedTopic, deleteExpiredCommitLog ----------------------------------------------

UPKEEP_CLUSTER = optional("c", "cluster", "clustername", text)
UNUSED_CLUSTER = optional("c", "cluster", "cluster name", text)

Upkeep = Callable[[str], Awaitable[None]]


async def clean_expired_cq(call: Call) -> None:
    await upkeep(call, call.given[UPKEEP_CLUSTER], call.admin.brokers.clean_expired_queues)


async def clean_unused_topic(call: Call) -> None:
    await upkeep(call, call.given[UNUSED_CLUSTER], call.admin.brokers.clean_unused_topics)


async def delete_expired_commit_log(call: Call) -> None:
    await upkeep(call, call.given[UPKEEP_CLUSTER], call.admin.brokers.delete_expired_files)


async def upkeep(call: Call, cluster: str | None, work: Upkeep) -> None:
    """Runs the cleaning `work` on one broker, on all of a cluster, or on all; then prints success.

    A slave of ours refuses what its master decides: the others are asked all the same.
    """
    broker = call.given[BROKER]
    addresses = [broker] if broker else await addresses_in(call, cluster)
    done = []
    for address in addresses:
        try:
            await work(address)
        except ServiceNotAvailable as error:
            if broker:
                raise
            call.out.warn(line_of(error))
        else:
            done.append(address)
    call.out.show({"brokers": done}, ["success"])


# --- brokerConsumeStats ----------------------------------------------------------------------------------

STATS_BROKER = required("b", "brokerAddr", "Broker address", host_port)
TIMEOUT = defaulting("t", "timeoutMillis", "request timeout Millis", number, 50_000)
LEVEL = defaulting("l", "level", "threshold of print diff", number, 0)
OF_ORDER_TOPICS = defaulting("o", "order", "order topic", boolean, False)

CONSUME_STATS = TextTable(
    "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s",
    (
        *("#Topic", "#Group", "#Broker Name", "#QID"),
        *("#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"),
    ),
)


class QueueLag(msgspec.Struct, rename="camel"):
    """The lag of a group in one queue, in the JSON of brokerConsumeStats."""

    topic: str
    group: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    diff: int
    last_timestamp: int


async def broker_consume_stats(call: Call) -> None:
    address = call.given[STATS_BROKER]
    timeout_s = call.given[TIMEOUT] / 1000
    stats = await call.admin.brokers.consume_stats(address, call.given[OF_ORDER_TOPICS], timeout_s)
    lags = [lag for lag in lags_of(stats) if lag.diff >= call.given[LEVEL] and lag.last_timestamp > 0]
    rows = CONSUME_STATS.lines(
        (
            front(lag.topic, 64),
            lag.group,
            front(lag.broker_name, 32),
            lag.queue_id,
            lag.broker_offset,
            lag.consumer_offset,
            lag.diff,
            local_second(lag.last_timestamp),
        )
        for lag in lags
    )
    document = {"brokerAddr": address, "queues": lags, "totalDiff": stats.totalDiff}
    call.out.show(document, [*rows, "", f"Diff Total: {stats.totalDiff}"])


def lags_of(stats: ConsumeStatsList) -> Iterable[QueueLag]:
    for by_group in stats.consumeStatsList:
        for group, tables in by_group.items():
            for table in tables:
                for queue, at in sorted(table.offsetTable.items()):
                    yield QueueLag(
                        queue.topic,
                        group,
                        queue.brokerName,
                        queue.queueId,
                        at.brokerOffset,
                        at.consumerOffset,
                        at.brokerOffset - at.consumerOffset,
                        at.lastTimestamp,
                    )


COMMANDS = (
    AdminCommand(
        "updateBrokerConfig",
        "Update broker's config.",
        update_broker_config,
        (SLAVES_TOO, KEY, VALUE),
        any_of=(UPDATED_BROKER, UPDATED_CLUSTER),
    ),
    AdminCommand(
        "brokerStatus", "Fetch broker runtime status data.", broker_status, one_of=(BROKER, CLUSTER)
    ),
    SEND_MSG_STATUS,
    AdminCommand(
        "brokerConsumeStats",
        "Fetch broker consume stats data.",
        broker_consume_stats,
        (STATS_BROKER, TIMEOUT, LEVEL, OF_ORDER_TOPICS),
    ),
    AdminCommand(
        "cleanExpiredCQ",
        "Clean expired ConsumeQueue on broker.",
        clean_expired_cq,
        (BROKER, UPKEEP_CLUSTER),
    ),
    AdminCommand(
        "deleteExpiredCommitLog",
        "Delete expired CommitLog files.",
        delete_expired_commit_log,
        (BROKER, UPKEEP_CLUSTER),
    ),
    AdminCommand(
        "cleanUnusedTopic", "Clean unused topic on broker.", clean_unused_topic, (BROKER, UNUSED_CLUSTER)
    ),
    AdminCommand(
        "getBrokerConfig",
        "Get broker config by cluster or special broker.",
        get_broker_config,
        any_of=(CONFIG_OF_BROKER, CONFIG_OF_CLUSTER),
    ),
)
