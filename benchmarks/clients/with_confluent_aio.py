"""confluent-kafka's asyncio client: librdkafka, called in a pool of threads with batches of messages.

By itself it checks for acknowledgements when the next batch leaves, or every 100 ms: awaiting each one gives
900 sends/s with 64 in flight. So a task polls while others send, which raises that to 17,000.
"""

from __future__ import annotations

import asyncio

from confluent_kafka import Message
from confluent_kafka.aio import AIOConsumer, AIOProducer

from . import shapes
from .shapes import BODY, Backlog, Job, Measured
from .with_confluent import POLL_S, PROMPT, settings, value_of

MAX_BATCH_WAIT_S = 0.01  # of a batch that is not full


async def send_many(job: Job) -> Measured:
    return await awaited(job, shapes.IN_FLIGHT)


async def send_one(job: Job) -> Measured:
    return await awaited(job, 1)


async def awaited(job: Job, in_flight: int) -> Measured:
    """Sends batches as large as the number in flight, the best setting found."""
    producer = AIOProducer(settings(job, **PROMPT), batch_size=in_flight, buffer_timeout=MAX_BATCH_WAIT_S)

    async def send() -> None:
        await (await producer.produce(job.topic, BODY))

    async def poll() -> None:
        while True:
            await producer.poll(POLL_S)

    polling = asyncio.create_task(poll())
    measured = await shapes.awaited(job, send, in_flight)
    polling.cancel()
    await producer.close()
    return measured


async def consume_async(job: Job) -> Measured:
    """Reads by `consume`, as its documentation recommends: each `poll` would be a call in a thread."""
    backlog = Backlog(job)
    consumer = AIOConsumer(
        {"bootstrap.servers": job.address, "group.id": job.group, "auto.offset.reset": "earliest"}
    )
    await consumer.subscribe([job.topic])

    async def handle(message: Message) -> None:
        backlog.count(value_of(message))

    while not backlog.over:
        for message in await consumer.consume(shapes.BATCH, shapes.WAIT_S):
            await handle(message)
    await consumer.close()
    return backlog.result()


SHAPES = {
    shapes.SEND_MANY: send_many,
    shapes.SEND_ONE: send_one,
    shapes.CONSUME_ASYNC: consume_async,
}
