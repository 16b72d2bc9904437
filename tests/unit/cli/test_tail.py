import json

import pytest
from tests.unit.client.kit import record

from turbopump.cli.failures import Failure
from turbopump.cli.tail import Printer, Start, line, parse_start
from turbopump.client.message import MessageQueue

NOW_MS = 1_700_000_000_000
QUEUE = MessageQueue("t", "a", 2)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("first", Start(end="first")),
        ("last", Start(end="last")),
        ("0", Start(offset=0)),
        ("1000", Start(offset=1000)),
        ("90s", Start(time_ms=NOW_MS - 90_000)),
        ("2d", Start(time_ms=NOW_MS - 172_800_000)),
        ("2023-11-14T22:13:20+00:00", Start(time_ms=NOW_MS)),
    ],
)
def test_a_start_is_an_end_an_offset_an_age_or_a_time(text: str, start: Start) -> None:
    assert parse_start(text, NOW_MS) == start


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "5w", "m", "2023-99-99"])
def test_any_other_start_is_asked_wrongly(text: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_start(text, NOW_MS)
    assert caught.value.status == 2


def test_a_line_shows_where_the_message_is_and_what_it_says() -> None:
    shown = line(record(QUEUE, 17, NOW_MS, b"Hello", tags="greeting"))
    assert shown.endswith("queue=2 offset=17 tag=greeting | Hello")


def test_a_message_cannot_command_the_terminal_nor_break_the_line() -> None:
    shown = line(record(QUEUE, 1, NOW_MS, b"\x1b[2Jboo\nnext\xff"))
    assert shown.endswith(r"| \x1b[2Jboo\nnext\xff")


def test_an_impossible_time_is_shown_as_a_number() -> None:
    assert line(record(QUEUE, 1, 1 << 62)).startswith(f"{1 << 62} ms")


def test_json_has_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(as_json=True, left=None).take(record(QUEUE, 17, NOW_MS, b"a\nb"))
    (only,) = capsys.readouterr().out.splitlines()
    assert json.loads(only)["body"] == "a\nb"


def test_the_printer_stops_after_so_many() -> None:
    printer = Printer(as_json=False, left=2)
    assert [printer.take(record(QUEUE, offset, NOW_MS)) for offset in range(2)] == [True, False]
