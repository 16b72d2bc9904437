"""Tables in Markdown. Pure."""

from __future__ import annotations


def markdown(table: list[list[str]]) -> str:
    """Returns a table whose first row is its head; shorter rows are filled up."""
    width = len(table[0])
    head, *rest = (f"| {' | '.join([*cells, *[''] * (width - len(cells))])} |" for cells in table)
    return "\n".join([head, "|" + "---|" * width, *rest])
