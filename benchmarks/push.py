"""Measures how fast a backlog reaches Apache's Java push consumer, and the broker's CPU time per message.

`python -m benchmarks.push [--only ours] [--messages N]`: the same client and the same messages with our
broker and Apache's in one run. The first fifth of the backlog warms the client's JVM up and is not counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.interop import artifacts

from . import generator, report, servers
from .__main__ import write_results
from .compare import print_now
from .servers import Running

CLIENT = "4.9.8"
PROGRAM = Path(__file__).parent / "java" / "PushCount.java"
TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = arguments().parse_args()
    generator.build()
    home = generator.CACHE / "push"
    rows = []
    for kind in options.only or servers.ALL:
        server, _ = servers.start(kind, home / kind)
        try:
            rows += [push(server, options.messages, number) for number in range(options.rounds)]
        finally:
            server.kill()
    write_results("push", {"machine": report.machine(), "rows": rows}, markdown(rows))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.push", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=servers.ALL, help="only this server (may be repeated)"
    )
    parser.add_argument(
        "--messages", type=int, default=400_000, help="number of messages, of 1 KiB each, in four queues"
    )
    parser.add_argument("--rounds", type=int, default=2)
    return parser


def push(server: Running, messages: int, number: int) -> dict[str, Any]:
    topic, warm_up = f"push{number}_", messages // 5
    server.load("send", count=messages, topic=topic, in_flight=64, connections=4)
    command = [artifacts.tool("java", "push consumer"), "-cp", artifacts.client_jars(CLIENT), str(PROGRAM)]
    given = [server.place.namesrv, f"{topic}00000", f"group{number}", str(warm_up), str(messages - warm_up)]
    client = subprocess.Popen(
        [*command, *given], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert client.stdout is not None
    seconds = spent = 0.0
    for line in client.stdout:
        if line.startswith("warm"):
            spent = -cpu_seconds(server.pids[0])
        elif line.startswith("milliseconds"):
            spent += cpu_seconds(server.pids[0])
            seconds = int(line.split()[1]) / 1000
    if client.wait() or not seconds:
        raise generator.LoadFailed(
            f"the push consumer ended with {client.returncode} before it got {messages} messages"
        )
    count = messages - warm_up
    row = {"kind": server.kind, "rate": count / seconds, "cpu_us": spent / count * 1e6}
    print_now(
        f"{server.kind}: {row['rate']:,.0f} messages/s pushed, {row['cpu_us']:.2f} us of the broker each"
    )
    return row


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [[report.label(row["kind"]), f"{row['rate']:,.0f}", f"{row['cpu_us']:.2f}"] for row in rows]
    return report.table(["broker", "messages/s pushed", "CPU us of the broker per message"], lines) + "\n"


if __name__ == "__main__":
    main()
