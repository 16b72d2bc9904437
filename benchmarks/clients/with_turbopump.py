"""Ours: `turbopump.aio` for awaited shapes, `turbopump` for blocking ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import turbopump
from turbopump import Message, aio
from turbopump.client.settings import ConsumeFromWhere

from . import shapes
from .shapes import BODY, Backlog, Job, Measured

FROM_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def send_many(job: Job) -> Measured:
    return await awaited(job, shapes.IN_FLIGHT)


async def send_one(job: Job) -> Measured:
    return await awaited(job, 1)


async def awaited(job: Job, in_flight: int) -> Measured:
    async with aio.Producer("bench", name_servers=job.address) as producer:
        send, topic = producer.send, job.topic
        return await shapes.awaited(job, lambda: send(Message(topic, BODY)), in_flight)


def send_blocking(job: Job) -> Measured:
    with turbopump.Producer("bench", name_servers=job.address) as producer:
        return shapes.blocking(job, lambda: producer.send(Message(job.topic, BODY)))


async def send_bulk(job: Job) -> Measured:
    return await batches(job, shapes.bulk)


async def fill(job: Job) -> Measured:
    return await batches(job, shapes.fill)


async def batches(job: Job, shape: Callable[..., Any]) -> Measured:
    async with aio.Producer("bench", name_servers=job.address) as producer:
        await producer.send(Message(job.topic, BODY))  # creates the topic
        measured: Measured = await shape(
            job, lambda count: producer.send_batch([Message(job.topic, BODY) for _ in range(count)])
        )
        return measured


async def consume_async(job: Job) -> Measured:
    enough = asyncio.Event()
    backlog = Backlog(job, enough.set)
    consumer = aio.Consumer(job.group, name_servers=job.address, consume_from_where=FROM_FIRST)

    @consumer.on(job.topic)
    async def handle(message: turbopump.MessageExt) -> None:
        backlog.count(message.body)

    async with consumer:
        await enough.wait()
    return backlog.result()


def consume_batch(job: Job) -> Measured:
    def handle(backlog: Backlog, messages: list[turbopump.MessageExt]) -> None:
        for message in messages:
            backlog.count(message.body)

    return in_threads(job, handle, batch=shapes.BATCH)


def consume_one(job: Job) -> Measured:
    return in_threads(job, lambda backlog, message: backlog.count(message.body))


def in_threads(job: Job, handle: Callable[[Backlog, Any], None], **options: Any) -> Measured:
    enough = threading.Event()
    backlog = Backlog(job, enough.set)
    consumer = turbopump.Consumer(job.group, name_servers=job.address, consume_from_where=FROM_FIRST)
    consumer.subscribe(job.topic, lambda given: handle(backlog, given), **options)
    with consumer:
        enough.wait()
    return backlog.result()


SHAPES = {
    shapes.SEND_MANY: send_many,
    shapes.SEND_ONE: send_one,
    shapes.SEND_BLOCKING: send_blocking,
    shapes.SEND_BULK: send_bulk,
    shapes.FILL: fill,
    shapes.CONSUME_ASYNC: consume_async,
    shapes.CONSUME_BATCH: consume_batch,
    shapes.CONSUME_ONE: consume_one,
}
