"""Message trace of sends and deliveries: hooks that turn each of them into trace records.

In: the contexts of `hooks.py`. Out: records for a `TraceSender`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turbopump.client.group.consume_status import RetryLater
from turbopump.client.message import Message, MessageExt, SendStatus
from turbopump.client.namespace import unwrap
from turbopump.client.observe import trace
from turbopump.client.observe.hooks import ConsumeContext, MessageKind, SendContext
from turbopump.client.observe.trace import Trace, TraceMessageKind, TraceOutcome
from turbopump.client.observe.trace_sender import NO_REGION, TraceSender, keys_text
from turbopump.client.produce.batches import split_result
from turbopump.protocol import properties

NOTE = "trace"  # key of the hooks' notes, from `before` to `after`

KINDS = {
    MessageKind.NORMAL: TraceMessageKind.NORMAL,
    MessageKind.DELAY: TraceMessageKind.DELAY,
    MessageKind.TRANSACTION: TraceMessageKind.HALF,
}


@dataclass
class SendTraceHook:
    """A send hook: adds a trace record for each stored message, as in Apache's client none for a failure."""

    sender: TraceSender

    def before(self, context: SendContext) -> None:
        context.notes[NOTE] = self.sender.now_ms()

    def after(self, context: SendContext) -> None:
        if (
            context.result is None
            or not context.is_traced
            or not self.sender.is_traced(context.message.topic)
        ):
            return
        began_ms: int = context.notes[NOTE]
        messages = context.messages or (context.message,)
        took_ms = (self.sender.now_ms() - began_ms) // len(messages)
        self.sender.add(list(self._records(context, messages, began_ms, took_ms)))

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
                keys=keys_text(message.keys),
                region=context.region or NO_REGION,
                tags=message.tags or None,
                store_host=context.broker_address,
                body_size=len(message.body) if context.messages else context.body_size,
                kind=KINDS[context.kind],
                offset_message_id=result.offset_message_id,
            )


@dataclass
class ConsumeTraceHook:
    """A consume hook: adds trace records before and after each handler call, if the broker allows traces."""

    sender: TraceSender
    timeout_s: float = float("inf")
    """A handler that took longer counts as timed out."""

    def before(self, context: ConsumeContext) -> None:
        traced = [one for one in context.messages if self._is_traced(one)]
        if not traced:
            return
        region = traced[-1].properties.get(properties.MSG_REGION, NO_REGION)  # 5.x leaves it out of batches
        now_ms, request_id = self.sender.now_ms(), self.sender.new_id()
        group = unwrap(context.namespace, context.group)
        records = [
            Trace(
                trace.BEFORE,
                message.message_id,
                group=group,
                topic=message.topic,
                time_ms=now_ms,
                keys=keys_text(message.keys),
                request_id=request_id,
                region=region,
                retry_times=message.reconsume_times,
            )
            for message in traced
        ]
        context.notes[NOTE] = records
        self.sender.add(records)

    def after(self, context: ConsumeContext) -> None:
        records: Sequence[Trace] = context.notes.pop(NOTE, ())
        if not records:
            return
        now_ms = self.sender.now_ms()
        took_ms = now_ms - records[0].time_ms
        outcome = outcome_of(context, took_ms >= self.timeout_s * 1000)
        self.sender.add(
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
        return message.properties.get(properties.TRACE_ON) != "false" and self.sender.is_traced(message.topic)


def outcome_of(context: ConsumeContext, is_late: bool) -> TraceOutcome:
    """Returns how a handler call ended, as an outcome of Apache's trace; `is_late`: it took too long."""
    if context.failure is not None and not isinstance(context.failure, RetryLater):
        return TraceOutcome.EXCEPTION
    if is_late:
        return TraceOutcome.TIME_OUT
    return TraceOutcome.SUCCESS if context.success else TraceOutcome.FAILED
