"""Traces walks of the Python client: `python -m scripts.tree.client_walks --src PATH` prints JSON.

The client runs in the main thread, which is traced; its servers are a process of their own. Called by
`walks.py` with the tree to be traced first on PYTHONPATH.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from scripts.tree.peer import HOST, SEND, Peer, broker_port, free_port, message, up
from scripts.tree.recorder import QUIET_S, ROUNDS, Recorder, Walk, common, package_of

MAX_QUIET_WAIT_S = 2.0
TOPIC = "walks-client"
BODY = b"x" * 1024


def main() -> None:
    package = package_of(sys.argv)
    recorder = Recorder(str(package))
    with tempfile.TemporaryDirectory(prefix="turbopump-walks-") as home, servers(Path(home)) as ports:
        walks = asyncio.run(traced(recorder, *ports))
    print(json.dumps({name: walk.figures(package) for name, walk in walks.items()}))


@contextlib.contextmanager
def servers(home: Path) -> Iterator[tuple[int, int]]:
    """Ports of a name server and a broker."""
    namesrv_port = free_port()
    command = [sys.executable, "-m", "turbopump", *up(home, namesrv_port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield namesrv_port, broker_port(namesrv_port)
    finally:
        process.terminate()
        process.wait()


async def traced(recorder: Recorder, namesrv_port: int, port: int) -> dict[str, Walk]:
    from turbopump.aio import Consumer, Message, MessageExt, Producer

    name_servers = f"{HOST}:{namesrv_port}"
    peer = Peer(port)
    handled = asyncio.Event()

    async def send() -> None:
        await producer.send(Message(TOPIC, BODY, "TagA"))

    async def delivered() -> None:
        handled.clear()
        await asyncio.to_thread(peer.ask, SEND, BODY, **message(TOPIC))
        await handled.wait()

    consumer = Consumer("walks-consumer", name_servers=name_servers)

    @consumer.on(TOPIC)
    async def handle(_message: MessageExt) -> None:
        handled.set()

    recorder.install()
    async with Producer("walks-producer", name_servers=name_servers) as producer:
        sends = await walk(recorder, send)
    async with consumer:
        deliveries = await walk(recorder, delivered)
    recorder.uninstall()
    return {"client: producer.send to its answer": sends, "client: delivery to a push consumer": deliveries}


async def walk(recorder: Recorder, act: Callable[[], Awaitable[None]]) -> Walk:
    """Repeats a scenario. The first round, which finds routes and opens connections, does not count."""
    rounds = []
    for _ in range(ROUNDS + 1):
        await settle(recorder)
        recorder.begin()
        await act()
        await settle(recorder)
        rounds.append(recorder.end())
    return common(rounds[1:])


async def settle(recorder: Recorder) -> None:
    """Waits until the client has nothing more to do."""
    deadline = time.monotonic() + MAX_QUIET_WAIT_S
    await asyncio.sleep(QUIET_S)
    while recorder.quiet_s < QUIET_S and time.monotonic() < deadline:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(QUIET_S / 3)


if __name__ == "__main__":
    main()
