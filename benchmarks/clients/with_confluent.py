"""confluent-kafka: librdkafka with delivery callbacks, called from one thread."""

from __future__ import annotations

from functools import partial
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from . import shapes
from .shapes import BODY, Backlog, Job, Measured, Window, now

POLL_S = 0.1

# The best settings found for few messages in flight: two requests, one fills while the other is away. The
# default, 5 ms of lingering, suits bulk sends: 9,000 sends/s here. Without a limit on requests each message
# is a request of its own: 11,000.
PROMPT = {"linger.ms": 0, "max.in.flight": 2}


def settings(job: Job, **more: object) -> dict[str, Any]:
    return {"bootstrap.servers": job.address, "acks": job.acks, **more}


def send_many(job: Job) -> Measured:
    """Keeps `IN_FLIGHT` messages in flight; delivery callbacks send the next."""
    producer = Producer(settings(job, **PROMPT))
    in_flight(producer, job.topic, job.warm_s)
    window = Window(job.pids)
    latencies = in_flight(producer, job.topic, job.seconds)
    return window.close(len(latencies), latencies)


def in_flight(producer: Producer, topic: str, seconds: float) -> list[float]:
    latencies: list[float] = []
    sent, end = 0, now() + seconds

    def delivered(began: float, error: object, _message: Message) -> None:
        assert error is None, error
        latencies.append(now() - began)

    while now() < end:
        while sent - len(latencies) < shapes.IN_FLIGHT:
            producer.produce(topic, BODY, on_delivery=partial(delivered, now()))
            sent += 1
        producer.poll(POLL_S)
    producer.flush()
    return latencies


def send_blocking(job: Job) -> Measured:
    producer = Producer(settings(job, **PROMPT))
    errors: list[object] = []

    def send() -> None:
        producer.produce(job.topic, BODY, on_delivery=lambda error, _message: errors.append(error))
        producer.flush()
        assert errors.pop() is None

    return shapes.blocking(job, send)


async def send_bulk(job: Job) -> Measured:
    return await shapes.bulk(job, partial(handed_over, Producer(settings(job)), job.topic))


async def fill(job: Job) -> Measured:
    return await shapes.fill(job, partial(handed_over, Producer(settings(job)), job.topic))


async def handed_over(producer: Producer, topic: str, count: int) -> None:
    """Uses the defaults, with which the producer lingers 5 ms to make larger batches."""
    failed: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    for _ in range(count):
        producer.produce(topic, BODY, on_delivery=delivered)
    producer.flush()
    assert not failed, failed


def consume_batch(job: Job) -> Measured:
    consumer, backlog = subscribed(job), Backlog(job)
    while not backlog.over:
        for message in consumer.consume(shapes.BATCH, shapes.WAIT_S):
            backlog.count(value_of(message))
    consumer.close()
    return backlog.result()


def consume_one(job: Job) -> Measured:
    consumer, backlog = subscribed(job), Backlog(job)
    while not backlog.over:
        message = consumer.poll(shapes.WAIT_S)
        if message is not None:
            backlog.count(value_of(message))
    consumer.close()
    return backlog.result()


def subscribed(job: Job) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": job.address, "group.id": job.group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([job.topic])
    return consumer


def value_of(message: Message) -> bytes:
    assert message.error() is None, message.error()
    value: bytes = message.value()
    return value


SHAPES = {
    shapes.SEND_MANY: send_many,
    shapes.SEND_BLOCKING: send_blocking,
    shapes.SEND_BULK: send_bulk,
    shapes.FILL: fill,
    shapes.CONSUME_BATCH: consume_batch,
    shapes.CONSUME_ONE: consume_one,
}
