import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.unit.client.kit import record

from turbopump.cli.failures import CommandFailure
from turbopump.cli.records import Condition, line, show_format, show_json, show_line
from turbopump.cli.tail import Printer, StartPosition, kept, parse_start_position
from turbopump.client.message import MessageQueue

NOW_MS = 1_700_000_000_000
QUEUE = MessageQueue("t", "a", 2)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("first", StartPosition(end="first")),
        ("last", StartPosition(end="last")),
        ("0", StartPosition(offset=0)),
        ("1000", StartPosition(offset=1000)),
        ("90s", StartPosition(time_ms=NOW_MS - 90_000)),
        ("2d", StartPosition(time_ms=NOW_MS - 172_800_000)),
        ("1h30m", StartPosition(time_ms=NOW_MS - 5_400_000)),
        ("1700000000000", StartPosition(time_ms=NOW_MS)),
        ("2023-11-14T22:13:20+00:00", StartPosition(time_ms=NOW_MS)),
    ],
)
def test_a_start_is_an_end_an_offset_an_age_or_a_time(text: str, start: StartPosition) -> None:
    assert parse_start_position(text, NOW_MS) == start


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "5x", "m", "2023-99-99"])
def test_any_other_start_is_asked_wrongly(text: str) -> None:
    with pytest.raises(CommandFailure) as caught:
        parse_start_position(text, NOW_MS)
    assert caught.value.status == 2


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_a_time_without_a_zone_is_local_and_the_zone_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_start_position("2023-11-14T23:13:20", 0) == StartPosition(time_ms=NOW_MS)
    said = "turbopump: --from 2023-11-14T23:13:20 is local time: 2023-11-14T23:13:20+01:00\n"
    assert capsys.readouterr().err == said
    assert parse_start_position("2023-11-14T22:13:20Z", 0) == StartPosition(time_ms=NOW_MS)
    assert parse_start_position("10m", NOW_MS) == StartPosition(time_ms=NOW_MS - 600_000)
    assert capsys.readouterr().err == ""


def test_a_start_that_is_none_says_what_would_be_one() -> None:
    expected = r"--from must be .*10m, got 'yesterday'; it may also be first, last or an offset"
    with pytest.raises(CommandFailure, match=expected):
        parse_start_position("yesterday", NOW_MS)


def test_a_format_of_ones_own() -> None:
    show = show_format(r"{queue}:{offset}\t{tag}|{keys}|{properties[TAGS]}|{properties[no]}|{{{body}}}", 0)
    assert show(record(QUEUE, 17, NOW_MS, b"a\x1b\xff", tags="x")) == "2:17\tx||x||{a\\x1b\\xff}"
    assert show_format("{bodyBase64} {size}", 0)(record(QUEUE, 17, NOW_MS, b"\xff")) == "/w== 1"


@pytest.mark.parametrize("text", ["{nothing}", "{body:>9}", "{body!r}", "{", "{body.__class__}", "{0}"])
def test_a_format_with_an_unknown_field_is_asked_wrongly(text: str) -> None:
    with pytest.raises(CommandFailure, match="--format") as caught:
        show_format(text, 0)
    assert caught.value.status == 2


@pytest.mark.parametrize(
    ("text", "is_wanted"),
    [
        ("TAGS = 'x'", True),
        ("TAGS = 'y'", False),
        ("offset > 16 AND queue = 2", True),
        ("offset > 17", False),
        ("body = 'Hello'", True),
        ("size BETWEEN 5 AND 6", True),
        ("nothing IS NULL", True),
    ],
)
def test_a_condition_is_decided_here(text: str, is_wanted: bool) -> None:
    assert Condition(text).predicate()(record(QUEUE, 17, NOW_MS, b"Hello", tags="x")) is is_wanted


def test_a_condition_that_is_none_is_asked_wrongly() -> None:
    with pytest.raises(CommandFailure, match="--where") as caught:
        Condition("offset >").predicate()
    assert caught.value.status == 2


def test_a_body_is_cut_and_says_so() -> None:
    long = record(QUEUE, 17, NOW_MS, "é".encode() * 50)
    cut = "é" * 10 + "… (cut: 100 bytes, --body-limit 0 shows all)"
    assert line(long, 10).endswith(f"| {cut}")
    assert line(long, 50).endswith("é" * 50)
    assert line(long).endswith("é" * 50)
    shown = json.loads(show_json(5)(long))
    assert (shown["body"], shown["bodyCut"]) == ("éé", 100)
    binary = json.loads(show_json(1)(record(QUEUE, 17, NOW_MS, b"\xff" * 9)))
    assert (binary["bodyBase64"], binary["bodyCut"]) == ("/w==", 9)
    assert "bodyCut" not in json.loads(show_json(100)(long))


def test_a_line_shows_where_the_message_is_and_what_it_says() -> None:
    shown = line(record(QUEUE, 17, NOW_MS, b"Hello", tags="greeting"))
    assert shown.endswith("queue=2 offset=17 tag=greeting | Hello")


def test_a_message_cannot_command_the_terminal_nor_break_the_line() -> None:
    shown = line(record(QUEUE, 1, NOW_MS, b"\x1b[2Jboo\nnext\xff"))
    assert shown.endswith(r"| \x1b[2Jboo\nnext\xff")


def test_an_impossible_time_is_shown_as_a_number() -> None:
    assert line(record(QUEUE, 1, 1 << 62)).startswith(f"{1 << 62} ms")


def test_json_has_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(show_json(0), None).take(record(QUEUE, 17, NOW_MS, b"a\nb"), QUEUE)
    (only,) = capsys.readouterr().out.splitlines()
    assert json.loads(only)["body"] == "a\nb"


def test_json_tells_binary_bodies_from_text(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(show_json(0), None)
    for body in (b"\xff", rb"\xff"):
        printer.take(record(QUEUE, 17, NOW_MS, body), QUEUE)
    binary, text = map(json.loads, capsys.readouterr().out.splitlines())
    assert (binary["bodyBase64"], "body" in binary) == ("/w==", False)
    assert (text["body"], "bodyBase64" in text) == (r"\xff", False)


def test_the_printer_stops_after_so_many() -> None:
    printer = Printer(show_line(0), 2)
    assert [printer.take(record(QUEUE, offset, NOW_MS), QUEUE) for offset in range(2)] == [True, False]


def test_what_was_shown_is_in_the_file_even_when_the_reading_fails(tmp_path: Path) -> None:
    def read() -> None:
        with kept(str(path), Printer(show_line(0), None)) as take:
            for broker in ("a", "b", "a"):
                assert take(record(QUEUE, 5, NOW_MS, b"Hello", tags="x"), MessageQueue("t", broker, 2))
            raise ConnectionResetError("the broker is gone")

    path = tmp_path / "new" / "t.parquet"
    with pytest.raises(ConnectionResetError):
        read()
    rows = pq.read_table(path).to_pylist()
    assert [(row["brokerName"], row["body"], row["tags"]) for row in rows] == [
        (broker, b"Hello", "x") for broker in ("a", "b", "a")
    ]


def test_a_file_that_cannot_be_written_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"

    def full(writer: object, table: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    monkeypatch.setattr("turbopump.pipelines.parquet.MAX_GROUP_ROWS", 1)
    monkeypatch.setattr("turbopump.pipelines.record_writer.MAX_BATCH_ROWS", 1)
    with (
        pytest.raises(OSError, match=r"No space|not be written"),
        kept(str(path), Printer(show_line(0), None)) as take,
    ):
        take(record(QUEUE, 5, NOW_MS), QUEUE)
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_it_is_said_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from turbopump.cli.main import main\n"
        "sys.exit(main(['tail', 't', '--to', 't.parquet']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'turbopump[arrow]'" in done.stderr
    assert list(tmp_path.iterdir()) == []
