"""Stores of committed offsets: at the brokers when a group shares the queues, in a file when broadcasting.

The file is Apache's, `<dir>/<client id>/<group>/offsets.json`: one table whose keys are objects, which is not
standard JSON. Its previous content is beside it as `offsets.json.bak`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from turbopump.client.counted_log import CountedLog
from turbopump.client.files import FileAccess
from turbopump.client.instance import ClientInstance
from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import successful
from turbopump.client.routes import RouteCache
from turbopump.client.settings import ReadingSettings
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
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0


class OffsetStore(Protocol):
    """Interface of a store of committed offsets: for each queue the next offset to read."""

    async def query(self, queue: MessageQueue) -> int | None:
        """Returns the committed offset; None: the store has none. Raises Refused or OSError.

        Brokers also return the first offset of a new or empty queue to a group without a commit.
        """

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Stores one offset. A broker's failure raises Refused or OSError; that of a file is only logged."""

    async def persist(self, positions: Mapping[MessageQueue, int]) -> None:
        """Stores the given positions; failures are only logged, because it is called every few seconds."""


@dataclass
class GroupOffsets:
    """Offsets of a group at the brokers: at a queue's master, or at a slave while the master is away."""

    client: Client
    routes: RouteCache
    group: str
    introduce: Callable[[str], Awaitable[bool]] | None = None
    """Makes the group known to the broker at an address; None: the caller has done so."""
    _unanswered: dict[MessageQueue, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _tasks: Tasks = field(default_factory=lambda: Tasks(log), init=False)
    _failures: CountedLog = field(default_factory=lambda: CountedLog(log), init=False)

    async def query(self, queue: MessageQueue) -> int | None:
        """Returns the committed offset, else the broker's start offset for a new group; None: it has neither.

        Brokers have a start offset for a new or an empty queue. Raises Refused or OSError.
        """
        header = QueryConsumerOffsetRequest(self.group, queue.topic, queue.id, bname=queue.broker)
        try:
            answer = await self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except QueryNotFound:
            return None
        offset = OffsetResponse.from_ext(answer.ext).offset
        return offset if offset >= 0 else None

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commits an offset and returns when the broker has it. Raises Refused or OSError.

        A broker of Apache's 5.x refuses a group that it does not know; a heartbeat creates it. Then the group
        is introduced and the commit tried once more.
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
        """Commits the positions of all given queues concurrently, changed or not; failures are only logged.

        The next call commits them again.
        """
        tasks = [self._begin_persisting(queue, offset) for queue, offset in positions.items()]
        if tasks:
            await asyncio.wait(tasks)

    def _begin_persisting(self, queue: MessageQueue, offset: int) -> asyncio.Task[None]:
        task = self._unanswered[queue] = self._tasks.start(self._persist(queue, offset))
        return task

    async def _persist(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, self._update(queue, offset))
        except (OSError, Refused, BrokenBody) as error:
            self._failures.log(queue, "Cannot commit offset %d of %s yet: %s", offset, queue, error)
        finally:
            # A later commit of the same queue may have taken the place of this one.
            if self._unanswered.get(queue) is asyncio.current_task():
                del self._unanswered[queue]

    async def _when_persisted(self, queue: MessageQueue) -> None:
        """Waits for a `persist` of the queue that is under way, even if its caller was cancelled.

        Apache's brokers handle the requests of one connection on several threads: an older position that is
        still under way could be stored after a newer one, and would then be what the next member begins with.
        """
        if (task := self._unanswered.get(queue)) is not None:
            await asyncio.wait([task])

    def _update(self, queue: MessageQueue, offset: int) -> UpdateConsumerOffsetRequest:
        return UpdateConsumerOffsetRequest(
            self.group, queue.topic, queue.id, offset, bname=queue.broker, ofConsumer=True
        )

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> Command:
        question = request(code, header)
        answer = await self.routes.ask_replica(
            queue, lambda replica: self.client.call(replica.address, question, CALL_TIMEOUT_S)
        )
        return successful(answer)


@dataclass
class LocalOffsets:
    """Offsets of a broadcasting member in a file of this machine.

    The file has some hundred bytes, and is written on the event loop every few seconds.
    """

    disk: FileAccess
    path: Path
    _known: dict[MessageQueue, int] = field(default_factory=dict, init=False)
    _is_written: bool = field(default=True, init=False)
    """Whether the file has the positions in `_known`."""

    def load(self) -> None:
        """Reads the offsets from the file, else from its backup, else starts without any; raises nothing."""
        for path in (self.path, self._backup):
            try:
                read = bodies.ResetOffsetBody.decode(self.disk.read(str(path)))
            except FileNotFoundError:
                continue
            except (OSError, BrokenBody) as error:
                log.warning("Cannot read the offsets in %s: %s", path, error)
                continue
            self._known = {MessageQueue.of_wire(queue): at for queue, at in read.offsetTable.items()}
            return

    async def query(self, queue: MessageQueue) -> int | None:
        return self._known.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Writes the file if the offset changed. A failed write is only logged."""
        await self.persist({queue: offset})

    async def persist(self, positions: Mapping[MessageQueue, int]) -> None:
        """Writes the file if a position changed. A failed write is logged; the next call tries it again."""
        if self._is_written and all(self._known.get(queue) == at for queue, at in positions.items()):
            return
        self._known.update(positions)
        table = {queue.to_wire(): offset for queue, offset in sorted(self._known.items())}
        self._is_written = False
        try:
            self._write(dialect.dumps_pretty({"offsetTable": table}))
            self._is_written = True
        except OSError as error:
            log.warning("Cannot write the offsets to %s: %s", self.path, error)

    def _write(self, text: bytes) -> None:
        """Replaces the file with `text`, and keeps the old file as backup. Raises OSError.

        It writes a new file and renames it, so that no half-written file is ever read.
        """
        self.disk.make_dirs(str(self.path.parent))
        draft = str(self.path.with_suffix(".json.tmp"))
        self.disk.write(draft, text, sync=False)
        if self.disk.exists(str(self.path)):
            self.disk.rename(str(self.path), str(self._backup))
        self.disk.rename(draft, str(self.path))

    @property
    def _backup(self) -> Path:
        return self.path.with_suffix(".json.bak")


def offset_store(
    instance: ClientInstance, group: str, is_broadcast: bool, settings: ReadingSettings, disk: FileAccess
) -> OffsetStore:
    """Makes the store of a group's offsets: a file of this machine when broadcasting, else the brokers."""
    if not is_broadcast:
        return GroupOffsets(instance.client, instance.routes, group, instance.heartbeats.tell)
    return local_offsets(disk, settings.local_offset_store_dir, instance.client_id, group)


def local_offsets(disk: FileAccess, directory: str, client_id: str, group: str) -> LocalOffsets:
    """Returns the offset store of a broadcasting member, with the offsets read from its file."""
    offsets = LocalOffsets(disk, local_path(directory, client_id, group))
    offsets.load()
    return offsets


def local_path(directory: str, client_id: str, group: str) -> Path:
    return Path(directory).expanduser() / client_id / group / "offsets.json"
