"""Message trace: hooks note what was sent and handled, and a sender of its own tells the trace topic.

What comes in: records, from the loop or from threads of handlers. What goes out: messages of the trace topic,
a few records each. The user never notices any of it: when records come faster than they can be sent, or the
trace topic cannot be reached, they are dropped and counted. The records themselves are in `trace.py`.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from turbopump.client.errors import ClientError
from turbopump.client.group.consume_status import RetryLater
from turbopump.client.instance import ClientInstance, complain, end
from turbopump.client.message import CopiedMessage, Message, MessageExt, SendStatus
from turbopump.client.namespace import unwrap
from turbopump.client.observe import trace
from turbopump.client.observe.hooks import ConsumeContext, MessageKind, SendContext
from turbopump.client.observe.trace import Trace, TraceMessageKind, TraceOutcome
from turbopump.client.produce.batches import split_result
from turbopump.client.produce.sender import Sender
from turbopump.client.produce.transaction import CheckRequest, Decision
from turbopump.client.routes import RoundRobin
from turbopump.client.settings import AccessChannel, ClientSettings, ProducerSettings
from turbopump.protocol import names, properties
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.send import CheckTransactionStateRequest

log = logging.getLogger(__name__)

MOST_WAITING = 2048  # records; what comes when so many wait is dropped
MOST_SENDING = 32  # messages of the trace topic under way
MOST_RECORDS = 20  # of one message, whatever trace_msg_batch_num says
FLUSH_S = 0.5  # records of a quiet client wait so long for more
CLOSE_S = 5.0  # for what still waits when the client closes
SEND_TIMEOUT_S = 5.0
LARGEST = 128_000  # characters of one message's records
LARGEST_KEYS = 16_000  # characters of its keys: all properties together have 32 KiB
CLOUD_TOPIC = "rmq_sys_TRACE_DATA_"
NO_REGION = "DefaultRegion"
NOTE = "trace"  # of the hooks, from before to after

KINDS = {
    MessageKind.NORMAL: TraceMessageKind.NORMAL,
    MessageKind.DELAY: TraceMessageKind.DELAY,
    MessageKind.TRANSACTION: TraceMessageKind.HALF,
}

STATES = {
    Decision.COMMIT: "COMMIT_MESSAGE",
    Decision.ROLLBACK: "ROLLBACK_MESSAGE",
    Decision.UNKNOWN: "UNKNOW",
}
"""In Apache's words, one of them with a letter missing."""

_numbers = itertools.count()


class TraceSender:
    """Of one producer or consumer. `start` once, `close` once; `add` from any thread."""

    def __init__(self, instance: ClientInstance, settings: ClientSettings, group: str, use: str) -> None:
        """`use` is PRODUCE or CONSUME."""
        self.group = f"_INNER_TRACE_PRODUCER-{group}-{use}-{next(_numbers)}"
        self._users_group = group
        self.dropped = 0
        """Records that nobody will see."""
        self._instance = instance
        self._topic = settings.trace_topic or names.TRACE_TOPIC
        self._is_cloud = settings.access_channel is AccessChannel.CLOUD
        self._batch = min(settings.trace_msg_batch_num, MOST_RECORDS)
        self._waiting: deque[Trace] = deque()
        self._changed = asyncio.Event()
        self._is_called = False
        self._is_open = True
        self._is_failing = False
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(MOST_SENDING)
        self._sends: set[asyncio.Task[None]] = set()
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
        """Whose brokers hear of our group, as of any producer's (`instance.Producing`)."""
        return self._topics

    def asked(self, question: CheckRequest) -> None:
        """Traces are sent in no transaction: somebody else's group has our name."""

    # Life

    async def start(self) -> None:
        await self._instance.join_producer(self)
        self._worker = self._loop.create_task(self._work())
        self._worker.add_done_callback(complain)

    async def close(self) -> None:
        """Sends what still waits, in CLOSE_S at most."""
        self._is_open = False
        self._changed.set()
        done, _ = await asyncio.wait([self._worker], timeout=CLOSE_S)
        if not done:
            self.dropped += len(self._waiting)
            for task in (self._worker, *self._sends):
                await end(task)
        if self.dropped:
            log.warning("%d trace records of %s were dropped", self.dropped, self.group)
        await self._sender.close()
        await self._instance.leave_producer(self.group)

    # Records

    def traces(self, topic: str) -> bool:
        """Not messages that are traces themselves."""
        return not topic.startswith(CLOUD_TOPIC if self._is_cloud else self._topic)

    def now_ms(self) -> int:
        return self._instance.world.clock.now_ms()

    def new_id(self) -> str:
        return self._instance.unique_ids.next()

    def add(self, records: Sequence[Trace]) -> None:
        if not self._is_open or len(self._waiting) + len(records) > MOST_WAITING:
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
        """Its own producer says how it ends; the id of the transaction is that of its message."""
        if not self.traces(message.topic):
            return
        record = Trace(
            trace.END,
            message_id,
            group=self._users_group,
            topic=message.topic,
            time_ms=self.now_ms(),
            keys=_keys(message.keys),
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
        """A broker had to ask how it ends."""
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
            for parcel in trace_messages(some, self._is_cloud):
                await self._room.acquire()
                send = self._loop.create_task(self._send(parcel))
                self._sends.add(send)
                send.add_done_callback(self._sent)
        if self._sends:
            await asyncio.wait(self._sends)

    async def _until(self, count: int) -> None:
        """So many wait, or no more will come."""
        while self._is_open and len(self._waiting) < count:
            self._changed.clear()
            await self._changed.wait()

    def _sent(self, send: asyncio.Task[None]) -> None:
        self._sends.discard(send)
        self._room.release()
        complain(send)

    async def _send(self, parcel: "TraceMessage") -> None:
        topic = CLOUD_TOPIC + (parcel.region or "") if self._is_cloud else self._topic
        self._topics.setdefault(topic)
        try:
            keys = tuple(parcel.keys)
            await self._sender.send(CopiedMessage(topic, parcel.text.encode(), keys=keys))
            self._is_failing = False
        except (OSError, Refused, ClientError) as error:
            self.dropped += parcel.count
            level = logging.DEBUG if self._is_failing else logging.WARNING  # once, until it works again
            log.log(level, "Traces cannot be sent to %s: %s", topic, error)
            self._is_failing = True


@dataclass
class TraceMessage:
    """One message of the trace topic."""

    region: str | None
    text: str = ""
    keys: dict[str, None] = field(default_factory=dict)
    count: int = 0

    def fits(self, text: str, keys: Sequence[str]) -> bool:
        size = sum(len(key) + 1 for key in {**self.keys, **dict.fromkeys(keys)})
        return len(self.text) + len(text) <= LARGEST and size <= LARGEST_KEYS


def trace_messages(records: Iterable[Trace], is_cloud: bool) -> Iterator[TraceMessage]:
    """Records of one topic and region together, found later by the ids and the keys of their messages."""
    open_ones: dict[tuple[str | None, str | None], TraceMessage] = {}
    for record in records:
        place = record.topic, record.region if is_cloud else None
        text = trace.encode(record, is_cloud)
        keys = [record.message_id, *(record.keys or "").split()]
        parcel = open_ones.get(place)
        if parcel is not None and not parcel.fits(text, keys):
            yield open_ones.pop(place)
            parcel = None
        if parcel is None:
            parcel = open_ones[place] = TraceMessage(place[1])
        parcel.text += text
        parcel.keys.update(dict.fromkeys(keys))
        parcel.count += 1
    yield from open_ones.values()


# --- hooks -----------------------------------------------------------------------------------------------


@dataclass
class SendTraceHook:
    """A record of each message that a broker has answered for. Sends that failed leave none, as Apache's."""

    tracing: TraceSender

    def before(self, context: SendContext) -> None:
        context.notes[NOTE] = self.tracing.now_ms()

    def after(self, context: SendContext) -> None:
        if context.result is None or not context.is_traced or not self.tracing.traces(context.message.topic):
            return
        began_ms: int = context.notes[NOTE]
        messages = context.messages or (context.message,)
        took_ms = (self.tracing.now_ms() - began_ms) // len(messages)
        self.tracing.add(list(self._records(context, messages, began_ms, took_ms)))

    def _records(
        self, context: SendContext, messages: Sequence[Message], began_ms: int, took_ms: int
    ) -> Iterator[Trace]:
        assert context.result is not None
        ids = context.message_ids or (context.result.message_id,)
        for message, result in zip(messages, split_result(context.result, ids), strict=True):
            yield Trace(
                trace.PUB,
                result.message_id,
                group=unwrap(context.namespace, context.group),
                topic=message.topic,
                time_ms=began_ms,
                cost_ms=took_ms,
                is_success=result.status is SendStatus.SEND_OK,
                keys=_keys(message.keys),
                region=context.region or NO_REGION,
                tags=message.tags or None,
                store_host=context.broker_address,
                body_size=len(message.body) if context.messages else context.body_size,
                kind=KINDS[context.kind],
                offset_message_id=result.offset_message_id,
            )


@dataclass
class ConsumeTraceHook:
    """Records before and after each call of a handler, of those messages that their broker lets trace."""

    tracing: TraceSender
    timeout_s: float = float("inf")
    """A handler that took so long counts as late."""

    def before(self, context: ConsumeContext) -> None:
        traced = [one for one in context.messages if self._is_traced(one)]
        if not traced:
            return
        region = traced[-1].properties.get(properties.MSG_REGION, NO_REGION)  # 5.x leaves it out of batches
        now_ms, request_id = self.tracing.now_ms(), self.tracing.new_id()
        group = unwrap(context.namespace, context.group)
        records = [
            Trace(
                trace.BEFORE,
                message.message_id,
                group=group,
                topic=message.topic,
                time_ms=now_ms,
                keys=_keys(message.keys),
                request_id=request_id,
                region=region,
                retry_times=message.reconsume_times,
            )
            for message in traced
        ]
        context.notes[NOTE] = records
        self.tracing.add(records)

    def after(self, context: ConsumeContext) -> None:
        records: Sequence[Trace] = context.notes.pop(NOTE, ())
        if not records:
            return
        now_ms = self.tracing.now_ms()
        took_ms = now_ms - records[0].time_ms
        outcome = outcome_of(context, took_ms >= self.timeout_s * 1000)
        self.tracing.add(
            [
                Trace(
                    trace.AFTER,
                    one.message_id,
                    group=one.group,
                    topic=one.topic,
                    time_ms=now_ms,
                    cost_ms=took_ms // len(context.messages),
                    is_success=bool(context.success),
                    keys=one.keys,
                    request_id=one.request_id,
                    region=one.region,
                    outcome=outcome,
                )
                for one in records
            ]
        )

    def _is_traced(self, message: MessageExt) -> bool:
        return message.properties.get(properties.TRACE_ON) != "false" and self.tracing.traces(message.topic)


def outcome_of(context: ConsumeContext, is_late: bool) -> TraceOutcome:
    if context.failure is not None and not isinstance(context.failure, RetryLater):
        return TraceOutcome.EXCEPTION
    if is_late:
        return TraceOutcome.TIME_OUT
    return TraceOutcome.SUCCESS if context.success else TraceOutcome.FAILED


def _keys(keys: Sequence[str]) -> str | None:
    return " ".join(keys) or None
