"""Commits of a group: the regular ones and the last of a queue, at a broker that answers late or never."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.kit import in_loop

from turbopump.client.group.offsets import GroupOffsets, LocalOffsets
from turbopump.client.message import MessageQueue
from turbopump.protocol.command import Command
from turbopump.protocol.headers.offsets import UpdateConsumerOffsetRequest

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)


@dataclass
class LateBroker:
    """Answers a commit when the test says so."""

    asked: list[tuple[int, int]] = field(default_factory=list)
    answers: list[asyncio.Future[Command]] = field(default_factory=list)

    async def ask_replica(self, queue: MessageQueue, ask: Callable[[Any], Awaitable[Command]]) -> Command:
        return await ask(self)

    @property
    def address(self) -> str:
        return "broker-a"

    async def call(self, address: str, question: Command, timeout_s: float) -> Command:
        header = UpdateConsumerOffsetRequest.from_ext(question.ext)
        assert header.ofConsumer, "a broker would take the commit for that of a tool"
        self.asked.append((header.queueId, header.commitOffset))
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


def offsets_at(broker: Any) -> GroupOffsets:
    return GroupOffsets(broker, broker, "readers")


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@in_loop
async def test_the_last_commit_waits_for_the_regular_one_under_way_though_its_caller_was_cancelled() -> None:
    broker = LateBroker()
    offsets = offsets_at(broker)
    regular = asyncio.create_task(offsets.persist({QUEUE: 4, OTHER: 7}))
    await turn()
    regular.cancel()
    last = asyncio.create_task(offsets.commit(QUEUE, 5))
    await turn()
    assert broker.asked == [(0, 4), (1, 7)]
    broker.answers[0].set_result(Command(0))
    await turn()
    assert broker.asked == [(0, 4), (1, 7), (0, 5)]
    broker.answers[1].set_result(Command(0))
    broker.answers[2].set_result(Command(0))
    await last


def test_a_regular_commit_that_fails_is_logged_and_the_others_are_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        broker = LateBroker()
        offsets = offsets_at(broker)
        regular = asyncio.create_task(offsets.persist({QUEUE: 4, OTHER: 7}))
        await turn()
        broker.answers[0].set_exception(ConnectionResetError("gone"))
        broker.answers[1].set_result(Command(0))
        await regular
        await asyncio.wait_for(offsets_at(broker).persist({}), 1)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == [
        f"Cannot commit offset 4 of {QUEUE} yet: gone"
    ]


class FullDisk:
    """Files in memory that cannot be written while `is_full`."""

    def __init__(self) -> None:
        self.is_full = False
        self.files: dict[str, bytes] = {}

    def make_dirs(self, path: str) -> None:
        pass

    def exists(self, path: str) -> bool:
        return path in self.files

    def write(self, path: str, data: bytes, sync: bool) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.files[path] = data

    def rename(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source)


def test_a_file_of_offsets_that_could_not_be_written_is_written_by_the_next_call() -> None:
    disk: Any = FullDisk()
    offsets = LocalOffsets(disk, Path("/offsets.json"))
    asyncio.run(offsets.persist({QUEUE: 4}))
    disk.is_full = True
    asyncio.run(offsets.persist({QUEUE: 5}))
    disk.is_full = False
    asyncio.run(offsets.persist({QUEUE: 5}))
    assert b"5" in disk.files["/offsets.json"]
    written = dict(disk.files)
    asyncio.run(offsets.persist({QUEUE: 5}))
    assert disk.files == written
