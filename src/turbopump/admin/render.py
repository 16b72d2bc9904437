"""Prints the output of commands: text as Apache's mqadmin prints it, or one JSON document.

`Output.show(value, lines)` takes both forms. Columns are Java's printf formats, which Python's `%` supports.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from turbopump.protocol.body_text import printable, printable_json


@dataclass(frozen=True, slots=True)
class TextTable:
    """Formats headings and rows in columns: `TextTable("%-16s %8s", ("#Topic", "#Count"))`."""

    form: str
    headings: tuple[str, ...]
    row_form: str = ""
    """Format of rows that are not aligned as the headings."""

    def lines(self, rows: Iterable[Sequence[object]]) -> Iterator[str]:
        yield self.form % self.headings
        for row in rows:
            yield self.row(*row)

    def row(self, *cells: object) -> str:
        return (self.row_form or self.form) % tuple(java_text(cell) for cell in cells)


def java_text(value: object) -> object:
    """Returns a value as Java's %s prints it; numbers stay numbers for %d and %f."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def java_number(value: float) -> str:
    """Formats a double as Java does: `0.0`, `1.0E-5`, `1.2345678E7`."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    shortest = Decimal(repr(value))
    exponent = shortest.adjusted()
    return f"{float(shortest.scaleb(-exponent))}E{exponent}"


def front(text: str, length: int) -> str:
    """Returns the first `length` characters of a text, those that fit into a column."""
    return text[:length]


def moment(time_ms: int) -> str:
    """Formats a time as `2025-06-30 12:00:00,123`, local."""
    return _local(time_ms).strftime("%Y-%m-%d %H:%M:%S,") + f"{time_ms % 1000:03d}"


def compact_moment(time_ms: int) -> str:
    """Formats a time as `20250630120000123`, local."""
    return _local(time_ms).strftime("%Y%m%d%H%M%S") + f"{time_ms % 1000:03d}"


def _local(time_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(time_ms // 1000)
    except (ValueError, OverflowError, OSError):  # no such year
        return datetime.fromtimestamp(0)


class Output:
    """Output of a command: prints lines in text mode, values in JSON mode."""

    def __init__(self, write: Callable[[str], None], warn: Callable[[str], None], as_json: bool) -> None:
        self._write = write
        self._warn = warn
        self.as_json = as_json

    def show(self, value: object, lines: Iterable[str]) -> None:
        """Prints the whole answer, `value` as JSON or `lines` as text; once, unless a command runs on."""
        if self.as_json:
            self._write(json_text(value) + "\n")
        else:
            for line in lines:
                self.line(line)

    def line(self, text: str = "") -> None:
        """Prints a line of text immediately, to report progress; nothing in JSON mode."""
        if not self.as_json:
            self._write(printable(text, keep="\n\t") + "\n")

    def warn(self, text: str) -> None:
        """Prints a line to stderr, in both modes."""
        self._warn(text)

    @contextlib.contextmanager
    def items(self) -> Iterator[Callable[[object, Iterable[str]], None]]:
        """Yields a function that prints one item, for answers too long to hold; in JSON mode one array."""
        count = 0

        def show_one(value: object, lines: Iterable[str]) -> None:
            nonlocal count
            if self.as_json:
                self._write(("[\n" if count == 0 else ",\n") + json_text(value))
            else:
                for line in lines:
                    self.line(line)
            count += 1

        try:
            yield show_one
        finally:  # the output of a command that fails is a complete document too
            if self.as_json:
                self._write("\n]\n" if count else "[]\n")


def json_text(value: object) -> str:
    """Returns a JSON document in one line, with terminal controls escaped."""
    return printable_json(msgspec.json.encode(value).decode())


def cut_line(words: str) -> str:
    """Returns `(cut: words)`, the last line of a truncated text; in JSON, key `cut` has only the words."""
    return f"(cut: {words})"


def fields(value: Any) -> Any:
    """Returns a body or dataclass as plain JSON values, to build a document."""
    return msgspec.to_builtins(value)
