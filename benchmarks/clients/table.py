"""Lists the clients that are compared, and formats the results as Markdown tables."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report import table

from . import shapes, systems
from .shapes import CONSUME_ASYNC, CONSUME_BATCH, CONSUME_ONE, SEND_BLOCKING, SEND_BULK, SEND_MANY, SEND_ONE

SEND_TARGET = 30_000
CONSUME_TARGET = 60_000


@dataclass(frozen=True)
class Client:
    """A Python client of a system; `shapes` are those that its library supports."""

    name: str
    label: str
    system: str
    module: str
    shapes: tuple[str, ...]
    package: str = ""
    acks: str = "1"


ALL = (*shapes.SENDS, *shapes.CONSUMES)
ASYNC_ONLY = (SEND_MANY, SEND_ONE, SEND_BULK, CONSUME_ASYNC, CONSUME_BATCH)
CALLBACKS = (SEND_MANY, SEND_BLOCKING, SEND_BULK, CONSUME_BATCH, CONSUME_ONE)
CLIENTS = (
    Client("turbopump", "**turbopump**", systems.OURS, "turbopump", ALL),
    Client("confluent", "confluent-kafka, acks=1", systems.KAFKA, "confluent", CALLBACKS, "confluent-kafka"),
    Client(
        "confluent-all",
        "confluent-kafka, acks=all",
        systems.KAFKA,
        "confluent",
        (SEND_MANY, SEND_BLOCKING, SEND_BULK),
        acks="all",
    ),
    Client(
        "confluent-aio",
        "confluent-kafka asyncio, acks=1",
        systems.KAFKA,
        "confluent_aio",
        (SEND_MANY, SEND_ONE, CONSUME_ASYNC),
    ),
    Client("aiokafka", "aiokafka, acks=1", systems.KAFKA, "aiokafka", ASYNC_ONLY, "aiokafka"),
    Client(
        "aiokafka-all",
        "aiokafka, acks=all",
        systems.KAFKA,
        "aiokafka",
        (SEND_MANY, SEND_ONE, SEND_BULK),
        acks="all",
    ),
    Client("redis", "redis-py", systems.REDIS, "redis", ALL, "redis"),
    Client("nats", "nats-py", systems.NATS, "nats", ASYNC_ONLY, "nats-py"),
)
HEADINGS = {
    SEND_MANY: f"Sends, {shapes.IN_FLIGHT} in flight, each acknowledgement awaited",
    SEND_ONE: "Sends, one in flight, awaited",
    SEND_BLOCKING: "Sends, blocking, one by one",
    SEND_BULK: f"Sends in bulk: {shapes.BULK:,} handed over and awaited together",
    CONSUME_ASYNC: "A backlog, `async def` handler",
    CONSUME_BATCH: f"A backlog, `def` handler or loop, batches of {shapes.BATCH}",
    CONSUME_ONE: "A backlog, `def` handler or loop, one by one",
}
TIMED = (SEND_MANY, SEND_ONE, SEND_BLOCKING)
TARGETS = {
    SEND_MANY: SEND_TARGET,
    CONSUME_ASYNC: CONSUME_TARGET,
    CONSUME_BATCH: CONSUME_TARGET,
    CONSUME_ONE: CONSUME_TARGET,
}


def markdown(result: dict[str, Any]) -> str:
    parts = [head(result), participants(result)]
    for shape, heading in HEADINGS.items():
        if found := of_shape(result, shape):
            parts += [f"**{heading}**", shape_table(shape, found)]
    return "\n\n".join([*parts, targets(result)]) + "\n"


def head(result: dict[str, Any]) -> str:
    about, runs = result["machine"], result["runs"]
    loads = [run["load_average"] for run in runs]
    others = [run["other_cores"] for run in runs]
    machine = f"{about['cores']} cores ({about['cpu']}), Linux {about['kernel']}, Python {about['python']}"
    load = f"{min(loads):.1f} to {max(loads):.1f} (median {statistics.median(loads):.1f})"
    shared = f"load average {load}; in the median window it took {statistics.median(others):.1f} cores"
    figures = f"medians of {rounds(result)} rounds, lowest and highest in brackets"
    return f"{machine}; {figures}. Other work shared the machine: {shared}."


def rounds(result: dict[str, Any]) -> int:
    """Smallest number of rounds behind any figure: `--more` may add them for some clients or shapes only."""
    return min(Counter((run["client"], run["shape"]) for run in result["runs"]).values())


def participants(result: dict[str, Any]) -> str:
    rows = []
    for name, durability in systems.DURABILITY.items():
        if name in result["missing"]:
            rows.append([name, "", "", f"not measured: {' '.join(result['missing'][name].split())[:200]}"])
        elif name in result["systems"]:
            packages = [client.package for client in CLIENTS if client.system == name and client.package]
            clients = ", ".join(f"{package} {result['packages'][package]}" for package in packages)
            rows.append([name, result["systems"][name], clients or "turbopump", durability])
    return table(["system", "server", "Python clients", "an acknowledgement means"], rows)


def of_shape(result: dict[str, Any], shape: str) -> dict[str, list[dict[str, Any]]]:
    """Runs of each client, in the order of CLIENTS."""
    runs = [run for run in result["runs"] if run["shape"] == shape]
    found = {client.name: [run for run in runs if run["client"] == client.name] for client in CLIENTS}
    return {name: of_client for name, of_client in found.items() if of_client}


def shape_table(shape: str, found: dict[str, list[dict[str, Any]]]) -> str:
    timed = ["p50 ms", "p99 ms"] if shape in TIMED else []
    header = ["client", "messages/s", *timed, "CPU us of the client", "of the server", "load average"]
    rows = []
    for client in CLIENTS:
        if client.name not in found:
            rows += [absent(client, shape, len(header))] if shape not in client.shapes else []
            continue
        runs = found[client.name]
        latencies = [f"{median(runs, name):.2f}" for name in ("p50_ms", "p99_ms")] if timed else []
        costs = [f"{median(runs, name):.1f}" for name in ("client_us", "server_us", "load_average")]
        rows.append([label(client, shape), spread(runs), *latencies, *costs])
    return table(header, [row for row in rows if row])


def absent(client: Client, shape: str, width: int) -> list[str]:
    """Row of a client whose library does not support a shape; empty for variants of a client."""
    if not client.package:
        return []
    return [label(client, shape), WHY_NOT[client.name, shape], *[""] * (width - 2)]


def label(client: Client, shape: str) -> str:
    """Name of a client; for consumers without the acknowledgement of sends."""
    return client.label.partition(",")[0] if shape in shapes.CONSUMES else client.label


WHY_NOT = {
    ("confluent", SEND_ONE): "see blocking",
    ("confluent", CONSUME_ASYNC): "see its asyncio client",
    ("aiokafka", SEND_BLOCKING): "asyncio only",
    ("aiokafka", CONSUME_ONE): "asyncio only",
    ("nats", SEND_BLOCKING): "asyncio only",
    ("nats", CONSUME_ONE): "asyncio only",
}


def spread(runs: Sequence[dict[str, Any]]) -> str:
    rates = [run["rate"] for run in runs]
    text = f"{statistics.median(rates):,.0f}"
    return text if len(rates) == 1 else f"{text} ({min(rates):,.0f}–{max(rates):,.0f})"


def median(runs: Sequence[dict[str, Any]], name: str) -> float:
    values: list[float] = [run[name] for run in runs]
    return statistics.median(values)


def targets(result: dict[str, Any]) -> str:
    rows = []
    for shape, wanted in TARGETS.items():
        if runs := of_shape(result, shape).get("turbopump"):
            rate, best = median(runs, "rate"), max(run["rate"] for run in runs)
            verdict = "met" if rate >= wanted else "**missed**"
            rows.append([HEADINGS[shape], f"{wanted:,}", f"{rate:,.0f} (best round {best:,.0f})", verdict])
    return table(["target for turbopump, 1 KiB, one process", "target/s", "measured/s", ""], rows)
