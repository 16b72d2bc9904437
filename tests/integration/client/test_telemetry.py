"""A trace through the blocking classes: their work is done in another thread, in the caller's context."""

import threading

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from turbopump import Consumer, Message, MessageExt, Producer
from turbopump.client.observe.telemetry import ConsumeTelemetry, SendTelemetry
from turbopump.testing import Cluster


def test_spans_of_blocking_clients_are_in_the_callers_trace(cluster: Cluster) -> None:
    exported = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    tracer = provider.get_tracer("shop")
    done = threading.Event()
    where = cluster.name_servers
    cluster.create_topic("traced")
    consumer = Consumer("tracing", name_servers=where, hooks=[ConsumeTelemetry(provider)])

    @consumer.on("traced")
    def handle(message: MessageExt) -> None:
        with tracer.start_as_current_span("ledger"):
            assert trace.get_current_span().is_recording()
        done.set()

    with Producer("makers", name_servers=where, hooks=[SendTelemetry(provider)]) as producer:
        with tracer.start_as_current_span("checkout"):
            producer.send(Message("traced", b"1"))
            producer.send_async(Message("traced", b"2")).result(10)
        with consumer:
            assert done.wait(30)
    spans = exported.get_finished_spans()
    assert {span.name for span in spans} >= {"checkout", "send traced", "process traced", "ledger"}
    assert len({span.context.trace_id for span in spans}) == 1
