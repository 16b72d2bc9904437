"""`statsAll`: prints the incoming rate of every topic and the outgoing rate of its groups."""

from collections.abc import Awaitable, Iterable

import msgspec

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.options import flag, optional, text
from turbopump.admin.render import TextTable, front
from turbopump.client.admin import Admin, NotFound, ServerUnreachable
from turbopump.client.admin.brokers import StatsName
from turbopump.protocol import names
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.bodies import BrokerStatsData, ConsumeStats
from turbopump.protocol.errors import Refused

ACTIVE_ONLY = flag("a", "activeTopic", "print active topic only")
TOPIC = optional("t", "topic", "print select topic only", text)

STATS = TextTable(
    "%-64s  %-64s %12s %11s %11s %14s %14s",
    (
        *("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS"),
        *("#InMsg24Hour", "#OutMsg24Hour"),
    ),
)


class GroupTraffic(msgspec.Struct, rename="camel"):
    """Rates and lag of a topic for one group; `group` is None for a topic that no group consumes."""

    topic: str
    group: str | None
    accumulation: int
    in_tps: float
    out_tps: float | None
    in_msg_24_hour: int = msgspec.field(name="inMsg24Hour")
    out_msg_24_hour: int | None = msgspec.field(name="outMsg24Hour")


async def stats_all(call: Call) -> None:
    chosen = call.given[TOPIC]
    call.out.line(STATS.form % STATS.headings)
    found: list[GroupTraffic] = []
    for topic in await call.admin.topics.names():
        if topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)) or (chosen and topic != chosen):
            continue
        try:
            flows = await flows_of(call.admin, topic)
        except (Refused, ServerUnreachable, NotFound) as error:
            call.out.warn(f"{topic}: {error}")
            continue
        flows = [flow for flow in flows if is_active(flow) or not call.given[ACTIVE_ONLY]]
        found += flows
        for line in map(line_of, flows):
            call.out.line(line)
    call.out.show({"topics": found}, [])


async def flows_of(admin: Admin, topic: str) -> list[GroupTraffic]:
    route = await admin.topics.route(topic)
    masters = [data.brokerAddrs[MASTER_ID] for data in route.brokerDatas if MASTER_ID in data.brokerAddrs]
    in_tps, in_sum = await traffic(admin, masters, "TOPIC_PUT_NUMS", topic)
    groups = await admin.topics.consumers(topic)
    if not groups:
        return [GroupTraffic(topic, None, 0, in_tps, None, in_sum, None)]
    flows = []
    for group in groups:
        out_tps, out_sum = await traffic(admin, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        lag = await accumulation(admin, masters, group, topic)
        flows.append(GroupTraffic(topic, group, lag, in_tps, out_tps, in_sum, out_sum))
    return flows


async def traffic(admin: Admin, masters: Iterable[str], name: StatsName, key: str) -> tuple[float, int]:
    """Sums over the brokers that answer: messages per second of the last minute, count of the last day."""
    tps, total = 0.0, 0
    for address in masters:
        try:
            found = await admin.brokers.statistics(address, name, key)
        except (Refused, ServerUnreachable):
            continue
        tps += found.statsMinute.tps
        total += of_a_day(found)
    return tps, total


async def accumulation(admin: Admin, masters: Iterable[str], group: str, topic: str) -> int:
    total = 0
    for address in masters:
        stats = await quietly(admin.groups.progress_at(address, group, topic))
        if stats is not None:
            total += sum(at.brokerOffset - at.consumerOffset for at in stats.offsetTable.values())
    return max(total, 0)


async def quietly(asking: Awaitable[ConsumeStats]) -> ConsumeStats | None:
    try:
        return await asking
    except (Refused, ServerUnreachable, NotFound):
        return None


def of_a_day(stats: BrokerStatsData) -> int:
    """Returns the message count of the last day, or of the longest window that a new broker has."""
    return stats.statsDay.sum or stats.statsHour.sum or stats.statsMinute.sum


def is_active(flow: GroupTraffic) -> bool:
    return flow.in_msg_24_hour > 0 or bool(flow.out_msg_24_hour)


def line_of(flow: GroupTraffic) -> str:
    return STATS.row(
        front(flow.topic, 64),
        front(flow.group or "", 64),
        flow.accumulation,
        f"{flow.in_tps:.2f}",
        "" if flow.out_tps is None else f"{flow.out_tps:.2f}",
        flow.in_msg_24_hour,
        "NO_CONSUMER" if flow.out_msg_24_hour is None else flow.out_msg_24_hour,
    )


COMMANDS = (AdminCommand("statsAll", "Topic and Consumer tps stats.", stats_all, (ACTIVE_ONLY, TOPIC)),)
