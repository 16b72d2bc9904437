"""Decides when the request that stored a message is answered, and what durability the answer promises.

In: where the record of a message ends in the log. Out: a `Safety`, at once or later. Every handler that
stores a message and owes an answer asks the one `Acknowledgement` that was picked at start; the receipt
of a send is made from its result. A SYNC_MASTER has the rule of `replicas/acknowledgement.py`, over what
`replication` reports; no handler knows of it. Appending, and the text of an answer, never belong here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import refusal
from turbopump.remoting.router import Request
from turbopump.store.config import StoreConfig
from turbopump.store.flush import Durability

H = TypeVar("H")

PROMISES = {
    Durability.BUFFER: "the message is in this process's memory; it is lost when the process dies",
    Durability.MEMORY: (
        "the message is in the operating system's memory: it survives a crash of this process, not of the "
        "machine. For more, set flushDiskType=SYNC_FLUSH"
    ),
    Durability.DISK: "the message is synced to disk",
}


@dataclass(frozen=True, slots=True, eq=False)
class Safety:
    """How safe a message was when its sender was answered: durability, number of brokers, response code.

    Compared by identity: answers are cached by it.
    """

    durability: str
    """`buffer`, `memory`, `disk` or `quorum`, as in the receipt."""
    replicas: int = 1
    """How many brokers have the message."""
    replicas_on_disk: int | None = None
    """How many of them have it on disk; None: this broker has the only copy, `durability` says it."""
    code: ResponseCode = ResponseCode.SUCCESS
    """Response code for a sender that waits."""
    is_safe: bool = True
    """False: the sync or the copies that were waited for failed or took too long."""
    term: int | None = None
    """Term of the leader that stored the message in a DLedger group; its receipt also names the index."""
    remark: str = ""
    """What the sender is told beside an error code."""


AFTER_SYNC = {
    Durability.BUFFER: Safety("buffer"),
    Durability.MEMORY: Safety("memory"),
    Durability.DISK: Safety("disk"),
    Durability.TIMEOUT: Safety("memory", code=ResponseCode.FLUSH_DISK_TIMEOUT, is_safe=False),
    Durability.FAILED: Safety("memory", code=ResponseCode.FLUSH_DISK_TIMEOUT, is_safe=False),
}


def not_safe(what: str, code: ResponseCode) -> str:
    """Returns in words what was waited for in vain, for the code of a `Safety` that is not safe."""
    if code is ResponseCode.FLUSH_SLAVE_TIMEOUT:
        return f"{what} is stored, but too few slaves had it in time"
    if code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR):
        return f"{what} was not committed by a majority of the group"
    return f"{what} is not on disk"


class Syncs(Protocol):
    """Interface of the store's flusher: waits until the log is synced to disk up to an offset."""

    def durable(self, offset: int, done: Callable[[Durability], None]) -> None:
        """Calls `done` once: when the log below `offset` is synced to disk, or that failed or timed out."""

    async def wait_durable(self, offset: int) -> Durability: ...

    @property
    def unsynced_bytes(self) -> int: ...


class Acknowledgement:
    """The rule that decides when a request that stored messages is answered, and with which `Safety`.

    One per broker, picked by `choose` at start.
    """

    promise: str
    """What the answer to a send means, in words."""
    unawaited: Safety
    """The safety for a sender that does not wait (WAIT=false), known in the pass that stores the message."""
    immediate: Safety | None
    """The safety for a sender that waits, if known in the same pass; None: `when_safe` gives it."""
    expected: Safety | None = None
    """The safety that `when_safe` mostly gives, so that answers can be made before; None: not known."""

    def __init__(self, syncs: Syncs) -> None:
        self._syncs = syncs

    def when_safe(self, end: int, done: Callable[[Safety], None]) -> None:
        """Calls `done` once: when the log below offset `end` is as safe as promised, or that has failed.

        A failure is a `Safety` with `is_safe` False.
        """
        raise NotImplementedError

    async def safe(self, end: int) -> Safety:
        """Waits until the log below offset `end` is as safe as promised or that failed; returns the `Safety`.

        Returns `immediate` at once if there is one.
        """
        if self.immediate is not None:
            return self.immediate
        outcome: asyncio.Future[Safety] = asyncio.get_running_loop().create_future()

        def done(safety: Safety) -> None:
            if not outcome.done():  # the waiter may have been cancelled
                outcome.set_result(safety)

        self.when_safe(end, done)
        return await outcome

    async def on_disk(self, end: int) -> bool:
        """Waits until the log below `end` is on this broker's disk and as safe as promised; False: it failed.

        Also waits until it is as safe as promised, under a rule that promises more than the disk. For
        progress and decisions that are kept elsewhere and must never be ahead of the log.
        """
        return await self.disk_code(end) is ResponseCode.SUCCESS

    async def disk_code(self, end: int) -> ResponseCode:
        """Waits as `on_disk` does; returns SUCCESS, or the code that says what did not come in time."""
        is_synced = await self._syncs.wait_durable(end) is Durability.DISK
        return ResponseCode.SUCCESS if is_synced else ResponseCode.FLUSH_DISK_TIMEOUT

    async def require_on_disk(self, end: int, what: str) -> None:
        """Waits as `on_disk` does; raises FlushDiskTimeout or FlushSlaveTimeout, about `what`, if in vain."""
        code = await self.disk_code(end)
        if code is not ResponseCode.SUCCESS:
            raise refusal(code, f"{not_safe(what, code)}; ask again")

    @property
    def unsafe_bytes(self) -> int:
        """Bytes at the end of the log that readers do not see yet because they are not safe."""
        return 0

    def answer(
        self, request: Request[H], end: int, size: int, make: Callable[[Safety], Command]
    ) -> Command | None:
        """Answers a request, by `make`, once the log below offset `end` is safe. None: answered later.

        Returns the answer when the log is safe at once. Otherwise returns None and answers later; until then
        the request counts as `size` bytes in flight, so that a peer cannot pile up requests on a disk that
        stalls.
        """
        if self.immediate is not None:
            return make(self.immediate)
        connection = request.connection
        connection.begin(size)

        def later(safety: Safety) -> None:
            try:
                request.answer(make(safety))
            finally:
                connection.end(size)

        self.when_safe(end, later)
        return None


class MemoryAcknowledgement(Acknowledgement):
    """The rule for ASYNC_FLUSH: a send is answered as soon as its message is in memory."""

    immediate: Safety

    def __init__(self, syncs: Syncs, durability: Durability) -> None:
        super().__init__(syncs)
        self.promise = PROMISES[durability]
        self.immediate = self.unawaited = AFTER_SYNC[durability]

    def when_safe(self, end: int, done: Callable[[Safety], None]) -> None:
        done(self.immediate)


class DiskAcknowledgement(Acknowledgement):
    """The rule for SYNC_FLUSH: a send is answered when its message is synced, or that failed or timed out."""

    promise = PROMISES[Durability.DISK]
    unawaited = AFTER_SYNC[Durability.MEMORY]
    immediate = None

    def when_safe(self, end: int, done: Callable[[Safety], None]) -> None:
        self._syncs.durable(end, lambda durability: done(AFTER_SYNC[durability]))

    @property
    def unsafe_bytes(self) -> int:
        return self._syncs.unsynced_bytes


def choose(config: StoreConfig, syncs: Syncs) -> Acknowledgement:
    """Returns the acknowledgement rule for this broker's own copy, which flushDiskType asks for."""
    if config.syncs_each:
        return DiskAcknowledgement(syncs)
    durability = Durability.BUFFER if config.uses_pool else Durability.MEMORY
    return MemoryAcknowledgement(syncs, durability)
