"""Where a consumer keeps how far it is: its brokers when the group shares the queues, a file when each member
has them all.

The file is Apache's, `<dir>/<client id>/<group>/offsets.json`: one table whose keys are objects, which is not
standard JSON. What it had before is beside it as `offsets.json.bak`.
"""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from turbopump.client.files import Files
from turbopump.client.message import MessageQueue
from turbopump.client.offsets import GroupOffsets
from turbopump.protocol import bodies, dialect
from turbopump.protocol.errors import BrokenBody, Refused

log = logging.getLogger(__name__)


class Offsets(Protocol):
    async def query(self, queue: MessageQueue) -> int | None:
        """None: there is none yet. Raises Refused or OSError when it cannot be known."""

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Returns when it is kept. Raises Refused or OSError."""

    async def persist(self, positions: Mapping[MessageQueue, int]) -> None:
        """All of them, as well as it goes: it is done every few seconds."""


class CommittedOffsets(GroupOffsets):
    """At the brokers."""

    async def persist(self, positions: Mapping[MessageQueue, int]) -> None:
        for queue, offset in positions.items():
            with contextlib.suppress(OSError, Refused, BrokenBody):
                await self.tell(queue, offset)


@dataclass
class LocalOffsets:
    """In a file of some hundred bytes, written on the loop every few seconds."""

    disk: Files
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


def local_path(directory: str, client_id: str, group: str) -> Path:
    return Path(directory).expanduser() / client_id / group / "offsets.json"
