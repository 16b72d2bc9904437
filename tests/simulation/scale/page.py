"""`python -m tests.simulation.scale.page`: writes the tables of docs/scale.md from docs/results/scale*.json.

A table stands between `<!-- scale: NAME -->` and `<!-- /scale -->`; the text around it is written by hand.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "scale.md"
RESULTS = ROOT / "docs" / "results"
BLOCK = re.compile(r"(<!-- scale: ([a-z-]+) -->\n).*?(<!-- /scale -->)", re.DOTALL)
NAMES = {"103": "registrations of brokers (103)", "105": "routes (105)"}
KIB = 1024

Figures = Mapping[str, Any]


def main() -> int:
    PAGE.write_text(current(PAGE.read_text(), results()))
    return 0


def results() -> dict[str, Figures]:
    """Returns the stored figures by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("scale*.json"))}


def current(text: str, found: Mapping[str, Figures]) -> str:
    """Returns the text of the page with its tables made anew; raises KeyError for an unknown table."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{TABLES[match[2]](found)}\n\n{match[3]}", text)


def cluster(found: Mapping[str, Figures]) -> str:
    figures = found["scale"]
    shape = figures["shape"]
    rows = [
        ("brokers (masters)", _count(shape["brokers"])),
        ("topics of applications", _count(shape["topics"])),
        (
            "their brokers",
            f"{shape['min_spread']} to {shape['max_spread']}, {shape['queues']} queues on each",
        ),
        ("name servers", _count(shape["name_servers"])),
        ("clients", f"{_count(shape['clients'])} in groups of {shape['group_size']}, half of them consumers"),
        ("topics of a group", f"{shape['min_used']} to {shape['max_used']}"),
        ("retry topics", f"{_count(figures['topics'] - shape['topics'])}, one for each group of consumers"),
        ("*routes*: pairs of topic and broker", _count(figures["routes"])),
        ("*uses*: pairs of client and topic", _count(figures["routes_used"])),
        ("brokers that die together", _count(shape["deaths"])),
    ]
    return _table(("what", "how many"), rows)


def steady(found: Mapping[str, Figures]) -> str:
    servers = found["scale"]["life"]["steady"]
    seconds = servers[0]["virtual_s"] * len(servers)
    rows = []
    for code, name in NAMES.items():
        counts = [server["by_code"][code] for server in servers]
        requests = sum(one["requests"] for one in counts)
        read, written = (sum(one[key] for one in counts) for key in ("bytes_in", "bytes_out"))
        rows.append(
            (
                name,
                _number(requests / seconds),
                f"{_number(read / seconds / KIB)} KiB",
                f"{_number(written / seconds / KIB)} KiB",
                _number(read / requests),
                _number(written / requests),
            )
        )
    head = (
        "requests",
        "a second",
        "received a second",
        "sent a second",
        "bytes of one",
        "bytes of its answer",
    )
    return _table(head, rows)


def cold_start(found: Mapping[str, Figures]) -> str:
    figures = found["scale"]["cold_start"]
    first = figures["first"]
    requests = [sum(one["requests"] for one in server["by_code"].values()) for server in first]
    sent = [sum(one["bytes_out"] for one in server["by_code"].values()) for server in first]
    rows = [
        ("connections to the busiest name server", _count(max(server["connections"] for server in first))),
        ("requests to the busiest name server", _count(max(requests))),
        ("its answers", f"{_number(max(sent) / KIB / KIB)} MiB"),
        ("routes that were asked for before a broker had registered", _count(figures["routes_missing"])),
        ("all clients have all routes after", _seconds(figures["agreed_s"])),
    ]
    return _table(("all brokers and clients start at the same moment", "figure"), rows)


def agreement(found: Mapping[str, Figures]) -> str:
    life = found["scale"]["life"]
    rows = [
        (
            text,
            _count(life[word]["routes_changed"]),
            _seconds(life[word]["name_servers_s"]),
            _seconds(life[word]["half_of_routes_s"]),
            _seconds(life[word]["all_routes_s"]),
        )
        for word, text in (
            ("killed", "processes killed: connections are reset"),
            ("returned", "the killed brokers start again"),
            ("isolated", "machines fall silent: no connection is reset"),
            ("rejoined", "the silent machines are back"),
        )
        if word in life
    ]
    return _table(
        ("event", "uses concerned", "name servers know", "half of the uses agree", "all agree"), rows
    )


def restarts(found: Mapping[str, Figures]) -> str:
    figures = found["scale-heartbeats"]
    rows = [
        (
            f"name server {number} was replaced",
            _seconds(one["complete_s"]),
            _count(one["refused"]),
            ", ".join(f"{100 * asked / sum(one['routes_asked']):.0f} %" for asked in one["routes_asked"]),
        )
        for number, one in enumerate(figures["life"]["restarts"], 1)
    ]
    return _table(
        ("after", "its table is complete after", "routes not found", "share of the requests of each"), rows
    )


def heartbeats(found: Mapping[str, Figures]) -> str:
    life = found["scale-heartbeats"]["life"]
    rows = [
        ("quiet", _number(life["heartbeats_per_s"])),
        ("a broker was killed", _number(life["killed"]["heartbeats_per_s"])),
        ("a broker fell silent", _number(life["isolated"]["heartbeats_per_s"])),
    ]
    return _table(("time", "heartbeats a second at the brokers that live"), rows)


def process(found: Mapping[str, Figures]) -> str:
    runs = [found[name] for name in sorted(found) if name.startswith("scale-process")]
    runs.sort(key=lambda one: one["kind"] != "ours")
    names = ["Turbopump" if one["kind"] == "ours" else f"Apache {one['kind']}" for one in runs]
    lines: tuple[tuple[str, str, str], ...] = (
        ("memory, empty", "memory_empty_mib", "MiB"),
        ("memory, all brokers registered", "memory_registered_mib", "MiB"),
        (f"memory, with {_count(runs[0]['clients'])} clients", "memory_last_mib", "MiB"),
        ("CPU of one registration", "registration_cpu_ms", "ms"),
        ("CPU of one route", "route_cpu_us", "µs"),
    )
    rows = [(text, *(f"{_number(one[key])} {unit}" for one in runs)) for text, key, unit in lines]
    measured = (f"{one['steady_cpu_percent']} % at {one['steady_routes_per_s']:.0f} a second" for one in runs)
    rows.append(("CPU of a core while clients polled routes", *measured))
    planned = (f"{_number(_percent(found['scale'], one))} %" for one in runs)
    rows.append(("the same at the rate of the quiet time above", *planned))
    return _table(("name server process", *names), rows)


def _percent(planned: Figures, run: Figures) -> float:
    """Returns the CPU at the plan's rate of routes, from that at the rate of the run."""
    servers = planned["life"]["steady"]
    asked = sum(one["by_code"]["105"]["requests"] for one in servers) / len(servers)
    rate = asked / servers[0]["virtual_s"]
    return float(run["steady_cpu_percent"] * rate / run["steady_routes_per_s"])


TABLES: dict[str, Callable[[Mapping[str, Figures]], str]] = {
    "cluster": cluster,
    "steady": steady,
    "cold-start": cold_start,
    "agreement": agreement,
    "restarts": restarts,
    "heartbeats": heartbeats,
    "process": process,
}


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    rule = "|" + "---|" * len(head)
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def _count(number: int) -> str:
    return f"{number:,}"


def _seconds(seconds: float | None) -> str:
    return "at once" if seconds is None else f"{seconds:.1f} s"


def _number(number: float) -> str:
    """Returns three digits of a number, or all before the point."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


if __name__ == "__main__":
    sys.exit(main())
