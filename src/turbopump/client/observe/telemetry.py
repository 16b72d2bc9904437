"""OpenTelemetry: a span and metrics for each try of a send and each call of a handler.

Names and attributes are those of OpenTelemetry's conventions for messaging and RocketMQ. The context of a
trace is sent in the message's properties (`traceparent` and so on), so that the work of a handler appears in
the trace of the send that caused it. Nothing happens unless it is switched on, by `telemetry=True` or by
giving these hooks; only then `opentelemetry` is imported.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from turbopump.client.errors import InvalidArgument, SendFailed
from turbopump.client.message import Message, MessageExt
from turbopump.client.observe.hooks import ConsumeContext, ConsumeHook, SendContext, SendHook
from turbopump.protocol import properties
from turbopump.protocol.errors import Refused

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

SCOPE = "turbopump"
SYSTEM = "rocketmq"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Buckets of durations, as the conventions advise."""

Attributes = dict[str, Any]


def send_hooks(is_on: bool) -> tuple[SendHook, ...]:
    """Returns the OpenTelemetry hook for a producer if `is_on` (its `telemetry` setting), else none."""
    return (SendTelemetry(),) if is_on else ()


def consume_hooks(is_on: bool) -> tuple[ConsumeHook, ...]:
    """Returns the OpenTelemetry hook for a push consumer if `is_on` (its `telemetry` setting), else none."""
    return (ConsumeTelemetry(),) if is_on else ()


def receive_hooks(is_on: bool) -> tuple[ConsumeHook, ...]:
    """Returns the OpenTelemetry hook for a pull consumer if `is_on` (its `telemetry` setting), else none."""
    return (ReceiveTelemetry(),) if is_on else ()


class SendTelemetry:
    """A hook for producers that records OpenTelemetry spans and metrics of sends.

    Use: `Producer("orders", hooks=[SendTelemetry()])`.

    Spans `send <topic>`; metrics `messaging.client.sent.messages` and `messaging.client.operation.duration`.
    The providers are the global ones unless others are given. A message that has the context of a trace in
    its properties already, such as one from an outbox, is sent in that trace, unless another one is going on.
    The messages of a batch have a span `create <topic>` each, whose context travels with the message; the
    span of their send is linked to all of them.
    """

    def __init__(
        self, tracer_provider: "TracerProvider | None" = None, meter_provider: "MeterProvider | None" = None
    ) -> None:
        self._open = _Instruments(tracer_provider, meter_provider)
        meter = self._open.meter
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that the producer tried to send."
        )
        self._duration = _seconds(
            meter, "messaging.client.operation.duration", "Duration of messaging operations of the client."
        )

    def create(self, message: Message) -> dict[str, str]:
        """Records a span `create` for a message of a batch; returns the properties that carry its context."""
        from opentelemetry import propagate, trace

        parent = None
        if not trace.get_current_span().get_span_context().is_valid:
            parent = propagate.extract(message.properties)
        attributes = _base("create", message.topic) | {"messaging.operation.type": "create"}
        span = self._open.tracer.start_span(
            f"create {message.topic}",
            context=parent,
            kind=trace.SpanKind.PRODUCER,
            attributes=attributes | _of_message(message.tags, message.keys, message.body),
        )
        carried: dict[str, str] = {}
        propagate.inject(carried, trace.set_span_in_context(span))
        span.end()
        return carried

    def before(self, context: SendContext) -> None:
        from opentelemetry import propagate, trace

        origins = [propagate.extract(one.properties) for one in context.messages]
        created = [trace.get_current_span(origin).get_span_context() for origin in origins]
        parent = None  # the current span
        if not trace.get_current_span().get_span_context().is_valid:
            parent = propagate.extract(context.properties)  # the span in which the message was made
        span = self._open.tracer.start_span(
            f"send {context.message.topic}",
            context=parent,
            kind=trace.SpanKind.PRODUCER,
            attributes=_of_send(context),
            links=[trace.Link(one) for one in created if one.is_valid],
        )
        propagate.inject(context.properties, trace.set_span_in_context(span))
        context.notes[SCOPE] = (span, time.perf_counter())

    def after(self, context: SendContext) -> None:
        if SCOPE not in context.notes:
            return
        span, began = context.notes.pop(SCOPE)
        figures = _target(context)
        if context.failure is not None:
            figures["error.type"] = _fail(span, context.failure)
        elif context.result is not None:
            span.set_attribute("messaging.message.id", context.result.message_id)
        self._sent.add(len(context.messages) or 1, figures)
        self._duration.record(time.perf_counter() - began, figures)
        span.end()


class ConsumeTelemetry:
    """A hook for push consumers that records OpenTelemetry spans and metrics of handler calls.

    Use: `Consumer("billing", hooks=[ConsumeTelemetry()])`.

    Spans `process <topic>`, current while the handler runs; metrics `messaging.client.consumed.messages` and
    `messaging.process.duration`. A span is linked to the sends of its messages. With `same_trace` the span of
    a single message is also a child of its send; without it each call of a handler begins a trace.
    """

    def __init__(
        self,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        *,
        same_trace: bool = True,
    ) -> None:
        self._open = _Instruments(tracer_provider, meter_provider)
        self._same_trace = same_trace
        meter = self._open.meter
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered to the handler."
        )
        self._duration = _seconds(meter, "messaging.process.duration", "Duration of processing operations.")

    def before(self, context: ConsumeContext) -> None:
        from opentelemetry import context as current
        from opentelemetry import propagate, trace

        origins = [propagate.extract(message.properties) for message in context.messages]
        sends = [trace.get_current_span(origin).get_span_context() for origin in origins]
        parent = origins[0] if self._same_trace and len(origins) == 1 and sends[0].is_valid else None
        span = self._open.tracer.start_span(
            f"process {context.messages[0].topic}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=_of_process(context),
            links=[trace.Link(send) for send in sends if send.is_valid],
        )
        token = current.attach(trace.set_span_in_context(span, parent))
        context.notes[SCOPE] = (span, token, time.perf_counter())

    def after(self, context: ConsumeContext) -> None:
        from opentelemetry import context as current

        if SCOPE not in context.notes:
            return
        span, token, began = context.notes.pop(SCOPE)
        current.detach(token)
        figures = _base("process", context.messages[0].topic)
        figures["messaging.consumer.group.name"] = context.group
        if not context.success:
            figures["error.type"] = _fail(span, context.failure or context.status)
        self._consumed.add(len(context.messages), figures)
        self._duration.record(time.perf_counter() - began, figures)
        span.end()


class ReceiveTelemetry:
    """A hook for pull consumers that records OpenTelemetry spans and metrics of received messages.

    Use: `PullConsumer("audit", hooks=[ReceiveTelemetry()])`.

    Spans `receive <topic>` for what a `poll` gives out, linked to the sends of its messages; the metric
    `messaging.client.consumed.messages`. What the program does with them is its own: it continues the trace
    of a message by `propagate.extract(message.properties)`.
    """

    def __init__(
        self, tracer_provider: "TracerProvider | None" = None, meter_provider: "MeterProvider | None" = None
    ) -> None:
        self._open = _Instruments(tracer_provider, meter_provider)
        self._received = self._open.meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were given to the program."
        )

    def before(self, context: ConsumeContext) -> None:
        """Does nothing: the messages are received already."""

    def after(self, context: ConsumeContext) -> None:
        from opentelemetry import propagate, trace

        origins = [propagate.extract(message.properties) for message in context.messages]
        sends = [trace.get_current_span(origin).get_span_context() for origin in origins]
        span = self._open.tracer.start_span(
            f"receive {context.messages[0].topic}",
            kind=trace.SpanKind.CLIENT,
            attributes=_of_process(context, "receive"),
            links=[trace.Link(send) for send in sends if send.is_valid],
        )
        figures = _base("receive", context.messages[0].topic)
        figures["messaging.consumer.group.name"] = context.group
        self._received.add(len(context.messages), figures)
        span.end()


class _Instruments:
    """The OpenTelemetry tracer and meter of Turbopump. Raises InvalidArgument if not installed."""

    def __init__(
        self, tracer_provider: "TracerProvider | None", meter_provider: "MeterProvider | None"
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise InvalidArgument(
                "telemetry needs OpenTelemetry, which is not installed: pip install 'turbopump[telemetry]'"
            ) from None
        self.tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self.meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)


def _seconds(meter: Any, name: str, description: str) -> Any:
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=SECONDS)


def _of_send(context: SendContext) -> Attributes:
    message = context.message
    found = _target(context) | {
        "messaging.operation.type": "send",
        "messaging.rocketmq.client_group": context.group,
        "messaging.destination.partition.id": f"{context.queue.broker}:{context.queue.id}",
        "messaging.rocketmq.message.type": context.kind.value,
    }
    if context.namespace:
        found["messaging.rocketmq.namespace"] = context.namespace
    if context.attempt > 1:
        found["turbopump.attempt"] = context.attempt
    if context.messages:
        return found | {
            "messaging.batch.message_count": len(context.messages),
            "messaging.message.body.size": sum(len(one.body) for one in context.messages),
        }
    if message.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if message_id := context.properties.get(properties.UNIQUE_KEY):
        found["messaging.message.id"] = message_id
    return found | _of_message(message.tags, message.keys, message.body)


def _of_process(context: ConsumeContext, operation: str = "process") -> Attributes:
    messages = context.messages
    found = _base(operation, messages[0].topic) | {
        "messaging.operation.type": operation,
        "messaging.consumer.group.name": context.group,
        "messaging.destination.partition.id": f"{context.queue.broker}:{context.queue.id}",
    }
    if context.namespace:
        found["messaging.rocketmq.namespace"] = context.namespace
    if len(messages) > 1:
        found["messaging.batch.message_count"] = len(messages)
        return found
    return found | _of_delivery(messages[0])


def _of_delivery(message: MessageExt) -> Attributes:
    found: Attributes = {"messaging.message.id": message.message_id}
    if message.reconsume_times:
        found["turbopump.reconsume_times"] = message.reconsume_times
    return found | _of_message(message.tags, message.keys, message.record.body)


def _of_message(tags: str | None, keys: Sequence[str], body: bytes | memoryview) -> Attributes:
    """Returns the span attributes of a message: tag, keys and the size of the body.

    For a received message it is the size of the stored body, perhaps compressed.
    """
    found: Attributes = {"messaging.message.body.size": len(body)}
    if tags:
        found["messaging.rocketmq.message.tag"] = tags
    if keys:
        found["messaging.rocketmq.message.keys"] = list(keys)
    return found


def _target(context: SendContext) -> Attributes:
    host, _, port = context.broker_address.rpartition(":")
    found = _base("send", context.message.topic) | {"server.address": host}
    return found | {"server.port": int(port)} if port.isdecimal() else found


def _base(operation: str, topic: str) -> Attributes:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }


def _fail(span: Any, failure: BaseException | str) -> str:
    """Marks a span as failed, and returns the value of its attribute `error.type`."""
    from opentelemetry.trace import Status, StatusCode

    kind = failure if isinstance(failure, str) else _kind(failure)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, str(failure)))
    if isinstance(failure, BaseException):
        span.record_exception(failure)
    return kind


def _kind(failure: BaseException) -> str:
    """Returns the `error.type` of a failure: its class, with the code of a refusal or of a failed send.

    There are few of them, because they become names of time series.
    """
    if isinstance(failure, Refused):
        return f"{type(failure).__name__}:{failure.code}"
    if isinstance(failure, SendFailed):
        return f"{type(failure).__name__}:{failure.code}"
    return type(failure).__qualname__
