"""Writes the charts of docs/performance.md and README.md, and the figures of docs/index.md.

Every number comes from `benchmarks/results/*.json`. Run `python scripts/charts.py` after a benchmark. A unit
test fails when a committed picture or figure is not what this script makes of the results.
"""

import json
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawing import Drawing, write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FRONT_PAGE = ROOT / "docs" / "index.md"
FIGURES = re.compile(r"(?<=<!-- figures: scripts/charts\.py -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)

LABEL_WIDTH, BAR_WIDTH, TEXT_WIDTH, ROW = 200, 330, 230, 20


@dataclass
class Bar:
    label: str
    value: float
    text: str
    style: str = "bar"
    low: float | None = None
    high: float | None = None


@dataclass
class Panel:
    """Bars on one scale, under one heading."""

    title: str
    bars: list[Bar]


def result(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return loaded


def chart(about: str, panels: list[Panel], note: str = "", scale: float | None = None) -> Drawing:
    """Draws panels below each other. Each has a scale of its own unless one is given."""
    height = sum(34 + ROW * len(panel.bars) for panel in panels) + (26 if note else 6)
    drawing = Drawing(LABEL_WIDTH + BAR_WIDTH + TEXT_WIDTH, height, about)
    y = 0.0
    for panel in panels:
        drawing.text(8, y + 22, panel.title, "head", "start")
        y += 30
        most = scale or max(bar.high or bar.value for bar in panel.bars)
        top = y
        for bar in panel.bars:
            middle = y + ROW / 2
            end = LABEL_WIDTH + BAR_WIDTH * bar.value / most
            drawing.text(LABEL_WIDTH - 8, middle + 4.5, bar.label, "", "end")
            drawing.rectangle(LABEL_WIDTH, y + 3, end - LABEL_WIDTH, ROW - 6, bar.style, 2)
            right = end
            if bar.low is not None and bar.high is not None:
                low, right = (LABEL_WIDTH + BAR_WIDTH * value / most for value in (bar.low, bar.high))
                drawing.line(low, middle, right, middle, "range")
                for x in (low, right):
                    drawing.line(x, middle - 3, x, middle + 3, "range")
            drawing.text(max(end, right) + 8, middle + 4.5, bar.text, "label", "start")
            y += ROW
        drawing.line(LABEL_WIDTH, top, LABEL_WIDTH, y, "axis")
        y += 4
    if note:
        drawing.text(8, y + 14, note, "small", "start")
    return drawing


SERVERS = (
    ("ours", "Turbopump", "accent"),
    ("4.9.7", "Apache 4.9.7", "bar"),
    ("5.5.0", "Apache 5.5.0", "bar2"),
)
LOADS = {
    "send 1 KiB 4x64": "Send 1 KiB, 4 connections with 64 in flight",
    "send 1 KiB keyed 4x64": "Send 1 KiB with a key, 4 connections with 64 in flight",
    "send 128 B 4x64": "Send 128 B, 4 connections with 64 in flight",
    "send 1 KiB 50x1": "Send 1 KiB, 50 connections with one in flight",
    "send 128 B 50x1": "Send 128 B, 50 connections with one in flight",
    "send 1 KiB 1x1": "Send 1 KiB, one connection with one in flight",
    "send 128 B 1x1": "Send 128 B, one connection with one in flight",
    "pull 32 x 1 KiB 4x1": "Pull batches of 32 x 1 KiB, 4 connections",
}
SHORT_LOADS = ("send 1 KiB 4x64", "send 1 KiB 50x1", "pull 32 x 1 KiB 4x1")


def broker(loads: tuple[str, ...] = tuple(LOADS)) -> Drawing:
    """Draws work per second of CPU time, Apache 4.9.7 = 1, with the CPU time of one message beside it."""
    cells = {cell["name"]: cell for cell in result("latest")["cells"]}
    panels = []
    for load in loads:
        ratios = cells[load]["work_per_cpu_second_vs_baseline"]
        cost = {kind: server["cpu_us"] for kind, server in cells[load]["servers"].items()}
        bars = [
            Bar(name, ratios[kind], f"{ratios[kind]:.2f}x, {cost[kind]:.1f} us a message", style)
            for kind, name, style in SERVERS
        ]
        panels.append(Panel(LOADS[load], bars))
    scale = max(bar.value for panel in panels for bar in panel.bars)
    note = "Messages per second of CPU time of the broker, Apache 4.9.7 = 1; longer is better."
    return chart("Messages per second of CPU time, compared with Apache's brokers", panels, note, scale)


SENDS = {
    "send many": "Sends, 64 in flight",
    "send one": "Sends, one in flight",
    "send blocking": "Sends, blocking",
    "send bulk": "Sends in bulk, 1,000 handed over at once",
}
CONSUMES = {
    "consume async": "A backlog, async def handler",
    "consume batch": "A backlog, def handler, batches of 32",
    "consume one": "A backlog, def handler, one by one",
}


CLIENTS = {
    "turbopump": "turbopump",
    "confluent": "confluent-kafka, acks=1",
    "confluent-all": "confluent-kafka, acks=all",
    "confluent-aio": "confluent-kafka asyncio",
    "aiokafka": "aiokafka, acks=1",
    "aiokafka-all": "aiokafka, acks=all",
    "redis": "redis-py",
    "nats": "nats-py",
}


def clients(shapes: dict[str, str], about: str) -> Drawing:
    """Draws the median rate of each client, the lowest and the highest round as a line across its bar."""
    runs = result("clients")["runs"]
    panels = []
    for shape, title in shapes.items():
        of_shape = [run for run in runs if run["shape"] == shape]
        bars = []
        for client, name in CLIENTS.items():
            rates = [run["rate"] for run in of_shape if run["client"] == client]
            if not rates:
                continue
            median = statistics.median(rates)
            style = "accent" if client == "turbopump" else "bar"
            bars.append(Bar(name, median, f"{median:,.0f}/s", style, min(rates), max(rates)))
        panels.append(Panel(title, bars))
    note = "Messages of 1 KiB per second: median, lowest and highest of the rounds. Scales differ."
    return chart(about, panels, note)


def spark_source() -> Drawing:
    """Draws rows per second of Spark's queries; the tables stand as Markdown in the result."""
    panels = []
    for told in result("spark_source_2")["told"]:
        title, *lines = told.strip().splitlines()
        if not title.startswith(("batch", "stream")):
            continue
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")
        ][2:]
        bars = [
            Bar(name, float(rate), f"{rate},000 rows/s, {ratio} of Kafka's", _spark_style(name))
            for name, rate, _, _, _, ratio, *_ in rows
        ]
        panels.append(Panel(title[0].upper() + title[1:], bars))
    note = "Rows per second read by Spark, local[2]; longer is better. Scales differ."
    return chart("Topics read by Spark, compared with Spark's Kafka source", panels, note)


def spark_sink() -> Drawing:
    panels: dict[int, Panel] = {}
    for row in result("spark_sink")["rows"]:
        panel = panels.setdefault(row["size"], Panel(f"Rows of {row['size']:,} B", []))
        cpu = sum(row["cpu_us"].values())
        text = f"{row['median']:,.0f} rows/s, {cpu:.1f} us CPU a row"
        style = _spark_style(row["sink"])
        panel.bars.append(
            Bar(row["sink"], row["median"], text, style, min(row["speeds"]), max(row["speeds"]))
        )
    note = "Rows per second written by Spark: median, lowest and highest of the rounds; longer is better."
    return chart("Topics written by Spark, compared with Spark's Kafka sink", list(panels.values()), note)


def _spark_style(name: str) -> str:
    return "bar" if name == "kafka" else "accent"


def drawings() -> dict[str, Drawing]:
    return {
        "chart-broker": broker(),
        "chart-broker-short": broker(SHORT_LOADS),
        "chart-client-sends": clients(SENDS, "Rates at which Python clients send"),
        "chart-client-consumes": clients(CONSUMES, "Rates at which Python clients consume a backlog"),
        "chart-spark-source": spark_source(),
        "chart-spark-sink": spark_sink(),
    }


def figures() -> str:
    """Returns the three figures of the front page as a table: cost of a send, start, memory."""
    latest = result("latest")
    cell = next(cell for cell in latest["cells"] if cell["name"] == "send 1 KiB 4x64")
    ratio = cell["work_per_cpu_second_vs_baseline"]["ours"]
    cost = {kind: server["cpu_us"] for kind, server in cell["servers"].items()}
    start = {kind: statistics.median(times) for kind, times in latest["startup_s"].items()}
    memory = {
        kind: sum(process["rss"] for process in processes.values())
        for kind, processes in latest["memory_idle_mib"].items()
    }
    told = {
        f"{ratio:.1f}x": "the messages of Apache 4.9.7 per second of CPU time: "
        f"{cost['ours']:.1f} us for a send of 1 KiB, where it takes {cost['4.9.7']:.1f} us",
        f"{start['ours']:.2f} s": "from the start to the first acknowledged message; "
        f"Apache 5.5.0 takes {start['5.5.0']:.1f} s",
        f"{memory['ours']:.0f} MiB": "of memory after the start, name server and broker together; "
        f"Apache 5.5.0 takes {memory['5.5.0']:.0f} MiB",
    }
    heads = " | ".join(f"**{figure}**" for figure in told)
    return f"\n| {heads} |\n|---|---|---|\n| {' | '.join(told.values())} |\n\n"


def front_page(text: str) -> str:
    """Returns the text of the front page with the figures of the last results."""
    return FIGURES.sub(lambda _: figures(), text)


if __name__ == "__main__":
    write(drawings())
    FRONT_PAGE.write_text(front_page(FRONT_PAGE.read_text()))
