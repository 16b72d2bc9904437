"""Timers as a kind of message, and the handler of requests to recall one (code 370).

In: the properties of a message. Out: whether it has to wait, where, and the handle by which its producer can
recall it. Delivery is the subject of `timers.py`.
"""

from collections.abc import Callable

from turbopump.broker.acknowledgement import not_safe
from turbopump.broker.config import TimerRules
from turbopump.broker.delay import timer_records
from turbopump.broker.delay.level_records import TIMERS
from turbopump.broker.produce.kinds import IncomingMessage, Placement
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.errors import Refused
from turbopump.protocol.handles import RecallHandle, read_handle
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.headers.send import RecallMessageRequest
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.remoting.router import Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appended, Draft

# 128 bytes are left for the properties that the wheel adds.
MAX_PROPERTIES = properties.MAX_BYTES - 128

SUCCESS_REMARK = "not set any response code"  # Apache's remark on a recall that succeeds


class TimerIntake:
    """The `WaitingKind` of timers: messages with a delivery time of their own, in rmq_sys_wheel_timer."""

    topic = TIMER_TOPIC
    properties = frozenset(TIMERS)

    def __init__(
        self, store: Storage, rules: Callable[[], TimerRules], broker: str, clock: Clock, precision_ms: int
    ) -> None:
        self._store = store
        self._rules = rules
        self._broker = broker
        self._clock = clock
        self._precision_ms = precision_ms
        self.on_postponed: Callable[[], None] = lambda: None
        """Called after a message was appended to the queue of timers."""

    def check(self, pairs: dict[str, str]) -> None:
        """Raises Refused if the delivery time in the properties of a new half message is not allowed."""
        timer_records.due_ms(pairs, self._clock.now_ms(), self._rules())

    def claim(self, message: IncomingMessage) -> Placement | None:
        return self.postpone(message.pairs, message.topic, message.queue_id)

    def claim_committed(
        self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool
    ) -> Placement | None:
        if is_promised:
            due_ms = timer_records.promised_ms(pairs, self._clock.now_ms(), self._rules())
            return self._postponed(pairs, due_ms, topic, queue_id)
        try:
            return self.postpone(pairs, topic, queue_id)
        except Refused:  # its time was allowed when it was sent, but is not any more: it is delivered now
            return None

    def stored(self, draft: Draft, appended: Appended) -> None:
        self.on_postponed()

    def batch_refusal(self, pairs: dict[str, str]) -> str | None:
        if not any(name in pairs for name in TIMERS):
            return None
        return "a message of a batch cannot have a time of its own; send it alone"

    def postpone(self, pairs: dict[str, str], topic: str, queue_id: int) -> Placement | None:
        """Changes `pairs` to the properties of a waiting timer and returns its place; None: it does not wait.

        None leaves the properties unchanged. Raises Refused when the time is not allowed.
        """
        due_ms = timer_records.due_ms(pairs, self._clock.now_ms(), self._rules())
        return self._postponed(pairs, due_ms, topic, queue_id)

    def _postponed(
        self, pairs: dict[str, str], due_ms: int | None, topic: str, queue_id: int
    ) -> Placement | None:
        if due_ms is None:
            return None
        unique_key = pairs.get(properties.UNIQUE_KEY, "")
        exact = timer_records.postpone(pairs, due_ms, topic, queue_id, self._precision_ms)
        handle = RecallHandle(topic, self._broker, str(due_ms), unique_key)
        return Placement(
            self._store.queues.queue(TIMER_TOPIC, 0),
            suffix=exact,
            max_properties=MAX_PROPERTIES,
            fields={"recallHandle": handle.pack()},
        )


class RecallHandler:
    """Handles recalls of timers: stores each as a message in the wheel slot of the timer that it recalls."""

    def __init__(
        self,
        topics: TopicTable,
        intake: TimerIntake,
        writer: MessageWriter,
        rules: Callable[[], TimerRules],
        writable: Callable[[], bool],
        clock: Clock,
        broker: str,
        region: str,
    ) -> None:
        self._topics = topics
        self._intake = intake
        self._writer = writer
        self._rules = rules
        self._writable = writable
        self._clock = clock
        self._broker = broker
        self._region = region

    def routes(self) -> Routes:
        return {RequestCode.RECALL_MESSAGE: Route(RecallMessageRequest, self.recall)}

    async def recall(self, request: Request[RecallMessageRequest]) -> Command:
        region = {"MSG_REGION": self._region}
        try:
            handle = self._checked(request.header)
            offset, _, size = self._store_recall(handle, request)
        except Refused as refused:
            return reply(request.command, refused.code, refused.remark, region)
        safety = await self._writer.acknowledgement.safe(offset + size)
        if not safety.is_safe:
            remark = not_safe("the recall", safety.code)
            return reply(request.command, ResponseCode.SYSTEM_ERROR, remark, region)
        ext = {"msgId": handle.unique_key, **region}
        return reply(request.command, ResponseCode.SUCCESS, SUCCESS_REMARK, ext)

    def _checked(self, header: RecallMessageRequest) -> RecallHandle:
        """Returns the decoded handle of a recall, or raises Refused, by Apache's checks in their order."""
        if not self._rules().recall:
            raise Refused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not self._writable():
            raise Refused(ResponseCode.NO_PERMISSION, "recall failed, broker service not available")
        if self._topics.find(header.topic) is None:
            remark = f"recall failed, the topic[{header.topic}] not exist"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        handle = read_handle(header.recallHandle)
        if handle is None:
            raise _illegal("recall handle is invalid")
        if handle.topic != header.topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker != self._broker:
            raise _illegal("recall failed, broker service not available")
        now_ms = self._clock.now_ms()
        if not handle.due_ms.isdecimal() or not now_ms < int(handle.due_ms) <= self._latest_ms(now_ms):
            raise _illegal("recall failed, timestamp invalid")
        return handle

    def _latest_ms(self, now_ms: int) -> int:
        return now_ms + 1000 * self._rules().max_delay_s

    def _store_recall(self, handle: RecallHandle, request: Request[RecallMessageRequest]) -> Appended:
        pairs: dict[str, str] = {}
        now_ms, group = self._clock.now_ms(), request.header.producerGroup or ""
        due_ms = int(handle.due_ms)
        timer_records.recall(pairs, handle.topic, handle.unique_key, group, due_ms, now_ms)
        postponed = self._intake.postpone(pairs, handle.topic, 0)
        if postponed is None:
            raise _illegal("recall failed, timestamp invalid")
        try:
            packed = properties.pack(pairs).encode()
        except ValueError:
            raise _illegal("recall handle is invalid") from None
        if properties.looks_lost(packed):
            raise _illegal("recall handle is invalid: too many NULs")
        draft = Draft(
            queue=postponed.queue,
            body=timer_records.RECALL_BODY,
            properties=packed + postponed.suffix,
            flag=0,
            sys_flag=0,
            born_timestamp=now_ms,
            born_host=request.connection.peer_host,
            tags_code=java_hash(timer_records.RECALL_TAG),
            unique_key=handle.unique_key,
        )
        appended = self._writer.append_counted([draft])[0]
        self._intake.on_postponed()
        return appended


def _illegal(remark: str) -> Refused:
    return Refused(ResponseCode.ILLEGAL_OPERATION, remark)
