"""Client of the ledger of decisions at the brokers: writes batches of messages exactly once.

In: messages in batches, written by attempts that may fail, be repeated, or outlive their time. Out: of each
batch the messages of the attempts that were chosen, each once, whatever process dies meanwhile. The brokers
apply a decision by themselves; the process that decided need not live on. Only Turbopump's brokers can do
this.

    driver        ledger = Ledger("orders-v1", name_servers); await ledger.open(run)
    each task     writer = ledger.writer(batch); await writer.send(messages); return writer.written
    driver        await ledger.decide(batch, those that count); await ledger.end(batch)
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar, Unpack

from turbopump.client.admin.admin import Admin
from turbopump.client.admin.calls import TIMEOUT_S, ServerUnreachable
from turbopump.client.admin.clusters import Layout
from turbopump.client.errors import ClientError, InvalidArgument
from turbopump.client.message import Message, MessageQueue
from turbopump.client.namespace import wrap
from turbopump.client.options import ClientOptions
from turbopump.client.produce.selectors import by_hash
from turbopump.client.rules import SendRules, check_packed
from turbopump.client.world import World
from turbopump.protocol import batch as batches
from turbopump.protocol import ledger as wire
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import Fenced, QueryNotFound, Refused, RequestNotSupported
from turbopump.protocol.headers.base import Header
from turbopump.protocol.headers.ledger import (
    LedgerDecideRequest,
    LedgerEndRequest,
    LedgerEndResponse,
    LedgerOpenRequest,
    LedgerReadRequest,
    LedgerSendRequest,
)
from turbopump.protocol.ledger import Book, LedgerEntry
from turbopump.runtime.tasks import call_concurrently

__all__ = ["Ended", "Fenced", "Ledger", "LedgerNotSupported", "SpoiledWriter", "Writer", "Written"]

MAX_FRAME_MESSAGES = 4096  # the broker's limit
MAX_FRAME_BYTES = 2 << 20
MAX_MESSAGE_SIZE = 4 << 20
TRIES, PAUSE_S = 5, 1.0  # for requests that may be repeated

T = TypeVar("T")
Packed = tuple[int, bytes, bytes]
BrokerFrames = tuple[str, str, Iterable[tuple[bytes, int]]]
"""A broker, its address, and frames for it with the number of their messages."""
KeyOf = Callable[[Message], object]


class LedgerNotSupported(ClientError):
    """Raised when a broker of the cluster keeps no ledger: it is Apache's, or an older Turbopump."""


class SpoiledWriter(ClientError):
    """Raised after a frame of a writer was not acknowledged; it may be stored or not: make a new writer."""


@dataclass(frozen=True, slots=True)
class Written:
    """Token, number of messages and brokers of what one writer got acknowledged: an argument of `decide`."""

    token: str
    count: int
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of `Ledger.end`: messages committed and rolled back, and brokers that have not finished.

    Brokers in `behind` will settle by themselves when they can.
    """

    committed: int
    rolled_back: int
    behind: tuple[str, ...]


class Ledger:
    """The client of one transactional id in the ledger: opens runs, makes writers, decides and ends batches.

    The id outlives its writers.

        async with Ledger("orders-v1", "127.0.0.1:9876") as ledger:
            await ledger.open("run-7")
            if not await ledger.decided(12):
                writer = ledger.writer(12)
                await writer.send([Message("OrderTopic", b"paid")])
                await ledger.decide(12, [writer.written])
            await ledger.end(12)

    The batches of an id are numbered upwards from 0, and decided in that order: a decision ends all earlier
    batches. `run` names one run of the process that decides; a new run ends all before it (`Fenced`). A
    writer in another process makes a ledger with `run` and `home` of the one that was opened, and does not
    open it.
    """

    def __init__(
        self,
        id: str,
        name_servers: str | Sequence[str] | None = None,
        *,
        run: str = "",
        home: str = "",
        cluster: str = "",
        admin: Admin | None = None,
        world: World | None = None,
        timeout: float = TIMEOUT_S,
        **settings: Unpack[ClientOptions],
    ) -> None:
        self.id = id
        self.run = run
        self.home = home
        self.cluster = cluster
        self.admin = admin or Admin(name_servers, world=world, timeout=timeout, **settings)
        self._world = self.admin.world
        self._addresses: dict[str, str] = {}

    # Open and close

    async def open(self, run: str) -> None:
        """Begins a run and fences all earlier runs of the id: what they have not decided is rolled back.

        Raises Fenced for a run that another one ended, LedgerNotSupported, and Unreachable while a broker
        that may know the id cannot be reached.
        """
        masters = await self._masters()
        known = await self._everywhere(masters, self._home_by)
        homes = {home for home in known if home} | ({self.home} if self.home else set())
        if len(homes) > 1:
            raise InvalidArgument(
                f"ledger {self.id} must have one home, got {', '.join(sorted(homes))}: use another id"
            )
        home = homes.pop() if homes else min(masters, default="")
        if home not in masters:
            raise ServerUnreachable(
                f"broker {home}", ConnectionError(f"the home of {self.id} is not registered")
            )
        header = LedgerOpenRequest(id=self.id, run=run, home=home)

        async def note(broker: str) -> None:
            await self._ask(broker, RequestCode.LEDGER_OPEN, header)

        await self._everywhere([broker for broker in masters if broker != home], note)
        await note(home)
        self.run, self.home = run, home

    async def close(self) -> None:
        await self.admin.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def sharing(self, id: str, run: str) -> "Ledger":
        """Returns the client of another id with the same home, which uses the connections of this one."""
        return Ledger(id, run=run, home=self.home, cluster=self.cluster, admin=self.admin)

    async def ask_home(self, code: RequestCode, header: Header, body: bytes = b"") -> bytes:
        """Sends a request about what the home keeps beside the ledger; returns the body of its answer."""
        return await self._ask(self.home, code, header, body)

    # Batches

    async def decided(self, batch: int) -> bool:
        """Returns whether a batch is decided, so that only `end` is left to do for it."""
        return await self.highest() >= batch

    async def highest(self) -> int:
        """Returns the number of the highest decided batch; -1: none is decided."""
        return (await self._book([])).highest

    async def is_current(self) -> bool:
        """Returns whether this ledger's run is the latest of the id; False: another run has taken over."""
        return (await self._book([])).run == self.run

    async def check_supported(self) -> None:
        """Raises LedgerNotSupported if a broker of the cluster keeps no ledger."""
        await self._everywhere(await self._masters(), self._home_by)

    def writer(self, batch: int) -> "Writer":
        """Returns a writer with a new token: one attempt to write messages of a batch."""
        self._check_opened()
        token = f"{self.admin.chance.getrandbits(96):024x}"
        return Writer(self, batch, token)

    async def decide(self, batch: int, written: Iterable[Written]) -> frozenset[str]:
        """Decides whose messages count in a batch; returns the tokens chosen, now or by an earlier call.

        Once it returns, messages of these tokens will be committed and all others rolled back, whatever
        process dies. Raises Fenced.
        """
        self._check_opened()
        chosen = [one for one in written if one.count]
        brokers = {broker for one in chosen for broker in one.brokers}
        entry = LedgerEntry(tuple(one.token for one in chosen), tuple(sorted(brokers)))
        header = LedgerDecideRequest(id=self.id, batch=batch, run=self.run)
        answer = await self._again(
            lambda: self._ask(self.home, RequestCode.LEDGER_DECIDE, header, wire.encode(entry))
        )
        return frozenset(wire.read_entry(answer).tokens)

    async def end(self, batch: int) -> Ended:
        """Makes brokers settle all decided batches up to this one now, not within half a minute.

        Can be repeated.
        """
        book = await self._book([])
        others = sorted({*book.owed, *await self._masters()} - {self.home})
        ends = await asyncio.gather(*(self._end_at(broker, batch) for broker in others))
        behind = tuple(b for b, one in zip(others, ends, strict=True) if one is None or one.left)
        is_settled = set(behind).isdisjoint(book.owed)
        header = LedgerEndRequest(id=self.id, batch=batch, settled=is_settled)
        at_home = await self._again(lambda: self._ended(self.home, header))
        if at_home.left:
            behind += (self.home,)
        done = [at_home, *(one for one in ends if one is not None)]
        return Ended(sum(one.committed for one in done), sum(one.rolledBack for one in done), behind)

    async def _end_at(self, broker: str, batch: int) -> LedgerEndResponse | None:
        """Settles the batches up to `batch` at one broker; None: it cannot be reached, or refused."""
        try:
            return await self._ended(broker, LedgerEndRequest(id=self.id, batch=batch))
        except (ServerUnreachable, Refused):
            return None

    async def _ended(self, broker: str, header: LedgerEndRequest) -> LedgerEndResponse:
        """Repeats LEDGER_END at one broker while it settles more; returns the sums and what is left.

        A broker settles a part of a large batch at each call. What is left when a call settled nothing more
        is not decided, or cannot be settled now.
        """
        committed = rolled_back = 0
        while True:
            answer = await self._end_some(broker, header)
            committed += answer.committed
            rolled_back += answer.rolledBack
            if not answer.left or not answer.committed + answer.rolledBack:
                return LedgerEndResponse(committed, rolled_back, answer.left)

    async def _end_some(self, broker: str, header: LedgerEndRequest) -> LedgerEndResponse:
        address = await self.address(broker)
        try:
            answer = await self.admin.asking.ask(address, RequestCode.LEDGER_END, header)
        except ServerUnreachable:
            self._addresses.pop(broker, None)
            raise
        return LedgerEndResponse.from_ext(answer.ext)

    # Requests

    async def _book(self, wanted: list[int]) -> Book:
        self._check_opened()
        header, body = LedgerReadRequest(id=self.id), wire.encode(wanted)
        answer = await self._again(lambda: self._ask(self.home, RequestCode.LEDGER_READ, header, body))
        return wire.read_book(answer)

    async def _home_by(self, broker: str) -> str:
        """Returns the name of the id's home broker as `broker` knows it; empty: that broker knows none."""
        try:
            answer = await self._ask(broker, RequestCode.LEDGER_READ, LedgerReadRequest(id=self.id))
        except QueryNotFound:
            return ""
        return wire.read_book(answer).home

    async def _ask(self, broker: str, code: RequestCode, header: Header, body: bytes = b"") -> bytes:
        address = await self.address(broker)
        try:
            return (await self.admin.asking.ask(address, code, header, body)).body
        except RequestNotSupported:
            raise LedgerNotSupported(
                f"broker {broker} at {address} keeps no ledger of decisions: only Turbopump's brokers do. "
                "Write at least once instead, and let consumers recognise repetitions"
            ) from None
        except ServerUnreachable:
            self._addresses.pop(broker, None)
            raise

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Calls `ask` up to TRIES times while it raises Unreachable; for requests that may be repeated."""
        for _ in range(TRIES - 1):
            try:
                return await ask()
            except ServerUnreachable:
                await self.admin.clock.sleep(PAUSE_S)
        return await ask()

    async def _everywhere(self, brokers: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*map(ask, brokers)))

    async def _masters(self) -> list[str]:
        """Returns the names of the cluster's registered masters, sorted, and notes their addresses."""
        layout = await self.admin.clusters.layout()
        self.cluster = self.cluster or _only(layout)
        there = (one for one in layout.brokers if one.cluster == self.cluster and one.id == MASTER_ID)
        found = {one.name: one.address for one in there}
        self._addresses |= found
        return sorted(found)

    async def address(self, broker: str) -> str:
        """Returns the address of a broker's master. Raises Unreachable when no name server knows it now."""
        if broker not in self._addresses:
            await self._masters()
        if broker not in self._addresses:
            raise ServerUnreachable(broker, ConnectionError("no name server knows it"))
        return self._addresses[broker]

    def _check_opened(self) -> None:
        if not self.run or not self.home:
            raise InvalidArgument("open the ledger first, or give run= and home= of one that was opened")


def _only(layout: Layout) -> str:
    if not layout.clusters:
        raise ServerUnreachable("the cluster", ConnectionError("no broker is registered"))
    if len(layout.clusters) > 1:
        raise InvalidArgument(
            f"cluster= must be given when there are several clusters, got {', '.join(layout.clusters)}"
        )
    return layout.clusters[0]


class Writer:
    """One attempt to write messages of a batch: consumers see them only if a decision chooses its token.

    When a call of `send` fails the writer is spoiled: make a new one, and start from the first message.
    """

    def __init__(self, ledger: Ledger, batch: int, token: str) -> None:
        self.token = token
        self._ledger = ledger
        self._header = LedgerSendRequest(
            id=ledger.id, batch=batch, run=ledger.run, token=token, home=ledger.home
        )
        self._sender = ledger.admin.producer(ledger.id)
        self._rules = SendRules(MAX_MESSAGE_SIZE)
        self._turn = ledger.admin.chance.getrandbits(16)
        self._count = 0
        self._brokers: set[str] = set()
        self._is_spoiled = False
        self._sending = 0

    @property
    def written(self) -> Written:
        """What was acknowledged so far. Raises SpoiledWriter after a failure and while a `send` runs."""
        if self._is_spoiled or self._sending:
            raise SpoiledWriter(f"a frame of writer {self.token} is not acknowledged: begin a new writer")
        return Written(self.token, self._count, tuple(sorted(self._brokers)))

    async def send(self, messages: Sequence[Message], by: KeyOf | None = None) -> None:
        """Stores messages that consumers see only after a decision; returns when brokers have all of them.

        `by`: messages of one key go to one queue, in order; without it the queues take turns. A delay counts
        from the commit on.
        """
        await self.send_packed(
            (broker, address, ((batches.join(frame), len(frame)) for frame in cut(packed)))
            for broker, address, packed in await self._frames(messages, by)
        )

    async def send_packed(self, frames_by_broker: Iterable[BrokerFrames]) -> None:
        """Sends frames that the caller has packed as bodies of batch sends; a failure spoils the writer.

        Each message names its topic and queue (REAL_TOPIC, REAL_QID) and has a unique key.
        """
        if self._is_spoiled:
            raise SpoiledWriter(f"a frame of writer {self.token} was not acknowledged: begin a new writer")
        self._sending += 1
        try:
            await call_concurrently(lambda frames: self._send_all(*frames), frames_by_broker)
        except BaseException:
            self._is_spoiled = True
            raise
        finally:
            self._sending -= 1

    async def _send_all(self, broker: str, address: str, frames: Iterable[tuple[bytes, int]]) -> None:
        """Sends one broker its frames, each after the previous answer, so that queues keep their order."""
        asking = self._ledger.admin.asking
        self._brokers.add(broker)
        for body, count in frames:
            await asking.ask(address, RequestCode.LEDGER_SEND, self._header, body)
            self._count += count

    async def _frames(
        self, messages: Sequence[Message], by: KeyOf | None
    ) -> list[tuple[str, str, list[Packed]]]:
        """Checks and packs the messages; returns, for each broker, its name, its address and its messages."""
        found: dict[str, tuple[str, list[Packed]]] = {}
        for message in messages:
            self._rules.check_half(message)
            topic = wrap(self._ledger.admin.settings.namespace, message.topic)
            route = await self._ledger.admin.routes.find(topic)
            queue = self._queue(route.publish, message, by)
            address = route.master(queue.broker)
            if address is None:
                raise ServerUnreachable(queue.broker, ConnectionError("no name server knows it"))
            found.setdefault(queue.broker, (address, []))[1].append(self._packed(message, queue))
        return [(broker, address, packed) for broker, (address, packed) in found.items()]

    def _queue(self, queues: Sequence[MessageQueue], message: Message, by: KeyOf | None) -> MessageQueue:
        if not queues:
            raise InvalidArgument(f"topic {message.topic} must have a writable queue, got none")
        if by is not None:
            return by_hash(by(message))(queues, message)
        self._turn += 1
        return queues[self._turn % len(queues)]

    def _packed(self, message: Message, queue: MessageQueue) -> Packed:
        _, text = self._sender.packer.packed(message)
        text = f"REAL_TOPIC\x01{queue.topic}\x02REAL_QID\x01{queue.id}\x02{text}"
        check_packed(text)
        return message.flag, message.body, text.encode()


def cut(packed: Sequence[Packed]) -> Iterable[list[Packed]]:
    """Yields the messages in frames that a broker accepts; a message larger than a frame is alone in one."""
    frame: list[Packed] = []
    size = 0
    for one in packed:
        more = len(one[1]) + len(one[2])
        if frame and (len(frame) >= MAX_FRAME_MESSAGES or size + more > MAX_FRAME_BYTES):
            yield frame
            frame, size = [], 0
        frame.append(one)
        size += more
    if frame:
        yield frame
