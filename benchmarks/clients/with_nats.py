"""nats-py on JetStream, file storage: published and acknowledged, then consumed with an ack for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NothingCame
from nats.js import JetStreamContext
from nats.js.api import DeliverPolicy, StorageType
from nats.js.errors import NotFoundError

from . import shapes
from .shapes import BODY, Backlog, Job, Measured


async def send_many(job: Job) -> Measured:
    return await awaited(job, shapes.IN_FLIGHT)


async def send_one(job: Job) -> Measured:
    return await awaited(job, 1)


async def awaited(job: Job, in_flight: int) -> Measured:
    async with empty_stream(job) as stream:
        publish, subject = stream.publish, job.topic
        return await shapes.awaited(job, lambda: publish(subject, BODY), in_flight)


async def send_bulk(job: Job) -> Measured:
    return await handed_over(job, shapes.bulk)


async def fill(job: Job) -> Measured:
    return await handed_over(job, shapes.fill)


async def handed_over(job: Job, shape: Callable[..., Any]) -> Measured:
    async with empty_stream(job) as stream:

        async def send_all(count: int) -> None:
            await asyncio.gather(*[await stream.publish_async(job.topic, BODY) for _ in range(count)])

        measured: Measured = await shape(job, send_all)
        return measured


async def consume_async(job: Job) -> Measured:
    """Uses a push subscription; a message is acknowledged when the callback returns."""
    enough = asyncio.Event()
    backlog = Backlog(job, enough.set)

    async def handle(message: Msg) -> None:
        backlog.count(message.data)

    async with connected(job) as stream:
        await stream.subscribe(job.topic, cb=handle, durable=job.group, deliver_policy=DeliverPolicy.ALL)
        await enough.wait()
    return backlog.result()


async def consume_batch(job: Job) -> Measured:
    """Uses a pull subscription, as its documentation recommends; `ack` publishes and does not wait."""
    backlog = Backlog(job)
    async with connected(job) as stream:
        subscription = await stream.pull_subscribe(job.topic, durable=job.group)
        while not backlog.over:
            with contextlib.suppress(NothingCame):
                for message in await subscription.fetch(shapes.BATCH, timeout=shapes.WAIT_S):
                    backlog.count(message.data)
                    await message.ack()
    return backlog.result()


@contextlib.asynccontextmanager
async def empty_stream(job: Job) -> AsyncIterator[JetStreamContext]:
    async with connected(job) as stream:
        with contextlib.suppress(NotFoundError):
            await stream.delete_stream(job.topic)
        await stream.add_stream(name=job.topic, subjects=[job.topic], storage=StorageType.FILE)
        yield stream


@contextlib.asynccontextmanager
async def connected(job: Job) -> AsyncIterator[JetStreamContext]:
    connection = await nats.connect(job.address)
    try:
        yield connection.jetstream()
    finally:
        await connection.close()


SHAPES = {
    shapes.SEND_MANY: send_many,
    shapes.SEND_ONE: send_one,
    shapes.SEND_BULK: send_bulk,
    shapes.FILL: fill,
    shapes.CONSUME_ASYNC: consume_async,
    shapes.CONSUME_BATCH: consume_batch,
}
