"""`consumerStatus`: prints the state of the members of a group."""

from typing import Any

from turbopump.admin.command import AdminCommand, Call, CommandFailed
from turbopump.admin.consumer_text import running_lines, troubles
from turbopump.admin.options import flag, host_port, optional, required, text
from turbopump.admin.render import TextTable, fields
from turbopump.protocol import bodies
from turbopump.protocol.bodies import ConsumerRunningInfo
from turbopump.protocol.codes import version_name
from turbopump.protocol.errors import Refused

STATUS_OF = required("g", "consumerGroup", "consumer group name", text)
CLIENT_ID = optional("i", "clientId", "The consumer's client id", text)
AT_BROKER = optional("b", "brokerAddr", "broker address", host_port)
STACK = flag("s", "jstack", "Run jstack command in the consumer progress")

MEMBERS = TextTable(
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


async def status_of_members(call: Call, group: str, members: list[bodies.ClientConnection]) -> None:
    now_ms = call.admin.clock.now_ms()
    call.out.line(MEMBERS.form % MEMBERS.headings)
    found: dict[str, ConsumerRunningInfo] = {}
    for member in members:
        try:
            info = await call.admin.groups.running_info(group, member.clientId, call.given[STACK])
        except (Refused, OSError) as error:
            call.out.warn(f"{member.clientId} does not report its state: {error}")
            continue
        found[member.clientId] = info
        if not call.out.as_json:
            path = save_status(call, now_ms, member.clientId, info)
            call.out.line(MEMBERS.row(len(found), member.clientId, version_name(member.version), path))
    if not found:
        raise CommandFailed(f"no member of group {group} reported its state")
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
    """Writes the state of a member to the file `now_ms/client_id`, and returns that path.

    It is below the working directory, as Apache's; a slash in the client id is replaced.
    """
    path = f"{now_ms}/{client_id.replace('/', '_')}"
    call.disk.make_dirs(str(now_ms))
    call.disk.write(path, "\n".join([*running_lines(info), ""]).encode(), sync=False)
    return path


def same_subscriptions(found: dict[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """Tells whether all members that run for more than two minutes have the same subscriptions.

    Before, a change may not have arrived.
    """
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
    AdminCommand(
        "consumerStatus",
        "Query consumer's internal data structure.",
        consumer_status,
        (STATUS_OF, CLIENT_ID, AT_BROKER, STACK),
    ),
)
