"""Measures rows through the transaction ledger: half messages in frames, one decision and one end per batch.

`python -m benchmarks.ledger [--rows N] [--batches N]` starts our broker in its own process; Apache's has no
ledger. The frames are made before the clock runs, so the figures are the broker's.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from turbopump.client.produce.ledger import Ledger, Written
from turbopump.protocol import batch, properties
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.ledger import LedgerSendRequest

from . import generator, report, servers
from .__main__ import write_results
from .push import cpu_seconds
from .servers import Running

TOPIC, QUEUES = "LedgerBenchmark", 4
IN_FLIGHT = 4  # frames
ANSWER_S = 120.0


def main() -> None:
    options = arguments().parse_args()
    generator.build()
    server, _ = servers.start(servers.OURS, generator.CACHE / "ledger")
    try:
        row = asyncio.run(measured(server, options))
        row["rss_mib"] = server.memory_mib()["broker"]["rss"]
    finally:
        server.kill()
    write_results("ledger", {"machine": report.machine(), "rows": [row]}, markdown(row, options))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--frame", type=int, default=500, help="rows in a frame")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    return parser


async def measured(server: Running, options: argparse.Namespace) -> dict[str, Any]:
    pid = server.pids[0]
    spent: dict[str, float] = {}
    async with Ledger("benchmark", [server.place.namesrv], timeout=ANSWER_S) as ledger:
        topic = TopicConfig(topicName=TOPIC, readQueueNums=QUEUES, writeQueueNums=QUEUES)
        await ledger.admin.topics.create(server.address, topic)
        await ledger.open("run")
        body = frame(options)
        for number in range(options.batches):
            for name, work in (("send", send), ("decide", decide), ("end", end)):
                began, cpu = time.monotonic(), cpu_seconds(pid)
                await work(ledger, server, number, body, options)
                spent[name] = spent.get(name, 0.0) + time.monotonic() - began
                spent[f"{name}_cpu"] = spent.get(f"{name}_cpu", 0.0) + cpu_seconds(pid) - cpu
    return spent | {"rows": options.rows * options.batches, "batches": options.batches}


def frame(options: argparse.Namespace) -> bytes:
    messages = []
    for number in range(options.frame):
        pairs = {
            properties.REAL_TOPIC: TOPIC,
            properties.REAL_QUEUE_ID: str(number % QUEUES),
            properties.TAGS: "paid",
            properties.UNIQUE_KEY: f"7F0000010001{number:020X}",
            properties.WAIT: "true",
        }
        messages.append((0, b"x" * options.size, properties.pack(pairs).encode()))
    return batch.join(messages)


async def send(ledger: Ledger, server: Running, number: int, body: bytes, options: Any) -> None:
    header = LedgerSendRequest(id=ledger.id, batch=number, run="run", token=f"t{number}", home=ledger.home)
    left = iter(range(options.rows // options.frame))

    async def some() -> None:
        for _ in left:
            await ledger.admin.asking.ask(server.address, RequestCode.LEDGER_SEND, header, body)

    await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))


async def decide(ledger: Ledger, server: Running, number: int, body: bytes, options: Any) -> None:
    await ledger.decide(number, [Written(f"t{number}", options.rows, (ledger.home,))])


async def end(ledger: Ledger, server: Running, number: int, body: bytes, options: Any) -> None:
    ended = await ledger.end(number)
    if ended.behind:
        raise generator.LoadFailed(f"every row must be committed, got {ended}")


def markdown(row: dict[str, Any], options: argparse.Namespace) -> str:
    seconds = row["send"] + row["decide"] + row["end"]
    cpu = row["send_cpu"] + row["decide_cpu"] + row["end_cpu"]
    lines = [
        ["half messages", f"{row['rows'] / row['send']:,.0f}", f"{row['send_cpu'] / row['rows'] * 1e6:.1f}"],
        ["commit", f"{row['rows'] / row['end']:,.0f}", f"{row['end_cpu'] / row['rows'] * 1e6:.1f}"],
        ["both", f"{row['rows'] / seconds:,.0f}", f"{cpu / row['rows'] * 1e6:.1f}"],
    ]
    head = (
        f"{row['rows']:,} rows of {options.size} bytes in {row['batches']} batches, "
        f"frames of {options.frame}; a decision takes {row['decide'] / row['batches'] * 1000:.0f} ms.\n\n"
    )
    return head + report.table(["step", "rows/s", "CPU us of the broker per row"], lines) + "\n"


if __name__ == "__main__":
    main()
