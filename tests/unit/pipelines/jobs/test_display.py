import io
import json
import re
from datetime import UTC, datetime

from turbopump.pipelines.jobs.display import MAX_ROWS_SHOWN, Display, JobResult, ResultTable
from turbopump.pipelines.jobs.report import LETTER, WIDTH, BarChart, LineChart, page, ticks

WHEN = datetime(2026, 11, 1, 12, tzinfo=UTC)
ROWS = [
    {"topic": "A", "messages": 1200, "first": WHEN, "body": b"\xff"},
    {"topic": "B", "messages": 7, "first": None, "body": None},
]


def table(rows=ROWS):
    return ResultTable("groups", "By topic", rows, ("topic", "messages", "first", "body"))


def test_a_table_has_numbers_to_the_right_and_a_dash_for_nothing():
    assert table().lines()[2:] == [
        "topic  messages  first                body",
        "A         1,200  2026-11-01 12:00:00  \\xff",
        "B             7  -                    -",
    ]


def test_a_long_table_says_how_much_is_left_out():
    lines = table([ROWS[1]] * (MAX_ROWS_SHOWN + 3)).lines()
    assert lines[-1] == "... and 3 more"
    assert table([]).lines()[-1] == "(nothing)"


def test_machines_get_one_document():
    out = io.StringIO()
    Display(is_json=True, out=out).show(JobResult({"rows": 2}, [table()]))
    found = json.loads(out.getvalue())
    assert found["rows"] == 2
    assert found["groups"][0] == {"topic": "A", "messages": 1200, "first": WHEN.isoformat(), "body": "\\xff"}


def test_people_get_tables_and_a_line():
    out = io.StringIO()
    Display(out=out).show(JobResult({"rows": 1234, "rowsPerSecond": 0.5}, [table()]))
    assert out.getvalue().endswith("\nrows 1,234, rows per second 0.500\n")


def test_a_page_holds_charts_and_tables_and_escapes_what_messages_say():
    evil = "<script>alert(1)</script>"
    outcome = JobResult({"from": evil}, [table([{"topic": evil, "messages": 1}])])
    charts = [
        BarChart("Messages", [(evil, 3.0), ("b", 0)]),
        LineChart("Over time", [(evil, [(0, 1), (60, 4)])]),
    ]
    text = page(f"stats of {evil}", outcome, charts)
    assert "<script>" not in text
    assert text.count("<rect") == 3
    assert text.count("<polyline") == 1


def test_a_page_of_nothing_is_still_a_page():
    text = page("stats", JobResult({}, [table([])]), [BarChart("Messages", []), LineChart("Over time", [])])
    assert "(nothing)" in text


def test_axes_have_round_numbers_and_times():
    assert ticks(7) == [0, 2, 4, 6, 8]
    assert ticks(1234) == [0, 500, 1000, 1500]
    assert ticks(0) == [0, 1]
    assert ticks(0.3) == [0, 0.1, 0.2, 0.3]
    begin = WHEN.timestamp()
    drawn = LineChart("Over time", [("a", [(begin, 3), (begin + 7200, 1234)])]).svg()
    texts = re.findall(r"<text[^>]*>([^<]*)", drawn)
    assert texts == [
        "0",
        "500",
        "1,000",
        "1,500",
        "12:00",
        "2026-11-01 UTC",
        "12:30",
        "13:00",
        "13:30",
        "14:00",
        "a",
    ]


def test_nothing_is_drawn_outside_of_a_chart():
    begin = WHEN.timestamp()
    name = "a-very-long-name-of-a-topic-and-of-a-consumer-group"
    charts = [
        BarChart("Messages", [(f"{name}{n}", 10.0 ** (n % 10)) for n in range(40)]),
        LineChart("Over time", [(f"{name}{n}", [(begin, n), (begin + 90_000, 10**n)]) for n in range(12)]),
    ]
    for chart in charts:
        drawn = chart.svg()
        height = float(re.search(r'viewBox="0 0 \d+ ([\d.]+)"', drawn)[1])
        for x, y, anchor, text in re.findall(
            r'<text x="([\d.-]+)" y="([\d.-]+)" text-anchor="(\w+)"[^>]*>([^<]*)', drawn
        ):
            width = len(text) * LETTER
            left = float(x) - {"start": 0, "middle": width / 2, "end": width}[anchor]
            assert left >= -1, text
            assert left + width <= WIDTH + 1, text
            assert 0 <= float(y) <= height, text
        assert "more" in drawn
    assert 'class="wide"' in page("stats", JobResult({}, [table()]), charts)
