"""Measures transactions: the cost of a half message and its commit, and of 100,000 open transactions.

`python -m benchmarks.transactions [--only ours]`: our broker, Apache's 4.9.7 and 5.5.0 in one run.

    ended   4 connections, 16 transactions in flight on each: half message, its answer, commit, its answer
    open    half messages without an end; then a producer connects and is asked about each of them

The generator is Python and uses a core of its own, so that it limits the rate where a broker is faster:
compare the CPU time of the broker per transaction.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from typing import Any

import msgspec

from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.ids import parse_offset_id
from turbopump.remoting.client import Client
from turbopump.remoting.router import Request, Route, Router
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

from . import generator, report, servers
from .__main__ import write_results
from .compare import print_now
from .push import cpu_seconds
from .servers import Running

CONNECTIONS, IN_FLIGHT = 4, 16
GROUP, TOPIC = "bench", "TransactionBench"
COMMIT = "8"
ROUND_S = 10
TIMEOUT_S = 120.0


def main() -> None:
    options = arguments().parse_args()
    generator.build()
    rows = []
    for kind in options.only or list(servers.ALL):
        extra = {"transactionCheckInterval": str(1000 * ROUND_S), "transactionTimeOut": "1000"}
        server, _ = servers.start(kind, generator.CACHE / "transactions" / kind, extra=extra)
        try:
            row = asyncio.run(ended(server, options))
            if kind == servers.OURS:
                row |= asyncio.run(left_open(server, options))
            rows.append(row)
            print_now(f"{kind}: {row['per_s']:,.0f} transactions/s, {row['cpu_us']:.0f} us each")
        finally:
            server.kill()
    write_results("transactions", {"machine": report.machine(), "rows": rows}, markdown(rows, options))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--only", action="append", choices=servers.ALL, help="only this server (may be repeated)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the measured window")
    parser.add_argument(
        "--warm-up", type=float, default=8.0, help="seconds of load before it, in which a JVM compiles"
    )
    parser.add_argument("--size", type=int, default=256, help="bytes of a body")
    parser.add_argument("--open", type=int, default=100_000, help="number of half messages without an end")
    return parser


async def ended(server: Running, options: argparse.Namespace) -> dict[str, Any]:
    clients = [Client(SystemNetwork(), SystemClock()) for _ in range(CONNECTIONS)]
    try:
        await load(server, clients, options.size, options.warm_up)
        began, cpu_began = time.monotonic(), cpu_seconds(server.pids[0])
        count = await load(server, clients, options.size, options.seconds)
        seconds, cpu_s = time.monotonic() - began, cpu_seconds(server.pids[0]) - cpu_began
    finally:
        for client in clients:
            await client.close()
    return {"kind": server.kind, "per_s": count / seconds, "cpu_us": cpu_s / count * 1e6}


async def load(server: Running, clients: list[Client], size: int, seconds: float) -> int:
    until = time.monotonic() + seconds
    lanes = [lane(client, server.address, size, until) for client in clients for _ in range(IN_FLIGHT)]
    return sum(await asyncio.gather(*lanes))


async def lane(client: Client, address: str, size: int, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        sent = await half(client, address, size)
        ext = sent.ext or {}
        end = {
            "producerGroup": GROUP,
            "tranStateTableOffset": ext["queueOffset"],
            "commitLogOffset": str(parse_offset_id(ext["msgId"])[2]),
            "commitOrRollback": COMMIT,
            "fromTransactionCheck": "false",
            "msgId": ext.get("transactionId", ""),
        }
        answer = await client.call(address, Command(RequestCode.END_TRANSACTION, ext=end), TIMEOUT_S)
        if answer.code:
            raise generator.LoadFailed(f"the broker refused the end of a transaction: {answer.remark}")
        count += 1
    return count


_numbers = iter(range(10**9))


async def half(client: Client, address: str, size: int) -> Command:
    key = f"{next(_numbers):032X}"
    pairs = {"UNIQ_KEY": key, "WAIT": "true", "TRAN_MSG": "true", "PGROUP": GROUP}
    fields = {"a": GROUP, "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "4", "h": "0", "j": "0"}
    fields |= {"g": str(time.time_ns() // 1_000_000), "i": properties.pack(pairs), "k": "false", "m": "false"}
    request = Command(RequestCode.SEND_MESSAGE_V2, ext=fields, body=bytes(size) or b"x")
    answer = await client.call(address, request, TIMEOUT_S)
    if answer.code:
        raise generator.LoadFailed(f"the broker refused a half message: {answer.remark}")
    return answer


async def left_open(server: Running, options: argparse.Namespace) -> dict[str, Any]:
    """Measures memory per open transaction, and the round of checks that asks a producer about all."""
    client = Client(SystemNetwork(), SystemClock())
    try:
        before = server.memory_mib()["broker"]["anonymous"]
        for _ in range(options.open // 1000):
            await asyncio.gather(*(half(client, server.address, options.size) for _ in range(1000)))
        after = server.memory_mib()["broker"]["anonymous"]
    finally:
        await client.close()
    questions, cpu_s = await asked(server, options.open)
    return {
        "open": options.open,
        "bytes_each": (after - before) * 1024 * 1024 / options.open,
        "questions": questions,
        "question_cpu_us": cpu_s / questions * 1e6 if questions else 0.0,
    }


async def asked(server: Running, wanted: int) -> tuple[int, float]:
    """Connects a producer that answers no checks; returns how many come, and the broker's CPU seconds."""
    count = 0

    all_came = asyncio.Event()

    def question(request: Request[None]) -> None:
        nonlocal count
        count += 1
        if count == wanted:
            all_came.set()

    routes = {RequestCode.CHECK_TRANSACTION_STATE: Route(None, question)}
    client = Client(SystemNetwork(), SystemClock(), Router(routes))
    beat = {"clientID": "bench", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
    request = Command(RequestCode.HEART_BEAT, body=msgspec.json.encode(beat))
    try:
        cpu_began = cpu_seconds(server.pids[0])
        await client.call(server.address, request, TIMEOUT_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(all_came.wait(), 6 * ROUND_S)
        return count, cpu_seconds(server.pids[0]) - cpu_began
    finally:
        await client.close()


def markdown(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    names = ["broker", "transactions/s", "CPU us each"]
    lines = [[report.label(row["kind"]), f"{row['per_s']:,.0f}", f"{row['cpu_us']:.0f}"] for row in rows]
    text = f"Half message of {options.size} bytes and its commit, each answered.\n\n"
    text += f"{report.table(names, lines)}\n"
    for row in rows:
        if "open" in row:
            text += (
                f"\n{row['open']:,} open transactions: {row['bytes_each']:,.0f} bytes of memory each; asking "
                f"about one of them takes {row['question_cpu_us']:.0f} us.\n"
            )
    return text


if __name__ == "__main__":
    main()
