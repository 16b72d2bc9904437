"""What a command shows: text as Apache's mqadmin prints it, or one JSON document.

`Output.show(value, lines)` serves both at once. Columns are Java's printf formats, which Python's `%` shares.
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
class Table:
    """Headings and rows in columns: `Table("%-16s %8s", ("#Topic", "#Count"))`."""

    form: str
    headings: tuple[str, ...]
    row_form: str = ""
    """Where the rows are aligned otherwise than the headings."""

    def lines(self, rows: Iterable[Sequence[object]]) -> Iterator[str]:
        yield self.form % self.headings
        for row in rows:
            yield self.row(*row)

    def row(self, *cells: object) -> str:
        return (self.row_form or self.form) % tuple(java_text(cell) for cell in cells)


def java_text(value: object) -> object:
    """As Java's %s would print it; numbers stay numbers for %d and %f."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def java_number(value: float) -> str:
    """As Java prints a double: `0.0`, `1.0E-5`, `1.2345678E7`."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    shortest = Decimal(repr(value))
    exponent = shortest.adjusted()
    return f"{float(shortest.scaleb(-exponent))}E{exponent}"


def front(text: str, length: int) -> str:
    """Its first characters, where a column ends."""
    return text[:length]


def moment(time_ms: int) -> str:
    """`2025-06-30 12:00:00,123`, in local time."""
    return _local(time_ms).strftime("%Y-%m-%d %H:%M:%S,") + f"{time_ms % 1000:03d}"


def compact_moment(time_ms: int) -> str:
    """`20250630120000123`, in local time."""
    return _local(time_ms).strftime("%Y%m%d%H%M%S") + f"{time_ms % 1000:03d}"


def _local(time_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(time_ms // 1000)
    except (ValueError, OverflowError, OSError):  # no such year
        return datetime.fromtimestamp(0)


class Output:
    """Where a command's answer goes. In JSON mode lines are silent, in text mode values are."""

    def __init__(self, write: Callable[[str], None], warn: Callable[[str], None], as_json: bool) -> None:
        self._write = write
        self._warn = warn
        self.as_json = as_json

    def show(self, value: object, lines: Iterable[str]) -> None:
        """The whole answer, once per command; of commands that go on until they are stopped, one of many."""
        if self.as_json:
            self._write(json_text(value) + "\n")
        else:
            for line in lines:
                self.line(line)

    def line(self, text: str = "") -> None:
        """A line of text at once: for what was done so far, while more is being done."""
        if not self.as_json:
            self._write(printable(text, keep="\n\t") + "\n")

    def warn(self, text: str) -> None:
        """A line beside the answer, on stderr, in both modes."""
        self._warn(text)

    @contextlib.contextmanager
    def items(self) -> Iterator[Callable[[object, Iterable[str]], None]]:
        """For answers too long to hold: each item is shown when it is there; as JSON they are one array."""
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
        finally:  # also what a command could show before it failed is a whole document
            if self.as_json:
                self._write("\n]\n" if count else "[]\n")


def json_text(value: object) -> str:
    """A JSON document in one line, with nothing in it that a terminal would obey."""
    return printable_json(msgspec.json.encode(value).decode())


def cut_line(words: str) -> str:
    """The last line of an answer that is not whole; as JSON it is the key `cut` with the same words."""
    return f"(cut: {words})"


def fields(value: Any) -> Any:
    """A body or dataclass as plain JSON values, for a document of one's own."""
    return msgspec.to_builtins(value)
