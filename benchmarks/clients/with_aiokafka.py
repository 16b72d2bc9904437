"""aiokafka: Kafka's protocol in Python, its record batches in compiled code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from . import shapes
from .shapes import BODY, Backlog, Job, Measured


async def send_many(job: Job) -> Measured:
    return await awaited(job, shapes.IN_FLIGHT)


async def send_one(job: Job) -> Measured:
    return await awaited(job, 1)


async def awaited(job: Job, in_flight: int) -> Measured:
    async with producing(job) as producer:
        send, topic = producer.send_and_wait, job.topic
        return await shapes.awaited(job, lambda: send(topic, BODY), in_flight)


async def send_bulk(job: Job) -> Measured:
    return await handed_over(job, shapes.bulk)


async def fill(job: Job) -> Measured:
    return await handed_over(job, shapes.fill)


async def handed_over(job: Job, shape: Callable[..., Any]) -> Measured:
    async with producing(job) as producer:

        async def send_all(count: int) -> None:
            await asyncio.gather(*[await producer.send(job.topic, BODY) for _ in range(count)])

        measured: Measured = await shape(job, send_all)
        return measured


def producing(job: Job) -> AIOKafkaProducer:
    acks = "all" if job.acks == "all" else int(job.acks)
    return AIOKafkaProducer(bootstrap_servers=job.address, acks=acks)


async def consume_async(job: Job) -> Measured:
    backlog = Backlog(job)

    async def handle(message: Any) -> None:
        backlog.count(message.value)

    async with consuming(job) as consumer:
        async for message in consumer:
            await handle(message)
            if backlog.over:
                break
    return backlog.result()


async def consume_batch(job: Job) -> Measured:
    backlog = Backlog(job)
    async with consuming(job) as consumer:
        while not backlog.over:
            found = await consumer.getmany(timeout_ms=int(shapes.WAIT_S * 1000), max_records=shapes.BATCH)
            for messages in found.values():
                for message in messages:
                    backlog.count(message.value)
    return backlog.result()


def consuming(job: Job) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        job.topic, bootstrap_servers=job.address, group_id=job.group, auto_offset_reset="earliest"
    )


SHAPES = {
    shapes.SEND_MANY: send_many,
    shapes.SEND_ONE: send_one,
    shapes.SEND_BULK: send_bulk,
    shapes.FILL: fill,
    shapes.CONSUME_ASYNC: consume_async,
    shapes.CONSUME_BATCH: consume_batch,
}
