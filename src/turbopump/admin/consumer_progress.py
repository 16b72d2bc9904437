"""`consumerProgress`: prints the offsets of a group in each queue, or one line per group."""

from dataclasses import dataclass

import msgspec

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.options import boolean, defaulting, optional, text
from turbopump.admin.render import TextTable, front
from turbopump.admin.times import local_second
from turbopump.client.admin import Admin, NotFound
from turbopump.client.message import MessageQueue
from turbopump.protocol.bodies import OffsetWrapper
from turbopump.protocol.codes import version_name
from turbopump.protocol.errors import Refused

PROGRESS_OF = optional("g", "groupName", "consumer group name", text)
IN_TOPIC = optional("t", "topicName", "topic name", text)
WITH_CLIENTS = defaulting("s", "showClientIP", "Show Client IP per Queue", boolean, False)
THROUGH = optional("c", "cluster", "Cluster name or lmq parent topic, lmq is used to find the route.", text)

PROGRESS = TextTable(
    "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s",
    (
        *("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"),
        *("#Diff", "#Inflight", "#LastTime"),
    ),
    "%-64s  %-32s  %-4d  %-20d  %-20d  %-20d %-20d %s",
)
PROGRESS_WITH_CLIENTS = TextTable(
    "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s",
    (
        *("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"),
        *("#Client IP", "#Diff", "#Inflight", "#LastTime"),
    ),
    "%-64s  %-32s  %-4d  %-20d  %-20d  %-20s %-20d %-20d %s",
)
OVERVIEW = TextTable(
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
class QueueProgress:
    """The offsets of a group in one queue, and the client that has the queue."""

    queue: MessageQueue
    offsets: OffsetWrapper
    client_id: str | None

    @property
    def diff(self) -> int:
        return self.offsets.brokerOffset - self.offsets.consumerOffset

    @property
    def in_flight(self) -> int:
        """Number of messages pulled and not committed; 0 for brokers before 5.0, which record no pulls."""
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
        found.append(QueueProgress(queue, offsets, owners.get(queue)))
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
class GroupSummary:
    """One group in the list of all groups: members, version, rate and lag."""

    group: str
    count: int = 0
    version: int = 0
    type: str | None = None
    model: str | None = None
    tps: float = 0.0
    diff: int = 0


async def summary_of(admin: Admin, group: str) -> GroupSummary:
    """Returns the figures of a group; zeros for what cannot be read, as of a stopped group."""
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
        return GroupSummary(group, tps=tps, diff=diff)
    versions = [member.version for member in members.connectionSet]
    oldest = min(versions, default=0)
    return GroupSummary(group, len(versions), oldest, members.consumeType, members.messageModel, tps, diff)


COMMANDS = (
    AdminCommand(
        "consumerProgress",
        "Query consumer's progress, speed.",
        consumer_progress,
        (PROGRESS_OF, IN_TOPIC, WITH_CLIENTS, THROUGH),
    ),
)
