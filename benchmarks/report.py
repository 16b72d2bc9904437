"""Formats results as Markdown tables, for the terminal and the documentation."""

from __future__ import annotations

import os
import platform
import statistics
from pathlib import Path
from typing import Any

from turbopump.compiled import twins

from . import compare
from .servers import BASELINE, OURS

NOTE = (
    "CPU = all threads of the broker process (ours: name server included) over the measured window; "
    "rates and latencies depend on other users of the cores, so compare CPU per message. "
    "Ratios are taken within a round, then the median over rounds."
)


def machine() -> dict[str, Any]:
    model = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), ""
    )
    return {
        "cpu": model.partition(": ")[2],
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sends": sends(),
        "load_average_at_start": os.getloadavg()[0],
    }


def sends() -> str:
    """Names the implementation that serves plain sends, which decides more than anything else."""
    return "compiled" if twins() is not None else "pure Python"


def markdown(result: dict[str, Any]) -> str:
    parts = [loads(result), footprint(result), targets(result)]
    about = result["machine"]
    head = (
        f"{about['cores']} cores ({about['cpu']}), Linux {about['kernel']}, Python {about['python']}, "
        f"sends {about.get('sends', 'pure Python')}; "
        f"{result['plan']['rounds']} rounds of {result['plan']['duration_s']} s windows, "
        f"load average at the start {about['load_average_at_start']:.1f}."
    )
    return "\n\n".join([head, NOTE, *filter(None, parts)]) + "\n"


def loads(result: dict[str, Any]) -> str:
    kinds = list(result["plan"]["kinds"])
    header = [
        "load",
        *(label(kind) for kind in kinds),
        *(f"{label(k)} / 4.9.7" for k in kinds if k != BASELINE),
    ]
    rows = []
    for cell in result["cells"]:
        ratios = cell["work_per_cpu_second_vs_baseline"]
        row = [cell["name"], *(figures(cell["servers"][kind]) for kind in kinds)]
        row += [f"{ratios[k]:.2f}x" if k in ratios else "" for k in kinds if k != BASELINE]
        rows.append(row)
    return table(header, rows)


def figures(server: dict[str, Any]) -> str:
    low, high = min(server["cpu_us_all"]), max(server["cpu_us_all"])
    cpu = f"{server['cpu_us']:.1f} us ({low:.1f}–{high:.1f})"
    text = f"{server['rate'] / 1000:.1f} k/s, {cpu}, load {server['load_average']:.1f}"
    return text + (f", **{server['errors']} errors**" if server["errors"] else "")


def footprint(result: dict[str, Any]) -> str:
    kinds = list(result["plan"]["kinds"])
    idle, after = result["memory_idle_mib"], result["memory_after_load_mib"]

    def memory(of: dict[str, Any], kind: str, what: str) -> str:
        return " + ".join(f"{process[what]:.0f} ({name})" for name, process in of[kind].items())

    rows = [
        ["start to first acknowledgement, s"]
        + [f"{statistics.median(result['startup_s'][kind]):.2f}" for kind in kinds],
        ["resident after start, MiB"] + [memory(idle, kind, "rss") for kind in kinds],
        ["resident after the load, MiB"] + [memory(after, kind, "rss") for kind in kinds],
        ["anonymous after the load, MiB"] + [memory(after, kind, "anonymous") for kind in kinds],
    ]
    return table(["", *map(label, kinds)], rows)


def targets(result: dict[str, Any]) -> str:
    rows = [
        [what, measured, "met" if met else "**missed**"] for what, measured, met in compare.verdicts(result)
    ]
    return table(["target", "measured", ""], rows) if rows else ""


def flat_markdown(result: dict[str, Any]) -> str:
    sizes = [
        [f"{step['log_mb']:,} MB", *decimals(step, "cpu_us", "pull_cpu_us", "load_average")]
        for step in result["by_log_size"]["steps"]
    ]
    counts = [
        [f"{step['topics']:,}", *decimals(step, "cpu_us", "creation_ms", "anonymous_mib", "load_average")]
        for step in result["by_topics"]
    ]
    sizes_table = table(["log", "send us", "pull us", "load average"], sizes)
    topics = table(["topics", "send us", "creation ms/topic", "anonymous MiB", "load average"], counts)
    start = result["by_log_size"]
    empty, full = f"{start['startup_empty_s']:.2f} s", f"{start['startup_full_s']:.2f} s"
    started = f"Start to first acknowledgement: {empty} with an empty store, {full} with the full log."
    return f"{sizes_table}\n\n{started}\n\n{topics}\n"


def decimals(step: dict[str, Any], *names: str) -> list[str]:
    return [f"{step[name]:.2f}" for name in names]


def label(kind: str) -> str:
    return "Turbopump" if kind == OURS else f"Apache {kind}"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
