"""OpenTelemetry's own SDK watches sends and handlers, in a cluster in memory."""

import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.unit.admin.kit import NAMESRV, cluster
from tests.unit.client.listening import plain
from tests.unit.client.producing import producing, stored
from tests.unit.client.pulling import consumer as pulling

from turbopump.client.errors import InvalidArgument, SendFailed
from turbopump.client.message import Message, MessageExt
from turbopump.client.observe.telemetry import ConsumeTelemetry, ReceiveTelemetry, SendTelemetry
from turbopump.client.produce.producer import Producer
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.push.consumer import Consumer
from turbopump.testing.loop import run_virtual


class Watch:
    """What was exported."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])
        self.send = SendTelemetry(self.traces, self.meters)

    def consume(self, **more: Any) -> ConsumeTelemetry:
        return ConsumeTelemetry(self.traces, self.meters, **more)

    def spans(self, start: str = "") -> Sequence[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name.startswith(start)]

    def points(self, name: str) -> list[Any]:
        data = self._metrics.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


ORDER = Message("orders", b"paid!", tags="paid", keys=["A-1", "B-2"])


def test_a_send_and_its_processing_are_one_trace() -> None:
    watch = Watch()
    inner: list[int] = []

    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[watch.send]) as one:
            await town.create_topic("orders", 1)
            receipt = await one.send(ORDER)
            billing = plain(town, group="billing", hooks=[watch.consume()])

            @billing.on("orders")
            async def bill(message: MessageExt) -> None:
                inner.append(trace.get_current_span().get_span_context().span_id)

            async with billing:
                await town.clock.sleep(2)
            check(receipt.message_id)

    def check(message_id: str) -> None:
        (send,) = watch.spans("send")
        (process,) = watch.spans("process")
        assert (send.name, send.kind) == ("send orders", SpanKind.PRODUCER)
        assert (process.name, process.kind) == ("process orders", SpanKind.CONSUMER)
        assert process.context.trace_id == send.context.trace_id
        assert process.parent is not None
        assert process.parent.span_id == send.context.span_id
        assert [link.context.span_id for link in process.links] == [send.context.span_id]
        assert inner == [process.context.span_id]
        assert not trace.get_current_span().get_span_context().is_valid
        common = {
            "messaging.system": "rocketmq",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": "broker-a:0",
            "messaging.message.id": message_id,
            "messaging.message.body.size": 5,
            "messaging.rocketmq.message.tag": "paid",
            "messaging.rocketmq.message.keys": ("A-1", "B-2"),
        }
        assert send.attributes == common | {
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.rocketmq.client_group": "makers",
            "messaging.rocketmq.message.type": "normal",
            "server.address": "127.0.0.1",
            "server.port": send.attributes["server.port"],
        }
        assert process.attributes == common | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": "billing",
        }

    run_virtual(scene())


def test_figures_count_what_was_sent_and_consumed() -> None:
    watch = Watch()

    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[watch.send]) as one:
            await town.create_topic("orders", 1)
            await one.send(ORDER)
            await one.send_oneway(ORDER)
            await one.send_batch([ORDER] * 3)
            billing = plain(town, group="billing", hooks=[watch.consume()])

            @billing.on("orders", batch=5)
            async def bill(messages: list[MessageExt]) -> None: ...

            async with billing:
                await town.clock.sleep(2)

    run_virtual(scene())
    (sent,) = watch.points("messaging.client.sent.messages")
    (consumed,) = watch.points("messaging.client.consumed.messages")
    (operation,) = watch.points("messaging.client.operation.duration")
    (process,) = watch.points("messaging.process.duration")
    assert (sent.value, consumed.value, operation.count) == (5, 5, 3)
    assert process.count >= 1
    assert operation.explicit_bounds[:2] == (0.005, 0.01)
    assert "error.type" not in sent.attributes
    assert consumed.attributes["messaging.consumer.group.name"] == "billing"
    batch = [span for span in watch.spans("send") if "messaging.batch.message_count" in span.attributes]
    assert [span.attributes["messaging.batch.message_count"] for span in batch] == [3]


@pytest.mark.parametrize("auto", [False, True], ids=["send_batch", "auto_batch"])
def test_the_messages_of_a_batch_carry_their_context(auto: bool) -> None:
    watch = Watch()

    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[watch.send], auto_batch=auto) as one:
            await town.create_topic("orders", 1)
            if auto:
                await asyncio.gather(*(one.send(ORDER) for _ in range(3)))
            else:
                await one.send_batch([ORDER] * 3)
            billing = plain(town, group="billing", hooks=[watch.consume()])

            @billing.on("orders")
            async def bill(message: MessageExt) -> None: ...

            async with billing:
                await town.clock.sleep(2)

    run_virtual(scene())
    created = watch.spans("create orders")
    processed = watch.spans("process orders")
    (send,) = watch.spans("send")
    assert len(created) == len(processed) == 3
    assert {span.parent.span_id for span in processed if span.parent} == {
        span.context.span_id for span in created
    }
    assert {link.context.span_id for link in send.links} == {span.context.span_id for span in created}


def test_what_a_pull_consumer_gives_out_is_linked_to_its_sends() -> None:
    watch = Watch()

    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[watch.send]) as one:
            await town.create_topic("orders", 1)
            await one.send(ORDER)
            reader = pulling(town, hooks=[ReceiveTelemetry(watch.traces, watch.meters)])
            async with reader:
                assert len(await reader.poll(5)) == 1

    run_virtual(scene())
    (receive,) = watch.spans("receive")
    (send,) = watch.spans("send")
    assert (receive.name, receive.kind) == ("receive orders", SpanKind.CLIENT)
    assert [link.context.span_id for link in receive.links] == [send.context.span_id]
    (consumed,) = watch.points("messaging.client.consumed.messages")
    assert (consumed.value, consumed.attributes["messaging.operation.name"]) == (1, "receive")


def test_telemetry_is_a_setting_of_pull_consumers_too() -> None:
    consumer = PullConsumer("audit", topics=["orders"], name_servers=NAMESRV, telemetry=True)
    assert any(isinstance(hook, ReceiveTelemetry) for hook in consumer._hooks)


def test_failures_are_seen_on_both_sides() -> None:
    watch = Watch()

    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[watch.send]) as one:
            await town.create_topic("orders", 1)
            await one.send(ORDER)
            billing = plain(town, group="billing", hooks=[watch.consume()])
            tries: list[int] = []

            @billing.on("orders")
            async def bill(message: MessageExt) -> None:
                tries.append(message.reconsume_times)
                if len(tries) == 1:
                    raise ValueError("no such customer")

            async with billing:
                await town.clock.sleep(30)
            assert tries == [0, 1]
            await town.brokers[0].stop()
            with pytest.raises(SendFailed):
                await one.send(ORDER)

    run_virtual(scene())
    failed, again = watch.spans("process")
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert failed.events[0].attributes["exception.message"] == "no such customer"
    assert (again.status.status_code, again.attributes["turbopump.reconsume_times"]) == (StatusCode.UNSET, 1)
    assert again.attributes["messaging.destination.name"] == "orders"
    assert again.attributes["messaging.message.id"] == failed.attributes["messaging.message.id"]
    _, *lost = watch.spans("send")
    assert lost
    assert {span.status.status_code for span in lost} == {StatusCode.ERROR}
    assert any("error.type" in point.attributes for point in watch.points("messaging.client.sent.messages"))


def test_a_span_of_the_caller_is_the_parent_and_each_handler_may_begin_a_trace() -> None:
    watch = Watch()

    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[watch.send]) as one:
            await town.create_topic("orders", 1)
            with watch.traces.get_tracer("shop").start_as_current_span("checkout"):
                await one.send(ORDER)
            billing = plain(town, group="billing", hooks=[watch.consume(same_trace=False)])

            @billing.on("orders")
            def bill(message: MessageExt) -> None:
                assert threading.current_thread() is not threading.main_thread()
                with watch.traces.get_tracer("shop").start_as_current_span("ledger"):
                    pass

            async with billing:
                await town.clock.sleep(2)

    run_virtual(scene())
    (checkout,), (ledger,) = watch.spans("checkout"), watch.spans("ledger")
    (send,), (process,) = watch.spans("send"), watch.spans("process")
    assert send.parent is not None
    assert send.parent.span_id == checkout.context.span_id
    assert process.parent is None
    assert [link.context.span_id for link in process.links] == [send.context.span_id]
    assert ledger.parent is not None
    assert ledger.parent.span_id == process.context.span_id


def test_a_message_with_the_context_of_a_trace_is_sent_in_that_trace() -> None:
    watch = Watch()
    carried: dict[str, str] = {}

    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[watch.send]) as one:
            await town.create_topic("orders", 1)
            with watch.traces.get_tracer("shop").start_as_current_span("checkout"):
                propagate.inject(carried)
            await one.send(Message("orders", b"x", properties=carried))

    run_virtual(scene())
    (checkout,), (send,) = watch.spans("checkout"), watch.spans("send")
    assert send.parent is not None
    assert send.parent.span_id == checkout.context.span_id


def test_messages_of_others_have_no_context_and_are_traced_alone() -> None:
    watch = Watch()

    async def scene() -> None:
        async with cluster() as town, producing(town) as one:
            await town.create_topic("orders", 1)
            await one.send(ORDER)
            (message,) = await stored(town, "orders")
            assert "traceparent" not in message.properties
            billing = plain(town, group="billing", hooks=[watch.consume()])
            billing.subscribe("orders", lambda message: None)
            async with billing:
                await town.clock.sleep(2)

    run_virtual(scene())
    (process,) = watch.spans()
    assert (process.parent, len(process.links)) == (None, 0)


def test_it_is_off_unless_switched_on() -> None:
    def count(client: Any) -> int:
        return len(client._hooks)

    assert count(Producer("makers", name_servers=NAMESRV)) == 0
    assert count(Producer("makers", name_servers=NAMESRV, telemetry=True)) == 1
    assert count(Consumer("billing", name_servers=NAMESRV)) == 0
    assert count(Consumer("billing", name_servers=NAMESRV, telemetry=True)) == 1


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    Producer("makers", name_servers=NAMESRV)
    with pytest.raises(InvalidArgument, match=r"pip install 'turbopump\[telemetry\]'"):
        Producer("makers", name_servers=NAMESRV, telemetry=True)


def test_the_former_module_of_telemetry_works_with_a_warning() -> None:
    from turbopump.client import telemetry as former

    with pytest.warns(DeprecationWarning, match="client.observe.telemetry.SendTelemetry"):
        assert former.SendTelemetry is SendTelemetry
    with pytest.raises(AttributeError, match="no attribute 'none'"):
        getattr(former, "none")  # noqa: B009
