"""Measures a million delayed messages: lateness, cost per message, and the speed of a backlog.

`python -m benchmarks.delays [--messages N] [--only ours]`: our broker and Apache's 4.9.7 in one run.

    paced     all of them wait before the first is due; then they become due as fast as they were sent
    backlog   the broker is stopped until all of them are due, and started again

Lateness comes from the stored records: when the copy was stored, less when it was due.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turbopump.client.admin.admin import Admin
from turbopump.protocol.errors import Refused
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.protocol.record import Record
from turbopump.store.tools import dump

from . import generator, report, servers
from .__main__ import write_results
from .compare import print_now
from .push import cpu_seconds
from .servers import Running

POLL_S = 0.05
QUEUES = 4
MAX_SILENCE_S = 120.0  # between two deliveries


def main() -> None:
    options = arguments().parse_args()
    generator.build()
    home = generator.CACHE / "delays"
    extra = {"messageDelayLevel": f"{options.delay}s", "autoCreateTopicEnable": "true"}
    rows = []
    for kind in options.only or [servers.OURS, servers.BASELINE]:
        server, _ = servers.start(kind, home / kind, extra=extra)
        try:
            rows += [paced(server, options), backlog(server, options)]
            server.stop()
            for row in rows[-2:]:
                row |= lateness(server, row["topic"], options)
                print_now(
                    f"{kind} {row['load']}: {row['late_p99_ms']:,.0f} ms late at p99, "
                    f"{row['twice']} delivered twice"
                )
        finally:
            server.kill()
    write_results("delays", {"machine": report.machine(), "rows": rows}, markdown(rows, options))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delays", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--only", action="append", choices=servers.ALL, help="only this server (may be repeated)"
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=256, help="bytes of a body")
    parser.add_argument("--delay", type=int, default=120, help="seconds; sending all must take less")
    return parser


def paced(server: Running, options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    sent = send(server, "paced_", options)
    took = time.monotonic() - began
    if took > options.delay:
        raise generator.LoadFailed(
            f"sending must take less than --delay, got {took:.0f} s; give a longer --delay"
        )
    memory = server.memory_mib()["broker"]
    time.sleep(max(0.0, options.delay - took - 1))
    return {"load": "paced", "sent_per_s": sent} | drained(server, "paced_00000", options, memory)


def backlog(server: Running, options: argparse.Namespace) -> dict[str, Any]:
    sent = send(server, "backlog_", options)
    memory = server.memory_mib()["broker"]
    server.stop()
    time.sleep(options.delay)
    servers.restart(server)
    return {"load": "backlog", "sent_per_s": sent} | drained(server, "backlog_00000", options, memory)


def send(server: Running, topic: str, options: argparse.Namespace) -> float:
    shape = {"connections": 4, "in_flight": 64, "queues": QUEUES, "size": options.size}
    sample = server.load("send", count=options.messages, topic=topic, delay_level=1, **shape)
    if sample.errors:
        raise generator.LoadFailed(f"the broker refused {sample.errors} messages")
    return sample.rate


def drained(
    server: Running, topic: str, options: argparse.Namespace, memory: dict[str, float]
) -> dict[str, Any]:
    """Measures rate and CPU time from the first delivery to the last."""
    watch = asyncio.run(watched(server, topic, options.messages))
    first, last = watch[0], watch[-1]
    count = last[1] - first[1]
    seconds = last[0] - first[0]
    return {
        "kind": server.kind,
        "topic": topic,
        "waiting_rss_mib": memory["rss"],
        "waiting_anonymous_mib": memory["anonymous"],
        "per_s": count / seconds if seconds else 0.0,
        "cpu_us": (last[2] - first[2]) / count * 1e6 if count else 0.0,
    }


async def watched(server: Running, topic: str, messages: int) -> list[tuple[float, int, float]]:
    """Returns time, messages delivered and CPU seconds of the broker whenever more were delivered."""
    seen: list[tuple[float, int, float]] = []
    changed = time.monotonic()
    async with Admin([server.place.namesrv]) as admin:
        while not seen or seen[-1][1] < messages:
            now, count = time.monotonic(), await delivered(admin, server.address, topic)
            if count > (seen[-1][1] if seen else 0):
                seen.append((now, count, cpu_seconds(server.pids[0])))
                changed = now
            if now - changed > MAX_SILENCE_S:
                raise generator.LoadFailed(
                    f"{count} of {messages} were delivered, then none for {MAX_SILENCE_S:.0f} s"
                )
            await asyncio.sleep(POLL_S)
    return seen


async def delivered(admin: Admin, address: str, topic: str) -> int:
    try:
        stats = await admin.topics.stats_at(address, topic)
    except Refused:
        return 0
    return sum(offsets.maxOffset for offsets in stats.offsetTable.values())


def lateness(server: Running, topic: str, options: argparse.Namespace) -> dict[str, Any]:
    """Reads lateness, losses and duplicates from the store of the stopped broker, ours or Apache's."""
    due_ms = {
        record.unique_key: record.store_timestamp + 1000 * options.delay
        for record in records(server, SCHEDULE_TOPIC)
        if (record.property_map()["REAL_TOPIC"]) == topic
    }
    late: list[int] = []
    early = twice = 0
    for record in records(server, topic):
        due = due_ms.pop(record.unique_key, None)
        if due is None:
            twice += 1
            continue
        late.append(record.store_timestamp - due)
        early += late[-1] < 0
    late.sort()
    return {
        "delivered": len(late),
        "missing": len(due_ms),
        "twice": twice,
        "early": early,
        "late_p50_ms": late[len(late) // 2],
        "late_p99_ms": late[len(late) * 99 // 100],
        "late_max_ms": late[-1],
    }


def records(server: Running, topic: str) -> Iterator[Record]:
    commit_log = next(Path(server.place.store_dir).rglob("commitlog"))
    yield from dump(str(commit_log.parent), topic)


def markdown(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    names = ["broker", "load", "deliveries/s", "CPU us each", "late p50 / p99 / max ms"]
    names += ["early", "twice", "missing", "anonymous MiB while all wait"]
    lines = [
        [
            report.label(row["kind"]),
            row["load"],
            f"{row['per_s']:,.0f}",
            f"{row['cpu_us']:.1f}",
            f"{row['late_p50_ms']:,} / {row['late_p99_ms']:,} / {row['late_max_ms']:,}",
            *(f"{row[name]:,}" for name in ("early", "twice", "missing")),
            f"{row['waiting_anonymous_mib']:,.0f}",
        ]
        for row in rows
    ]
    what = f"{options.messages:,} messages of {options.size} bytes, delayed by {options.delay} s."
    return f"{what}\n\n{report.table(names, lines)}\n"


if __name__ == "__main__":
    main()
