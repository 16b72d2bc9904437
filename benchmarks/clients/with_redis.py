"""redis-py with hiredis, on streams: XADD, then XREADGROUP and XACK in a consumer group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio

from . import shapes
from .shapes import BODY, Backlog, Job, Measured

FIELDS = {b"body": BODY}
NEW = ">"
WAIT_MS = int(shapes.WAIT_S * 1000)


async def send_many(job: Job) -> Measured:
    return await awaited(job, shapes.IN_FLIGHT)


async def send_one(job: Job) -> Measured:
    return await awaited(job, 1)


async def awaited(job: Job, in_flight: int) -> Measured:
    """Uses a pool with a connection per waiting task: redis-py has one request in flight on each."""
    async with redis.asyncio.Redis.from_url(job.address) as client:
        await client.unlink(job.topic)
        add, topic = client.xadd, job.topic
        return await shapes.awaited(job, lambda: add(topic, FIELDS), in_flight)


def send_blocking(job: Job) -> Measured:
    with redis.Redis.from_url(job.address) as client:
        client.unlink(job.topic)
        return shapes.blocking(job, lambda: client.xadd(job.topic, FIELDS))


async def send_bulk(job: Job) -> Measured:
    return await pipelined(job, shapes.bulk)


async def fill(job: Job) -> Measured:
    return await pipelined(job, shapes.fill)


async def pipelined(job: Job, shape: Callable[..., Any]) -> Measured:
    async with redis.asyncio.Redis.from_url(job.address) as client:
        await client.unlink(job.topic)

        async def send_all(count: int) -> None:
            pipeline = client.pipeline(transaction=False)
            for _ in range(count):
                pipeline.xadd(job.topic, FIELDS)
            await pipeline.execute()

        measured: Measured = await shape(job, send_all)
        return measured


async def consume_async(job: Job) -> Measured:
    """Reads 32 messages, calls a handler for each, and acknowledges them by one XACK."""
    backlog = Backlog(job)

    async def handle(fields: dict[bytes, bytes]) -> None:
        backlog.count(fields[b"body"])

    async with redis.asyncio.Redis.from_url(job.address) as client:
        await client.xgroup_create(job.topic, job.group, id="0")
        while not backlog.over:
            for found in await client.xreadgroup(job.group, "me", {job.topic: NEW}, shapes.BATCH, WAIT_MS):
                messages = found[1]
                for _, fields in messages:
                    await handle(fields)
                await client.xack(job.topic, job.group, *[number for number, _ in messages])
    return backlog.result()


def consume_batch(job: Job) -> Measured:
    backlog = Backlog(job)
    with redis.Redis.from_url(job.address) as client:
        for messages in read(client, job, backlog):
            for _, fields in messages:
                backlog.count(fields[b"body"])
            client.xack(job.topic, job.group, *[number for number, _ in messages])
    return backlog.result()


def consume_one(job: Job) -> Measured:
    """Reads 32 messages and acknowledges each when it was handled."""
    backlog = Backlog(job)
    with redis.Redis.from_url(job.address) as client:
        for messages in read(client, job, backlog):
            for number, fields in messages:
                backlog.count(fields[b"body"])
                client.xack(job.topic, job.group, number)
    return backlog.result()


def read(client: redis.Redis, job: Job, backlog: Backlog) -> Any:
    client.xgroup_create(job.topic, job.group, id="0")
    while not backlog.over:
        for found in client.xreadgroup(job.group, "me", {job.topic: NEW}, shapes.BATCH, WAIT_MS):
            yield found[1]


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
