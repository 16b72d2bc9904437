"""Measures our Python producer: awaited acknowledgements, some in flight, one process.

`python -m benchmarks.client_sends [--messages N] [--in-flight 64] [--loop asyncio]` starts a broker of ours
in a process of its own; `--name-servers` measures against another cluster. Prints sends per second, the
median and the 99th percentile of the latency, and the CPU time of the client per message.

Imports public names alone, so that `benchmarks.paired` can run it with another checkout of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from turbopump.aio import Message, Producer

TOPIC = "ClientSends"
BODY = bytes(range(256)) * 4
ADDRESS = "  name server "
LOOPS = ("asyncio", "uvloop")


def main() -> None:
    options = arguments().parse_args()
    with contextlib.ExitStack() as stack:
        where = options.name_servers or stack.enter_context(our_broker())
        factory = loop_factory(options.loop)
        with asyncio.Runner(loop_factory=factory) as runner:
            for _ in range(options.rounds):
                work = measure(where, options.messages, options.in_flight, options.switches)
                print(runner.run(work), flush=True)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_sends", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="number of messages, of 1 KiB each")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop", choices=LOOPS, default="uvloop", help="event loop")
    parser.add_argument(
        "--with", dest="switches", action="append", default=[], metavar="SETTING", help="e.g. enable_trace"
    )
    parser.add_argument("--name-servers", help="address of a cluster that is running already")
    return parser


async def measure(name_servers: str, messages: int, in_flight: int, switches: Sequence[str] = ()) -> str:
    settings: dict[str, Any] = dict.fromkeys(switches, True)
    async with Producer("bench", name_servers=name_servers, **settings) as producer:
        await run(producer, messages // 10, in_flight)  # warm-up: routes, connections, the broker's files
        began, spent = time.perf_counter(), time.process_time()
        latencies = await run(producer, messages, in_flight)
        seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    latencies.sort()
    return (
        f"{messages / seconds:,.0f} sends/s, p50 {statistics.median(latencies) * 1e3:.2f} ms, "
        f"p99 {latencies[len(latencies) * 99 // 100] * 1e3:.2f} ms, {cpu / messages * 1e6:.2f} us CPU each"
    )


async def run(producer: Producer, messages: int, in_flight: int) -> list[float]:
    """Sends from `in_flight` tasks, each of which awaits one answer before its next message."""
    latencies: list[float] = []
    note, now, send = latencies.append, time.perf_counter, producer.send

    async def one_after_the_other(count: int) -> None:
        for _ in range(count):
            began = now()
            await send(Message(TOPIC, BODY, "bench"))
            note(now() - began)

    await asyncio.gather(*(one_after_the_other(messages // in_flight) for _ in range(in_flight)))
    return latencies


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@contextlib.contextmanager
def our_broker() -> Iterator[str]:
    """Runs a broker of ours and yields the address of its name server."""
    program = str(Path(sys.executable).with_name("turbopump"))
    with tempfile.TemporaryDirectory() as home:
        command = [
            program,
            "up",
            "--data",
            home,
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
            "--log-dir",
            "-",
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield _name_server(server)
        finally:
            server.kill()
            server.wait()


def _name_server(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith(ADDRESS):
            return line.removeprefix(ADDRESS).strip()
    raise RuntimeError("the broker ended before it printed the address of its name server")


if __name__ == "__main__":
    main()
