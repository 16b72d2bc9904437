"""Prints a job's progress lines, and its result as tables for people or one JSON document for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, TextIO

Row = Mapping[str, Any]
MAX_ROWS_SHOWN = 50
MAX_CELL_WIDTH = 48


@dataclass(frozen=True)
class ResultTable:
    """A table in a job's result. `key` names it in JSON; `title` is for people."""

    key: str
    title: str
    rows: Sequence[Row]
    columns: Sequence[str]

    def lines(self) -> list[str]:
        shown = [[cell(row.get(name)) for name in self.columns] for row in self.rows[:MAX_ROWS_SHOWN]]
        widths = [max([len(name), *(len(row[i]) for row in shown)]) for i, name in enumerate(self.columns)]
        is_number = [_is_number([row.get(name) for row in self.rows]) for name in self.columns]
        lines = ["", self.title, _line(self.columns, widths, is_number)]
        lines += [_line(row, widths, is_number) for row in shown]
        if not shown:
            lines.append("(nothing)")
        if len(self.rows) > MAX_ROWS_SHOWN:
            lines.append(f"... and {len(self.rows) - MAX_ROWS_SHOWN} more")
        return lines


@dataclass
class JobResult:
    """The result of a job: a summary and tables."""

    summary: dict[str, Any] = field(default_factory=dict)
    tables: list[ResultTable] = field(default_factory=list)
    is_failure: bool = False  # it ran, and found errors in the data

    def document(self) -> dict[str, Any]:
        return {**self.summary, **{table.key: [dict(row) for row in table.rows] for table in self.tables}}


@dataclass
class Display:
    """Prints a job's progress to stderr, and its result to stdout as text or JSON."""

    is_json: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)

    def note(self, line: str) -> None:
        print(line, file=self.err, flush=True)

    def show(self, outcome: JobResult) -> None:
        if self.is_json:
            print(
                json.dumps(outcome.document(), default=_plain, ensure_ascii=False), file=self.out, flush=True
            )
            return
        for table in outcome.tables:
            print("\n".join(table.lines()), file=self.out)
        if outcome.summary:
            words = ", ".join(f"{_words(name)} {cell(value)}" for name, value in outcome.summary.items())
            print(f"\n{words}", file=self.out, flush=True)


def cell(value: Any) -> str:
    """Formats a value as the text of a table cell, cut to MAX_CELL_WIDTH characters."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case bytes() | bytearray():
            return cell(bytes(value).decode("utf-8", "backslashreplace"))
        case _:
            text = " ".join(str(value).split())
            return text if len(text) <= MAX_CELL_WIDTH else text[: MAX_CELL_WIDTH - 1] + "…"


def _line(cells: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    parts = [
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(cells, widths, is_number, strict=True)
    ]
    return "  ".join(parts).rstrip()


def _is_number(values: Sequence[Any]) -> bool:
    return any(isinstance(value, int | float) for value in values)


def _words(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def _plain(value: Any) -> Any:
    match value:
        case datetime() | date():
            return value.isoformat()
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "backslashreplace")
        case _:
            return str(value)
