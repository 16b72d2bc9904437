"""confluent-kafka's asyncio face: librdkafka called in a pool of threads, in batches that it collects first.

Left alone it looks for acknowledgements when the next batch leaves, or every 100 ms: whoever awaits each one
gets 900 sends/s with 64 in flight. So a task beside the senders polls, which makes that 17,000.
"""

from __future__ import annotations

import asyncio

from confluent_kafka import Message
from confluent_kafka.aio import AIOConsumer, AIOProducer

from . import shapes
from .shapes import BODY, Backlog, Job, Measured
from .with_confluent import POLL_S, PROMPT, settings, value_of

SHORTEST_S = 0.01  # how long a batch that is not full may wait


async def send_many(job: Job) -> Measured:
    return await awaited(job, shapes.IN_FLIGHT)


async def send_one(job: Job) -> Measured:
    return await awaited(job, 1)


async def awaited(job: Job, in_flight: int) -> Measured:
    """Batches of all that can be in flight: the best of what was tried."""
    producer = AIOProducer(settings(job, **PROMPT), batch_size=in_flight, buffer_timeout=SHORTEST_S)

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
    """By `consume`, as its documentation recommends: each `poll` would be a trip to a thread."""
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
