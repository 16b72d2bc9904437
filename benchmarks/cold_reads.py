"""`python -m benchmarks.cold_reads`: measures how consumers of old messages slow down producers.

Fills a store and evicts its files from the page cache. Then one producer sends message after message, first
alone, then while consumers read the old messages from the disk: once as the broker does it (a worker thread
reads what is not in memory), once with reads that block the event loop until the disk answers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from turbopump.broker.config import BrokerConfig, ListenConfig, NameServerConfig, WaitLimits
from turbopump.broker.consume import pull
from turbopump.broker.server import Broker
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.runtime.network import SystemNetwork
from turbopump.store.config import StoreConfig

from .generator import CACHE

MIB = 1 << 20
FILE_SIZE = 64 * MIB
QUEUES = 4
BODY = b"a" * 1024
CASES = {"no reads": (False, False), "in a worker thread": (False, True), "on the loop": (True, True)}
TIMEOUT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_reads", description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of the old messages")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement")
    parser.add_argument("--consumers", type=int, default=QUEUES)
    parser.add_argument("--serve", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--blocking", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(Path(options.serve), options.blocking))
    else:
        asyncio.run(measure(options))


async def measure(options: argparse.Namespace) -> None:
    home = CACHE / "cold"
    shutil.rmtree(home, ignore_errors=True)
    try:
        async with broker(home, blocking=False) as address:
            await fill(address, options.mib)
        print(f"{'reads':18} {'sends/s':>8} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'read MiB/s':>11}")
        for name, (blocking, reads) in CASES.items():
            cold = evict(home)
            async with broker(home, blocking) as address:
                figures = await run(address, options, reads)
            print(f"{name:18} {figures}  ({cold:.0%} of the log was not in memory)")
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def run(address: str, options: argparse.Namespace, reads: bool) -> str:
    read = [0]
    readers = [
        asyncio.create_task(consume(address, queue_id % QUEUES, read))
        for queue_id in range(options.consumers if reads else 0)
    ]
    began = time.perf_counter()
    times = await produce(address, options.seconds)
    seconds = time.perf_counter() - began
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    quantiles = statistics.quantiles(times, n=100)
    figures = (quantiles[49], quantiles[98], max(times))
    shown = " ".join(f"{1000 * figure:8.2f}" for figure in figures)
    return f"{len(times) / seconds:8,.0f} {shown} {read[0] / MIB / seconds:11.1f}"


async def produce(address: str, seconds: float) -> list[float]:
    """Sends one message after the other; returns how long each took."""
    times: list[float] = []
    async with connected() as client:
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            await call(client, address, send("new", 0), BODY)
            times.append(time.perf_counter() - began)
    return times


async def consume(address: str, queue_id: int, read: list[int]) -> None:
    """Reads a queue from its first message, and again after its last."""
    offset = 0
    async with connected() as client:
        while True:
            answer = await call(client, address, pull_request("old", queue_id, offset))
            offset = int((answer.ext or {})["nextBeginOffset"])
            read[0] += len(answer.body)
            if not answer.body:
                offset = 0


async def fill(address: str, mib: int) -> None:
    count = mib * MIB // (len(BODY) + 200)
    async with connected() as client:
        for first in range(0, count, 256):
            sends = [
                call(client, address, send("old", number % QUEUES), BODY)
                for number in range(first, first + 256)
            ]
            await asyncio.gather(*sends)


async def call(client: Client, address: str, ext: dict[str, str], body: bytes = b"") -> Command:
    code = RequestCode.SEND_MESSAGE_V2 if body else RequestCode.PULL_MESSAGE
    answer = await client.call(address, Command(code, ext=ext, body=body), TIMEOUT_S)
    assert answer.code in (0, 19, 21), answer
    return answer


def send(topic: str, queue_id: int) -> dict[str, str]:
    fields = {"a": "PG", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(queue_id), "f": "0"}
    fields |= {"g": "1700000000000", "h": "0", "j": "0", "k": "false", "m": "false"}
    return fields | {"i": "UNIQ_KEY\x017F0000012B674E0E2F2A000000000001\x02WAIT\x01true\x02"}


def pull_request(topic: str, queue_id: int, offset: int) -> dict[str, str]:
    fields = {"consumerGroup": "slow", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset)}
    fields |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
    return fields | {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    client = Client(SystemNetwork(), SystemClock())
    try:
        yield client
    finally:
        await client.close()


# The broker, in its own process


@contextlib.asynccontextmanager
async def broker(home: Path, blocking: bool) -> AsyncIterator[str]:
    arguments = ["-m", "benchmarks.cold_reads", "--serve", str(home), *(["--blocking"] if blocking else [])]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def serve(home: Path, blocking: bool) -> None:
    if blocking:
        pull.MAX_FETCHES = 0
    config = BrokerConfig(
        listening=ListenConfig(bind_address="127.0.0.1", advertised_address="127.0.0.1", port=0),
        name_servers=NameServerConfig(),
        waits=WaitLimits(enabled=False),
        store=StoreConfig(root_dir=str(home), commit_log_file_size=FILE_SIZE),
    )
    workers = SystemWorkers()
    server = Broker(config, SystemNetwork(), SystemClock(), SystemDisk(), workers, Chance())
    await server.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    print(server.address, flush=True)
    await stop.wait()
    await server.stop()
    workers.close()


def evict(home: Path) -> float:
    """Evicts log and queues from the page cache; returns the share of the log that is no longer there."""
    gone = total = 0
    for path in files(home):
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if "commitlog" in str(path):
                for at in range(0, os.fstat(descriptor).st_size, MIB):
                    total += 1
                    gone += is_gone(descriptor, at)
        finally:
            os.close(descriptor)
    return gone / total


def is_gone(descriptor: int, at: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT) == 0
    except BlockingIOError:
        return True


def files(home: Path) -> Iterator[Path]:
    for part in ("commitlog", "consumequeue"):
        yield from (path for path in (home / part).rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
