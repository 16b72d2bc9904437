"""Pulls, commits and deaths of brokers, for tests of reads from a slave."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from tests.unit.replication.kit import NAME_SERVER_IP, TOPIC, Node, Pair

from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.testing.disk import PowerCut
from turbopump.testing.simulated_files import Survival

MASTER = "brokerRole=ASYNC_MASTER\n"
SYNC = "brokerRole=SYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"
SUSPEND, SUBSCRIPTION = 2, 4


def memory_of(size: int) -> Any:
    """A machine with so many bytes of memory."""
    return patch("turbopump.store.reading.machine_memory", lambda: size)


async def kill(pair: Pair, node: Node, survival: Survival = Survival.KEPT) -> None:
    """Kills the process of a broker: its connections break, and it says goodbye to nobody."""
    broker, node.broker = node.broker, None
    assert broker is not None
    pair.network.unplug(node.ip)
    pair.network.cut(node.ip, NAME_SERVER_IP)
    node.disk = node.disk.crash(survival)
    with contextlib.suppress(PowerCut):
        await broker.stop()
    pair.network.join(node.ip, NAME_SERVER_IP)


async def pull(pair: Pair, node: Node, offset: int, hold_s: float = 0.0, **changes: Any) -> Command:
    """Pulls once, as a Java client does."""
    ext = {
        "consumerGroup": "CG", "topic": TOPIC, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION | (SUSPEND if hold_s else 0), "commitOffset": 0,
        "suspendTimeoutMillis": int(hold_s * 1000), "subscription": "*", "subVersion": 0,
    }  # fmt: skip
    fields = {name: str(value) for name, value in (ext | changes).items()}
    return await pair.tool.call(node.address, Command(int(RequestCode.PULL_MESSAGE), ext=fields), hold_s + 10)


def field_of(answer: Command, name: str) -> int:
    return int((answer.ext or {})[name])


def suggested(answer: Command) -> int:
    return field_of(answer, "suggestWhichBrokerId")


async def commit(pair: Pair, node: Node, offset: int, group: str = "CG", queue_id: int = 0) -> int:
    ext = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id), "commitOffset": str(offset)}
    command = Command(int(RequestCode.UPDATE_CONSUMER_OFFSET), ext=ext)
    return (await pair.tool.call(node.address, command, 5)).code


async def committed(pair: Pair, node: Node, group: str = "CG", queue_id: int = 0) -> int | None:
    ext = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id), "setZeroIfNotFound": "false"}
    command = Command(int(RequestCode.QUERY_CONSUMER_OFFSET), ext=ext)
    answer = await pair.tool.call(node.address, command, 5)
    return field_of(answer, "offset") if answer.code == 0 else None


async def configure(pair: Pair, node: Node, text: str) -> None:
    command = Command(int(RequestCode.UPDATE_BROKER_CONFIG), body=text.encode())
    answer = await pair.tool.call(node.address, command, 5)
    assert answer.code == 0, answer.remark


@dataclass
class JavaLoop:
    """The pull loop of Apache's clients against one server: the next pull follows each answer at once."""

    pair: Pair
    node: Node
    offset: int
    pulls: int = 0
    bodies: list[bytes] = field(default_factory=list)
    codes: set[int] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            self.pulls += 1
            answer = await pull(self.pair, self.node, self.offset, hold_s=15.0)
            self.codes.add(answer.code)
            self.offset = field_of(answer, "nextBeginOffset")


async def until(condition: Any, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)
