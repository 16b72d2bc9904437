"""Where it is kept how far a queue has been read: at its broker when a group shares the queues, in a file
when each member has them all.

The file is Apache's, `<dir>/<client id>/<group>/offsets.json`: one table whose keys are objects, which is not
standard JSON. What it had before is beside it as `offsets.json.bak`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from turbopump.client.counted_log import CountedLog
from turbopump.client.files import FileAccess
from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import successful
from turbopump.client.routes import RouteCache
from turbopump.protocol import bodies, dialect
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import BrokenBody, GroupNotFound, QueryNotFound, Refused
from turbopump.protocol.headers.base import Header
from turbopump.protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.remoting.client import Client

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0


class OffsetStore(Protocol):
    async def query(self, queue: MessageQueue) -> int | None:
        """None: there is none yet. Raises Refused or OSError when it cannot be known."""

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Returns when it is kept. Raises Refused or OSError."""

    async def persist(self, positions: Mapping[MessageQueue, int]) -> None:
        """All of them, as well as it goes: it is done every few seconds."""


@dataclass
class GroupOffsets:
    """At the brokers: the master of a queue's broker, or while it is away a slave."""

    client: Client
    routes: RouteCache
    group: str
    introduce: Callable[[str], Awaitable[bool]] | None = None
    """Makes the group known to the broker at an address; None: the caller has seen to it."""
    _unanswered: dict[MessageQueue, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _failures: CountedLog = field(default_factory=lambda: CountedLog(log), init=False)

    async def query(self, queue: MessageQueue) -> int | None:
        """None: the group has never committed one. Raises Refused or OSError when it cannot be known."""
        header = QueryConsumerOffsetRequest(self.group, queue.topic, queue.id, bname=queue.broker)
        try:
            answer = await self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except QueryNotFound:
            return None
        offset = OffsetResponse.from_ext(answer.ext).offset
        return offset if offset >= 0 else None

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Returns when the broker has it. Raises Refused or OSError.

        A broker of Apache's 5.x refuses a group that it has not heard of, which creates it: then the group is
        introduced, and the commit tried once more.
        """
        await self._when_persisted(queue)
        header = self._update(queue, offset)
        try:
            await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        except GroupNotFound:
            introduce = self.introduce
            if introduce is None:
                raise
            await self.routes.ask_replica(queue, lambda replica: introduce(replica.address))
            await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def persist(self, positions: Mapping[MessageQueue, int]) -> None:
        """Commits all positions at once. One that fails is logged, and committed again by the next call."""
        tasks = [self._begin_persisting(queue, offset) for queue, offset in positions.items()]
        if tasks:
            await asyncio.wait(tasks)

    def _begin_persisting(self, queue: MessageQueue, offset: int) -> asyncio.Task[None]:
        task = self._unanswered[queue] = asyncio.create_task(self._persist(queue, offset))
        task.add_done_callback(lambda task: self._answered(queue, task))
        return task

    async def _persist(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, self._update(queue, offset))
        except (OSError, Refused, BrokenBody) as error:
            self._failures.log(queue, "Offset %d of %s is not committed yet: %s", offset, queue, error)

    def _answered(self, queue: MessageQueue, task: asyncio.Task[None]) -> None:
        if self._unanswered.get(queue) is task:
            del self._unanswered[queue]

    async def _when_persisted(self, queue: MessageQueue) -> None:
        """Waits for the regular commit of a queue that is under way, even if its caller was cancelled.

        Apache's brokers handle the requests of one connection on several threads: an older position that is
        still under way could be stored after a newer one, and would then be what the next member begins with.
        """
        if (task := self._unanswered.get(queue)) is not None:
            await asyncio.wait([task])

    def _update(self, queue: MessageQueue, offset: int) -> UpdateConsumerOffsetRequest:
        return UpdateConsumerOffsetRequest(self.group, queue.topic, queue.id, offset, bname=queue.broker)

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> Command:
        question = request(code, header)
        answer = await self.routes.ask_replica(
            queue, lambda replica: self.client.call(replica.address, question, CALL_TIMEOUT_S)
        )
        return successful(answer)


@dataclass
class LocalOffsets:
    """In a file of some hundred bytes, written on the loop every few seconds."""

    disk: FileAccess
    path: Path
    _known: dict[MessageQueue, int] = field(default_factory=dict, init=False)

    def load(self) -> None:
        """The file, or what it was before when it cannot be read. None of them: every queue is new."""
        for path in (self.path, self._backup):
            try:
                read = bodies.ResetOffsetBody.decode(self.disk.read(str(path)))
            except FileNotFoundError:
                continue
            except (OSError, BrokenBody) as error:
                log.warning("Offsets in %s cannot be read: %s", path, error)
                continue
            self._known = {MessageQueue.of_wire(queue): at for queue, at in read.offsetTable.items()}
            return

    async def query(self, queue: MessageQueue) -> int | None:
        return self._known.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        await self.persist({queue: offset})

    async def persist(self, positions: Mapping[MessageQueue, int]) -> None:
        if all(self._known.get(queue) == offset for queue, offset in positions.items()):
            return
        self._known.update(positions)
        table = {queue.to_wire(): offset for queue, offset in sorted(self._known.items())}
        try:
            self._write(dialect.dumps_pretty({"offsetTable": table}))
        except OSError as error:
            log.warning("Offsets are not kept in %s: %s", self.path, error)

    def _write(self, text: bytes) -> None:
        """Never half: a file that is being written is not yet the file."""
        self.disk.make_dirs(str(self.path.parent))
        draft = str(self.path.with_suffix(".json.tmp"))
        self.disk.write(draft, text, sync=False)
        if self.disk.exists(str(self.path)):
            self.disk.rename(str(self.path), str(self._backup))
        self.disk.rename(draft, str(self.path))

    @property
    def _backup(self) -> Path:
        return self.path.with_suffix(".json.bak")


def local_offsets(disk: FileAccess, directory: str, client_id: str, group: str) -> LocalOffsets:
    """Those of a member that reads everything, as far as it has come."""
    offsets = LocalOffsets(disk, local_path(directory, client_id, group))
    offsets.load()
    return offsets


def local_path(directory: str, client_id: str, group: str) -> Path:
    return Path(directory).expanduser() / client_id / group / "offsets.json"
