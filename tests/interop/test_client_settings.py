"""Settings of our client that change what it says: our servers and Apache's understand it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from turbopump import Message

from . import artifacts, clients, peers
from .conftest import StartOnce
from .our_client_stage import Old, Stage, must

EVERY = (peers.OURS, *artifacts.SERVERS)
BEATS_S = 2.0  # of heartbeats, one each quarter of a second


@pytest.fixture(params=EVERY)
def stage(request: pytest.FixtureRequest, start_once: StartOnce, tmp_path: Path) -> Stage:
    return Stage(clients.prefix(), start_once(request.param), tmp_path, Old("", 0.0))


def test_consumers_with_short_heartbeats_stay_known(stage: Stage) -> None:
    stage.settings |= {"use_heartbeat_v2": True, "heartbeat_broker_interval": 0.25}
    topic, group = stage.topic(queues=2), f"{stage.name}-readers"
    with stage.producer() as producer, stage.admin() as admin, stage.reading(topic, tags="a || b") as one:
        began_s = time.monotonic()
        must(lambda: time.monotonic() > began_s + BEATS_S)
        with stage.reading(topic, tags="a || b") as two:
            must(lambda: len(one.consumer.queues()) == len(two.consumer.queues()) == 1)
            must(lambda: len(admin.connections.consumers(group).connectionSet) == 2)
            for number in range(8):
                producer.send(Message(topic, str(number).encode(), tags="a"))
            must(lambda: sorted(one.texts + two.texts) == list("01234567"))
        must(lambda: len(one.consumer.queues()) == 2)
        told = admin.connections.consumers(group).subscriptionTable
        assert told[topic].subString == "a || b"


def test_gathered_sends_are_stored_one_by_one(stage: Stage) -> None:
    topic = stage.topic(queues=2)
    with stage.producer(auto_batch=True) as producer:
        sends = [producer.send_async(Message(topic, str(number).encode())) for number in range(20)]
        ids = [send.result().message_id for send in sends]
    found = {one.message_id: one.text for one in stage.stored(topic, 20)}
    assert [found[one] for one in ids] == [str(number) for number in range(20)]


def test_a_stream_is_known_by_its_mark(stage: Stage) -> None:
    topic = stage.topic(queues=1)
    with (
        stage.producer() as producer,
        stage.admin() as admin,
        stage.reading(topic, enable_stream_request_type=True) as got,
    ):
        producer.send(Message(topic, b"x"))
        got.wait("x")
        (member,) = admin.connections.consumers(f"{stage.name}-readers").connectionSet
        assert (member.clientId or "").endswith("@STREAM")


@pytest.mark.parametrize("use_tls", [False, True])
def test_clients_reach_servers_through_a_proxy(stage: Stage, use_tls: bool, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        if use_tls and stage.cluster.kind == peers.OURS:  # Apache's have it without being asked
            conf = {"tlsTestModeEnable": "true"}
            started = peers.start(peers.OURS, peers.place(tmp_path / "tls"), conf, namesrv_conf=conf)
            stage.cluster = stack.enter_context(started)
        _reach_through_a_proxy(stage, use_tls)


def _reach_through_a_proxy(stage: Stage, use_tls: bool) -> None:
    topic = stage.topic(queues=1)
    with proxy() as (port, asked):
        rule = {"0.0.0.0/0": {"addr": f"127.0.0.1:{port}", "username": "me", "password": "secret"}}
        stage.settings |= {
            "socks_proxy_config": json.dumps(rule),
            "use_tls": use_tls,
            "tls_auth_server": False,
        }
        with stage.producer() as producer, stage.reading(topic) as got:
            producer.send(Message(topic, b"through"))
            got.wait("through")
    assert {f"{host}:{port}" for host, port in asked} == {stage.cluster.namesrv, stage.cluster.broker_addr}


@contextmanager
def proxy() -> Iterator[tuple[int, list[tuple[str, int]]]]:
    """A SOCKS5 proxy that wants user and password, in a thread: its port, and who was asked for."""
    asked: list[tuple[str, int]] = []
    ready: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        server = await asyncio.start_server(lambda reader, writer: guest(reader, writer, asked), "127.0.0.1")
        enough = asyncio.Event()
        ready.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), enough))
        await enough.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    port, loop, enough = ready.result()
    try:
        yield port, asked
    finally:
        loop.call_soon_threadsafe(enough.set)
        thread.join()


async def guest(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[tuple[str, int]]
) -> None:
    async def text() -> bytes:
        return await reader.readexactly((await reader.readexactly(1))[0])

    await reader.readexactly(1)
    assert 2 in await text()
    writer.write(b"\x05\x02")
    await reader.readexactly(1)
    assert (await text(), await text()) == (b"me", b"secret")
    writer.write(b"\x01\x00")
    assert (await reader.readexactly(4))[3] == 1
    host = ".".join(map(str, await reader.readexactly(4)))
    port = int.from_bytes(await reader.readexactly(2), "big")
    asked.append((host, port))
    far_reader, far_writer = await asyncio.open_connection(host, port)
    writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
    await asyncio.gather(hand_on(reader, far_writer), hand_on(far_reader, writer))


async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
