"""Makes an HTML page of a job's result: tables, bars and lines, in one file without external parts.

In: a result and charts of plain numbers. Out: text. All text from messages is escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from turbopump.pipelines.jobs.display import JobResult, ResultTable, cell

WIDTH, HEIGHT, BAR = 760, 220, 22
LEFT, RIGHT, TOP = 64, 16, 12  # margins of a line chart, for the labels of its axes
NAMES, VALUES = 200, 125  # widths on either side of the bars
LETTER = 7.5  # width of the widest letters in pixels, at this size
MAX_BARS, MAX_LINES, TICKS = 30, 8, 5
LEGEND_ROW, LEGEND_COLUMNS = 20, 2
HUES = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
GREY, PALE = "#6b7280", "#e5e7eb"

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2937}
h1,.sum{overflow-wrap:anywhere}
.wide{overflow-x:auto;margin:.5rem 0 2rem}
table{border-collapse:collapse;font-size:14px}
th,td{padding:.25rem .75rem;border-bottom:1px solid #e5e7eb;text-align:left;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
figure{margin:1rem 0 2rem}figcaption{font-weight:600;margin-bottom:.5rem}svg{max-width:100%;height:auto}
.sum{color:#4b5563}
"""


@dataclass(frozen=True)
class BarChart:
    """A bar chart of the report: one bar per (name, value) pair."""

    title: str
    values: Sequence[tuple[str, float]]

    def svg(self) -> str:
        shown = self.values[:MAX_BARS]
        top = max((value for _, value in shown), default=0) or 1
        parts = []
        for row, (name, value) in enumerate(shown):
            y, length = row * BAR, (WIDTH - NAMES - VALUES) * value / top
            parts.append(_text(NAMES - 6, y + 15, _fitting(cell(name), NAMES - 10), "end", full=str(name)))
            parts.append(
                f'<rect x="{NAMES}" y="{y + 3}" width="{length:.1f}" height="{BAR - 6}" fill="{HUES[0]}"/>'
            )
            parts.append(_text(NAMES + length + 5, y + 15, cell(value)))
        if len(self.values) > MAX_BARS:
            left = len(self.values) - MAX_BARS
            parts.append(_text(NAMES, MAX_BARS * BAR + 15, f"... and {left:,} more", colour=GREY))
        if not shown:
            parts.append(_text(0, 15, "(nothing)"))
        return _svg((max(len(shown), 1) + (len(self.values) > MAX_BARS)) * BAR, parts)


@dataclass(frozen=True)
class LineChart:
    """A chart of lines over time; a series is a name and its points (seconds, value)."""

    title: str
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]]

    def svg(self) -> str:
        shown = self.series[:MAX_LINES]
        points = [point for _, line in shown for point in line]
        if not points:
            return _svg(BAR, [_text(0, 15, "(nothing)")])
        begin, end = min(x for x, _ in points), max(x for x, _ in points)
        values = ticks(max(y for _, y in points))
        parts = [*_value_axis(values), *_time_axis(begin, end)]
        for number, (name, line) in enumerate(shown):
            parts += self._line(line, begin, end, values[-1], HUES[number % len(HUES)])
            parts += _legend(number, name, HUES[number % len(HUES)])
        rows = -(-len(shown) // LEGEND_COLUMNS)
        height = HEIGHT + 44 + rows * LEGEND_ROW
        if len(self.series) > MAX_LINES:
            left = len(self.series) - MAX_LINES
            parts.append(_text(LEFT, height + 8, f"... and {left:,} more, not drawn", colour=GREY))
            height += LEGEND_ROW
        return _svg(height, parts)

    def _line(
        self, line: Sequence[tuple[float, float]], begin: float, end: float, top: float, hue: str
    ) -> list[str]:
        places = [(_x(x, begin, end), HEIGHT - (HEIGHT - TOP) * y / top) for x, y in line]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        found = [f'<polyline points="{drawn}" fill="none" stroke="{hue}" stroke-width="2"/>']
        if len(places) == 1:  # a line of one point cannot be seen
            found.append(f'<circle cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3" fill="{hue}"/>')
        return found


def ticks(top: float) -> list[float]:
    """Returns the ticks of an axis: a few round numbers from 0 to the first that is not below `top`.

    >>> ticks(7), ticks(1234)
    ([0, 2, 4, 6, 8], [0, 500, 1000, 1500])
    """
    if top <= 0:
        return [0, 1]
    step = 1.0
    while step * TICKS < top or step * TICKS / 10 >= top:
        step = step * 10 if step * TICKS < top else step / 10
    step = next(small for small in (step / 5, step / 2, step) if small * TICKS >= top)
    if top >= 1:
        step = max(1, round(step))
    found = [0.0]
    while found[-1] < top:
        found.append(round(found[-1] + step, 9))
    return [int(one) if one == int(one) else one for one in found]


def _x(seconds: float, begin: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (seconds - begin) / ((end - begin) or 1)


def _value_axis(values: Sequence[float]) -> list[str]:
    parts = []
    for value in values:
        y = HEIGHT - (HEIGHT - TOP) * value / values[-1]
        parts.append(_rule(LEFT, y, WIDTH - RIGHT, y, PALE if value else GREY))
        parts.append(_text(LEFT - 6, y + 4, _short(value), "end", GREY))
    return parts


def _time_axis(begin: float, end: float) -> list[str]:
    times = [begin] if begin == end else [begin + (end - begin) * n / (TICKS - 1) for n in range(TICKS)]
    days = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in times]
    pattern = "%H:%M:%S" if end - begin < TICKS * 60 else "%H:%M"
    parts = []
    for number, at in enumerate(times):
        x = _x(at, begin, end)
        anchor = "start" if number == 0 else "end" if number == len(times) - 1 else "middle"
        parts.append(_rule(x, HEIGHT, x, HEIGHT + 4, GREY))
        parts.append(_text(x, HEIGHT + 18, datetime.fromtimestamp(at, UTC).strftime(pattern), anchor, GREY))
        if number == 0 or days[number] != days[number - 1]:
            zone = " UTC" if number == 0 else ""
            parts.append(_text(x, HEIGHT + 34, days[number] + zone, anchor, GREY))
    return parts


def _legend(number: int, name: str, hue: str) -> list[str]:
    width = (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS
    x = LEFT + number % LEGEND_COLUMNS * width
    y = HEIGHT + 42 + number // LEGEND_COLUMNS * LEGEND_ROW
    return [
        f'<rect x="{x:.1f}" y="{y}" width="10" height="10" fill="{hue}"/>',
        _text(x + 16, y + 10, _fitting(cell(name), width - 24), full=str(name)),
    ]


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(
    x: float, y: float, text: str, anchor: str = "start", colour: str = "currentColor", full: str = ""
) -> str:
    title = f"<title>{escape(full)}</title>" if full and full != text else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(text)}{title}</text>"


def _fitting(text: str, width: float) -> str:
    most = int(width / LETTER)
    return text if len(text) <= most else text[: most - 1] + "…"


def _short(value: float) -> str:
    """Formats a label of an axis: 1.5M rather than 1,500,000."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:,g}"


Chart = BarChart | LineChart


def page(title: str, outcome: JobResult, charts: Sequence[Chart]) -> str:
    """Returns the HTML page: title, summary, charts as SVG, then the tables of the result."""
    summary = ", ".join(f"{escape(name)}: {escape(cell(value))}" for name, value in outcome.summary.items())
    figures = [f"<figure><figcaption>{escape(one.title)}</figcaption>{one.svg()}</figure>" for one in charts]
    body = "\n".join([*figures, *(_table(table) for table in outcome.tables)])
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    heading = f'<h1>{escape(title)}</h1><p class="sum">{summary}</p>'
    return f'<!doctype html><html lang="en">{head}{heading}\n{body}\n</html>\n'


def _table(table: ResultTable) -> str:
    heads = "".join(
        f"<th{_kind(next((row.get(name) for row in table.rows if row.get(name) is not None), None))}>"
        f"{escape(name)}</th>"
        for name in table.columns
    )
    rows = "".join(
        "<tr>" + "".join(_cell(row.get(name)) for name in table.columns) + "</tr>" for row in table.rows
    )
    return f'<h2>{escape(table.title)}</h2><div class="wide"><table><tr>{heads}</tr>{rows}</table></div>'


def _cell(value: object) -> str:
    return f"<td{_kind(value)}>{escape(cell(value))}</td>"


def _kind(value: object) -> str:
    """Returns the class attribute that aligns the cell of a number to the right; empty for other values."""
    return ' class="n"' if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _svg(height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-size="13" '
        f'fill="currentColor" role="img">{"".join(parts)}</svg>'
    )
