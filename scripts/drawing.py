"""Draws the pictures of the documentation as SVG, each once for light and once for dark pages.

Used by diagrams.py and charts.py. A drawing has no colours of its own: its shapes have classes, and the
style sheet of the theme gives them colours. Text is measured by no font, so boxes are drawn wide enough for
the widest common one (DejaVu Sans).
"""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

THEMES = {
    "light": {
        "text": "#1f2328",
        "muted": "#59636e",
        "line": "#8c959f",
        "box": "#f6f8fa",
        "accent": "#0a7d8c",
        "fill": "#e0f4f6",
        "bar": "#b6c0ca",
        "bar2": "#d5dce3",
    },
    "dark": {
        "text": "#e6edf3",
        "muted": "#a3afbb",
        "line": "#6b7785",
        "box": "#1b222b",
        "accent": "#45c4d6",
        "fill": "#10343b",
        "bar": "#5c6976",
        "bar2": "#3f4a55",
    },
}

STYLE = """\
text {{ font-family: {sans}; font-size: 13px; fill: {text} }}
.title {{ font-weight: 600 }}
.small {{ font-size: 11.5px; fill: {muted} }}
.code {{ font-family: {mono}; font-size: 11px; fill: {muted} }}
.label {{ font-size: 11.5px }}
.head {{ font-size: 14px; font-weight: 600 }}
.box {{ fill: {box}; stroke: {line} }}
.ours {{ fill: {fill}; stroke: {accent}; stroke-width: 1.5 }}
.group {{ fill: none; stroke: {line}; stroke-dasharray: 4 4 }}
.arrow {{ fill: none; stroke: {line}; stroke-width: 1.5 }}
.strong {{ fill: none; stroke: {accent}; stroke-width: 2 }}
.dashed {{ fill: none; stroke: {line}; stroke-width: 1.5; stroke-dasharray: 5 4 }}
.tip {{ fill: {line} }}
.strongtip {{ fill: {accent} }}
.axis {{ stroke: {line} }}
.accent {{ fill: {accent} }}
.bar {{ fill: {bar} }}
.bar2 {{ fill: {bar2} }}
.range {{ stroke: {text}; stroke-width: 1 }}
"""


@dataclass
class Drawing:
    """Shapes of one picture, in the order in which they are painted."""

    width: float
    height: float
    about: str
    """What the picture shows, for readers who cannot see it."""
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "middle") -> None:
        kind = f' class="{style}"' if style else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{kind}>{escape(text, quote=False)}</text>'
        )

    def rectangle(
        self, x: float, y: float, width: float, height: float, style: str, radius: float = 6
    ) -> None:
        size = f'width="{width:g}" height="{height:g}" rx="{radius:g}"'
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" {size} class="{style}"/>')

    def box(
        self,
        *place: float,
        title: str,
        lines: tuple[str, ...] = (),
        style: str = "box",
        code: str = "",
    ) -> None:
        """Draws a box at `x, y, width, height` with a title, lines below it and the name of a module last."""
        x, y, width, height = place
        self.rectangle(x, y, width, height, style)
        written = [(title, "title"), *((line, "small") for line in lines)]
        if code:
            written.append((code, "code"))
        top = y + height / 2 - (len(written) - 1) * 8.5 + 4.5
        for number, (text, kind) in enumerate(written):
            self.text(x + width / 2, top + 17 * number, text, kind)

    def arrow(
        self,
        *points: tuple[float, float],
        style: str = "arrow",
        label: str = "",
        at: tuple[float, float] | None = None,
        anchor: str = "middle",
    ) -> None:
        """Draws a line through the points, with a tip at the last one."""
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        base = (x1 - 8 * dx, y1 - 8 * dy)
        line = " ".join(f"{x:g},{y:g}" for x, y in (*points[:-1], base))
        self.parts.append(f'<polyline points="{line}" class="{style}"/>')
        corners = ((x1, y1), (base[0] - 4 * dy, base[1] + 4 * dx), (base[0] + 4 * dy, base[1] - 4 * dx))
        tip = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self.parts.append(f'<polygon points="{tip}" class="{"strongtip" if style == "strong" else "tip"}"/>')
        if label:
            (xa, ya), (xb, yb) = points[0], points[1]
            place = at or ((xa + xb) / 2, (ya + yb) / 2 - 6)
            self.text(*place, label, "label", anchor)

    def line(self, x0: float, y0: float, x1: float, y1: float, style: str) -> None:
        self.parts.append(f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}" class="{style}"/>')

    def svg(self, theme: str) -> str:
        style = STYLE.format(sans=SANS, mono=MONO, **THEMES[theme])
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        title = f"<title>{escape(self.about, quote=False)}</title>"
        return "\n".join([head, title, f"<style>\n{style}</style>", *self.parts, "</svg>\n"])


def files(drawings: dict[str, Drawing]) -> dict[Path, str]:
    """Returns the text of each picture file, two for each drawing."""
    return {
        PICTURES / f"{name}-{theme}.svg": drawing.svg(theme)
        for name, drawing in drawings.items()
        for theme in THEMES
    }


def write(drawings: dict[str, Drawing]) -> None:
    PICTURES.mkdir(exist_ok=True)
    for path, text in files(drawings).items():
        path.write_text(text)
