"""`startMonitoring`: prints lagging groups and stuck members every minute, until Ctrl-C."""

import asyncio
from dataclasses import dataclass

import msgspec

from turbopump.admin.command import AdminCommand, Call, until_interrupted
from turbopump.admin.consumer_text import troubles
from turbopump.admin.message_text import shown_body
from turbopump.client.admin import NotFound
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.consumer import Consumer
from turbopump.protocol import names
from turbopump.protocol.bodies import OffsetWrapper
from turbopump.protocol.errors import Refused

ROUND_S = 60.0
GROUP = "__MONITOR_CONSUMER"
PREFIX = "[MONITOR]"
RULE = "=" * 41


@dataclass(frozen=True, slots=True)
class UndoneMessages:
    """The lag of a group in one topic: in messages, in its longest queue, and in ms."""

    consumerGroup: str  # noqa: N815
    topic: str
    undoneMsgsTotal: int  # noqa: N815
    undoneMsgsSingleMQ: int  # noqa: N815
    undoneMsgsDelayTimeMills: int  # noqa: N815

    def __str__(self) -> str:
        values = msgspec.to_builtins(self)
        return f"UndoneMsgs [{', '.join(f'{name}={value}' for name, value in values.items())}]"


async def start_monitoring(call: Call) -> None:
    """Runs `startMonitoring`: prints each group's lag and its stuck members every minute, until Ctrl-C.

    Also prints the messages that Apache's brokers send when they move a group's offset.
    """

    admin = call.admin
    events = Consumer(
        GROUP,
        name_servers=admin.name_servers.addresses,
        world=admin.world,
    )

    @events.on(names.OFFSET_MOVED_TOPIC)
    async def told(message: MessageExt) -> None:
        text = shown_body(message)
        call.out.show({"offsetMoved": text}, [f"{PREFIX} reportDeleteMsgsEvent: {text}"])

    with until_interrupted():
        async with events:
            while True:
                await one_round(call)
                await admin.clock.sleep(ROUND_S)


async def one_round(call: Call) -> None:
    call.out.line(f"{PREFIX} {RULE}beginRound")
    undone: list[UndoneMessages] = []
    stuck: list[str] = []
    for group in await call.admin.groups.names():
        try:
            undone += await undone_of(call, group)
            stuck += await stuck_members(call, group)
        except (NotFound, Refused, OSError):  # stopped or deleted since its name was read
            continue
    lines = [
        *(f"{PREFIX} reportUndoneMsgs: {one}" for one in undone),
        *(f"{PREFIX}  [NOTIFY] reportConsumerRunningInfo: {line}" for line in stuck),
        f"{PREFIX} {RULE}endRound",
    ]
    documents = [msgspec.to_builtins(one) for one in undone]
    call.out.show({"timestamp": call.admin.clock.now_ms(), "undone": documents, "troubles": stuck}, lines)


async def undone_of(call: Call, group: str) -> list[UndoneMessages]:
    """Returns the lag of a group in each topic. Raises NotFound or Refused for a group without members."""
    await call.admin.connections.consumers(group)
    by_topic: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
    for wire, offsets in (await call.admin.groups.progress(group)).offsetTable.items():
        by_topic.setdefault(wire.topic, {})[MessageQueue.of_wire(wire)] = offsets
    found = []
    for topic, queues in sorted(by_topic.items()):
        diffs = [max(one.brokerOffset - one.consumerOffset, 0) for one in queues.values()]
        delays = await asyncio.gather(*(delay_ms(call, queue, at) for queue, at in queues.items()))
        found.append(UndoneMessages(group, topic, sum(diffs), max(diffs), max(delays)))
    return found


async def delay_ms(call: Call, queue: MessageQueue, at: OffsetWrapper) -> int:
    """Returns the ms between the newest message of a queue and the last one consumed; 0 if unknown."""
    if at.lastTimestamp <= 0 or at.brokerOffset <= 0:
        return 0
    try:
        newest = await call.admin.messages.at_offset(queue, at.brokerOffset - 1)
    except (Refused, OSError):
        return 0
    return max(newest.store_timestamp - at.lastTimestamp, 0) if newest else 0


async def stuck_members(call: Call, group: str) -> list[str]:
    found: list[str] = []
    for member in (await call.admin.connections.consumers(group)).connectionSet:
        try:
            info = await call.admin.groups.running_info(group, member.clientId)
        except (Refused, OSError):
            continue
        whose = f"ConsumerGroup: {group}, ClientId: {member.clientId}"
        lines = troubles(member.clientId, info, call.admin.clock.now_ms())
        found += [f"{whose}, {line}" for line in lines]
    return found


COMMANDS = (AdminCommand("startMonitoring", "Start Monitoring.", start_monitoring),)
