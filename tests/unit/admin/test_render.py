"""Text as Java prints it, or JSON."""

import contextlib
import json

import pytest

from turbopump.admin.render import Output, TextTable, front, java_number, moment


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.0, "0.0"),
        (1.5, "1.5"),
        (-2.25, "-2.25"),
        (0.001, "0.001"),
        (9999999.5, "9999999.5"),
        (0.00012, "1.2E-4"),
        (1e7, "1.0E7"),
        (123456789.0, "1.23456789E8"),
    ],
)
def test_numbers_as_java_prints_them(value: float, printed: str) -> None:
    assert java_number(value) == printed


def test_columns() -> None:
    table = TextTable("%-6s|%4s", ("#Name", "#N"), "%-6s|%4d")
    assert list(table.lines([("a", 1), (None, 22)])) == ["#Name |  #N", "a     |   1", "null  |  22"]
    assert TextTable("%s %s", ("", "")).row(True, False) == "true false"
    assert front("abcdef", 3) == "abc"


def test_times() -> None:
    assert moment(1_700_000_000_007) == "2023-11-14 22:13:20,007"
    assert moment(1 << 62) == "1970-01-01 00:00:00,904"  # no such year


def test_an_answer_is_text_or_one_document() -> None:
    written: list[str] = []
    for as_json in (False, True):
        out = Output(written.append, written.append, as_json)
        out.line("first")
        out.show({"a": 1}, ["second"])
    assert written == ["first\n", "second\n", '{"a":1}\n']


def test_what_was_shown_before_a_failure_is_a_whole_document() -> None:
    for count in (0, 2):
        written: list[str] = []
        with (
            contextlib.suppress(OSError),
            Output(written.append, written.append, as_json=True).items() as item,
        ):
            for number in range(count):
                item(number, [])
            raise OSError
        assert json.loads("".join(written)) == list(range(count))


def test_items_are_lines_or_one_array() -> None:
    for count, expected in ((0, []), (2, [{"n": 0}, {"n": 1}])):
        written: list[str] = []
        with Output(written.append, written.append, as_json=True).items() as item:
            for number in range(count):
                item({"n": number}, ["unseen"])
        assert json.loads("".join(written)) == expected
    written = []
    with Output(written.append, written.append, as_json=False).items() as item:
        item({"n": 1}, ["seen", "twice"])
    assert written == ["seen\n", "twice\n"]
