"""Message trace: sends the records of what was sent and handled to the trace topic, with a sender of its own.

In: records, from the loop or from threads of handlers (`trace_hooks.py`). Out: messages of the trace topic, a
few records each. Tracing never fails the user's work: when records come faster than they can be sent, or the
trace topic cannot be reached, they are dropped and counted. `trace.py` has the format of the records.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from turbopump.client.errors import ClientError
from turbopump.client.instance import ClientInstance
from turbopump.client.message import CopiedMessage, Message, MessageExt
from turbopump.client.observe import trace
from turbopump.client.observe.trace import Trace, TraceMessageKind
from turbopump.client.produce.sender import Sender
from turbopump.client.produce.transaction import CheckRequest, Decision
from turbopump.client.routes import RoundRobin
from turbopump.client.settings import AccessChannel, ClientSettings, ProducerSettings
from turbopump.protocol import names
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.send import CheckTransactionStateRequest
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

MAX_WAITING_RECORDS = 2048  # further records are dropped
MAX_SENDS_IN_FLIGHT = 32  # messages of the trace topic
MAX_RECORDS_PER_MESSAGE = 20  # whatever trace_msg_batch_num says
FLUSH_S = 0.5  # how long the records of a quiet client wait for more
CLOSE_S = 5.0  # for records that still wait when the client closes
SEND_TIMEOUT_S = 5.0
MAX_CHARACTERS = 128_000  # characters of one message's records
MAX_KEY_CHARACTERS = 16_000  # characters of its keys: all properties together have 32 KiB
CLOUD_TOPIC = "rmq_sys_TRACE_DATA_"
NO_REGION = "DefaultRegion"

STATES = {
    Decision.COMMIT: "COMMIT_MESSAGE",
    Decision.ROLLBACK: "ROLLBACK_MESSAGE",
    Decision.UNKNOWN: "UNKNOW",
}
"""Apache's names of the states; one of them lacks a letter."""

_numbers = itertools.count()


class TraceSender:
    """Sends the trace records of one producer or consumer to the trace topic, in the background.

    `start` and `close` once; `add` from any thread.
    """

    def __init__(self, instance: ClientInstance, settings: ClientSettings, group: str, use: str) -> None:
        """Makes a sender with a producer group of its own, named by `group` and `use`: PRODUCE or CONSUME."""
        self.group = f"_INNER_TRACE_PRODUCER-{group}-{use}-{next(_numbers)}"
        self._users_group = group
        self.dropped = 0
        """How many records were not sent."""
        self._instance = instance
        self._topic = settings.trace_topic or names.TRACE_TOPIC
        self._is_cloud = settings.access_channel is AccessChannel.CLOUD
        self._batch = min(settings.trace_msg_batch_num, MAX_RECORDS_PER_MESSAGE)
        self._waiting: deque[Trace] = deque()
        self._changed = asyncio.Event()
        self._is_called = False
        self._is_open = True
        self._is_failing = False
        self._loop = asyncio.get_running_loop()
        self._send_slots = asyncio.Semaphore(MAX_SENDS_IN_FLIGHT)
        self._tasks = Tasks(log)
        self._sends = Tasks(log)
        self._topics = {} if self._is_cloud else {self._topic: None}
        self._sender = Sender(
            instance.client,
            instance.routes,
            instance.world.clock,
            instance.unique_ids,
            RoundRobin(instance.world.chance),
            self.group,
            ProducerSettings(send_msg_timeout=SEND_TIMEOUT_S, unit_mode=settings.unit_mode),
            chance=instance.world.chance,
        )

    def topics(self) -> Iterable[str]:
        """Returns the trace topics, whose brokers get heartbeats with this sender's producer group."""
        return self._topics

    def check_transaction(self, request: CheckRequest) -> None:
        """Ignores a transaction check: traces are not sent in transactions, so it means another producer."""

    # Start and close

    async def start(self) -> None:
        await self._instance.join_producer(self)
        self._worker = self._tasks.start(self._work(), name="send traces")

    async def close(self) -> None:
        """Sends the waiting records for at most CLOSE_S seconds, drops the rest, and leaves the instance."""
        self._is_open = False
        self._changed.set()
        done, _ = await asyncio.wait([self._worker], timeout=CLOSE_S)
        if not done:
            self.dropped += len(self._waiting)
            await self._tasks.close()
            await self._sends.close()
        if self.dropped:
            log.warning("Dropped %d trace records of %s", self.dropped, self.group)
        await self._sender.close()
        await self._instance.leave_producer(self.group)

    # Records

    def is_traced(self, topic: str) -> bool:
        """Returns whether messages of this topic are traced; the trace topic itself is not."""
        return not topic.startswith(CLOUD_TOPIC if self._is_cloud else self._topic)

    def now_ms(self) -> int:
        return self._instance.world.clock.now_ms()

    def new_id(self) -> str:
        return self._instance.unique_ids.next()

    def add(self, records: Sequence[Trace]) -> None:
        """Queues trace records to be sent, from any thread; drops and counts them when too many wait."""
        if not self._is_open or len(self._waiting) + len(records) > MAX_WAITING_RECORDS:
            self.dropped += len(records)
            return
        self._waiting.extend(records)
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._look)

    def transaction_ended(
        self,
        message: Message | MessageExt,
        message_id: str,
        broker_address: str,
        decision: Decision,
        transaction_id: str | None = None,
        from_check: bool = False,
    ) -> None:
        """Queues a trace record of the end of a transaction, whose id is by default that of its message."""
        if not self.is_traced(message.topic):
            return
        record = Trace(
            trace.END,
            message_id,
            group=self._users_group,
            topic=message.topic,
            time_ms=self.now_ms(),
            keys=keys_text(message.keys),
            region=NO_REGION,
            tags=message.tags or None,
            store_host=broker_address,
            kind=TraceMessageKind.COMMIT,
            transaction_id=transaction_id or message_id,
            state=STATES[decision],
            from_check=from_check,
        )
        self.add([record])

    def transaction_checked(
        self, message: MessageExt, asked: CheckTransactionStateRequest, address: str, decision: Decision
    ) -> None:
        """Queues a trace record of a transaction that was ended by the answer to a broker's check."""
        self.transaction_ended(
            message, message.message_id, address, decision, asked.transactionId, from_check=True
        )

    # Sending

    def _look(self) -> None:
        self._is_called = False
        self._changed.set()

    async def _work(self) -> None:
        while self._is_open or self._waiting:
            await self._until(1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await self._until(self._batch)
            some = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
            for message in trace_messages(some, self._is_cloud):
                await self._send_slots.acquire()
                send = self._sends.start(self._send(message))
                send.add_done_callback(lambda _: self._send_slots.release())
        await self._sends.wait()

    async def _until(self, count: int) -> None:
        """Waits until at least `count` records are queued, or the sender is closed."""
        while self._is_open and len(self._waiting) < count:
            self._changed.clear()
            await self._changed.wait()

    async def _send(self, message: "TraceMessage") -> None:
        topic = CLOUD_TOPIC + (message.region or "") if self._is_cloud else self._topic
        self._topics.setdefault(topic)
        try:
            keys = tuple(message.keys)
            await self._sender.send(CopiedMessage(topic, message.text.encode(), keys=keys))
            self._is_failing = False
        except (OSError, Refused, ClientError) as error:
            self.dropped += message.count
            level = logging.DEBUG if self._is_failing else logging.WARNING  # warn once, until it works again
            log.log(level, "Cannot send traces to %s: %s", topic, error)
            self._is_failing = True


@dataclass
class TraceMessage:
    """One message for a trace topic: text of its records, their keys and number; `region` only for CLOUD."""

    region: str | None
    text: str = ""
    keys: dict[str, None] = field(default_factory=dict)
    count: int = 0

    def fits(self, text: str, keys: Sequence[str]) -> bool:
        """Returns whether the limits of a message allow to add a record of this text with these keys."""
        size = sum(len(key) + 1 for key in {**self.keys, **dict.fromkeys(keys)})
        return len(self.text) + len(text) <= MAX_CHARACTERS and size <= MAX_KEY_CHARACTERS


def trace_messages(records: Iterable[Trace], is_cloud: bool) -> Iterator[TraceMessage]:
    """Packs trace records into trace messages by topic of the traced message, with `is_cloud` also by region.

    The ids and keys of the traced messages become keys, by which tools find the records.
    """
    open_ones: dict[tuple[str | None, str | None], TraceMessage] = {}
    for record in records:
        place = record.topic, record.region if is_cloud else None
        text = trace.encode(record, is_cloud)
        keys = [record.message_id, *(record.keys or "").split()]
        one = open_ones.get(place)
        if one is not None and not one.fits(text, keys):
            yield open_ones.pop(place)
            one = None
        if one is None:
            one = open_ones[place] = TraceMessage(place[1])
        one.text += text
        one.keys.update(dict.fromkeys(keys))
        one.count += 1
    yield from open_ones.values()


def keys_text(keys: Sequence[str]) -> str | None:
    """Returns the keys of a message as one text with blanks, as trace records have them; None: no keys."""
    return " ".join(keys) or None
