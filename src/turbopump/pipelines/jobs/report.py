"""An HTML page of a job's result: tables, bars and lines, in one file that needs nothing else.

In: an outcome and charts of plain numbers. Out: text. Every word of a message is escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from turbopump.pipelines.jobs.showing import Outcome, Table, cell

WIDTH, HEIGHT, EDGE, BAR = 760, 220, 48, 22
MOST_BARS, MOST_LINES = 30, 8
HUES = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2937}
table{border-collapse:collapse;margin:.5rem 0 2rem;font-size:14px}
th,td{padding:.25rem .75rem;border-bottom:1px solid #e5e7eb;text-align:left}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
figure{margin:1rem 0 2rem}figcaption{font-weight:600;margin-bottom:.5rem}svg{max-width:100%}
.sum{color:#4b5563}
"""


@dataclass(frozen=True)
class Bars:
    """One bar for each name."""

    title: str
    values: Sequence[tuple[str, float]]

    def svg(self) -> str:
        shown = self.values[:MOST_BARS]
        top = max((value for _, value in shown), default=0) or 1
        parts = []
        for row, (name, value) in enumerate(shown):
            y, length = row * BAR, (WIDTH - 320) * value / top
            parts.append(f'<text x="195" y="{y + 15}" text-anchor="end">{escape(cell(name))}</text>')
            parts.append(
                f'<rect x="205" y="{y + 3}" width="{length:.1f}" height="{BAR - 6}" fill="{HUES[0]}"/>'
            )
            parts.append(f'<text x="{210 + length:.1f}" y="{y + 15}">{escape(cell(value))}</text>')
        return _svg(max(len(shown), 1) * BAR, parts)


@dataclass(frozen=True)
class Lines:
    """Lines over time: a name → its points, seconds and value."""

    title: str
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]]

    def svg(self) -> str:
        shown = self.series[:MOST_LINES]
        points = [point for _, line in shown for point in line]
        if not points:
            return _svg(BAR, [f'<text x="0" y="15">{escape("(nothing)")}</text>'])
        begin, end = min(x for x, _ in points), max(x for x, _ in points)
        span, top = (end - begin) or 1, max(y for _, y in points) or 1
        parts = [
            f'<line x1="{EDGE}" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}" stroke="#9ca3af"/>',
            f'<text x="{EDGE - 6}" y="15" text-anchor="end">{escape(cell(top))}</text>',
        ]
        for number, (name, line) in enumerate(shown):
            drawn = " ".join(
                f"{EDGE + (WIDTH - EDGE) * (x - begin) / span:.1f},{HEIGHT - (HEIGHT - 12) * y / top:.1f}"
                for x, y in line
            )
            hue = HUES[number % len(HUES)]
            parts.append(f'<polyline points="{drawn}" fill="none" stroke="{hue}" stroke-width="2"/>')
            x = EDGE + number * 110
            parts.append(f'<rect x="{x}" y="{HEIGHT + 12}" width="10" height="10" fill="{hue}"/>')
            parts.append(f'<text x="{x + 14}" y="{HEIGHT + 22}">{escape(cell(name)[:14])}</text>')
        return _svg(HEIGHT + 30, parts)


Chart = Bars | Lines


def page(title: str, outcome: Outcome, charts: Sequence[Chart]) -> str:
    summary = ", ".join(f"{escape(name)}: {escape(cell(value))}" for name, value in outcome.summary.items())
    figures = [f"<figure><figcaption>{escape(one.title)}</figcaption>{one.svg()}</figure>" for one in charts]
    body = "\n".join([*figures, *(_table(table) for table in outcome.tables)])
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    heading = f'<h1>{escape(title)}</h1><p class="sum">{summary}</p>'
    return f'<!doctype html><html lang="en">{head}{heading}\n{body}\n</html>\n'


def _table(table: Table) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(_cell(row.get(name)) for name in table.columns) + "</tr>" for row in table.rows
    )
    return f"<h2>{escape(table.title)}</h2><table><tr>{heads}</tr>{rows}</table>"


def _cell(value: object) -> str:
    kind = ' class="n"' if isinstance(value, int | float) and not isinstance(value, bool) else ""
    return f"<td{kind}>{escape(cell(value))}</td>"


def _svg(height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-size="13" '
        f'fill="currentColor" role="img">{"".join(parts)}</svg>'
    )
