import time
from types import SimpleNamespace

import pytest

from turbopump.pipelines.jobs.catalog import JOBS
from turbopump.pipelines.jobs.checks import check, texts_of
from turbopump.pipelines.jobs.session import INITIAL, PARTITIONS, _set_partitions, java_version
from turbopump.pipelines.jobs.spec import BadSpec, given_by
from turbopump.runtime.clock import SystemClock


def checked(job, file=None, **line):
    typed = {name.rstrip("_"): value for name, value in line.items()}
    given = given_by(JOBS[job].flags, file or {}, typed, job, SystemClock())
    check(job, given, JOBS[job].check)
    return given


@pytest.mark.parametrize(
    ("job", "line", "words"),
    [
        ("archive", {"from_": "topic:A", "to": "topic:B"}, "writes delta:DIR or parquet:DIR"),
        (
            "archive",
            {"from_": "topic:A", "to": "delta:D", "partition_by": "size"},
            "some of topic, date, hour",
        ),
        ("archive", {"to": "delta:D"}, "needs --from"),
        ("archive", {"from_": "topic:A"}, "needs --to"),
        (
            "archive",
            {"from_": "delta:A", "to": "delta:D", "follow": True},
            "--follow must read a topic, got delta:",
        ),
        (
            "archive",
            {"from_": "topic:A", "to": "delta:D", "follow": True, "until": "1h"},
            "--follow never ends",
        ),
        (
            "archive",
            {"from_": "topic:A", "to": "delta:D", "since": "1h", "until": "2h"},
            "must be before --until",
        ),
        ("archive", {"from_": "topic:A", "to": "delta:D", "options": ["tag=x"]}, "did you mean tags"),
        ("archive", {"from_": "log:A", "to": "delta:D", "options": ["scan=x"]}, "queue, log"),
        ("archive", {"from_": "topic:A", "to": "delta:D", "allow": "rows"}, "some of late, malformed"),
        ("replay", {"from_": "delta:D", "to": "delta:E"}, "writes topic:NAME"),
        ("replay", {"from_": "topic:A", "to": "topic:A"}, "into itself"),
        (
            "replay",
            {"from_": "topic:A", "to": "topic:B", "options": ["minPartitions=4"]},
            "would split queues",
        ),
        ("transform", {"from_": "topic:A", "to": "topic:B"}, "needs --sql"),
        (
            "transform",
            {"from_": "topic:A", "to": "topic:B", "sql_file": "/no/such"},
            "sql-file=/no/such: No such",
        ),
        ("stats", {"from_": "topic:A", "by": "colour"}, "some of topic, queue"),
        ("stats", {"from_": "topic:A", "report": "/no/such/x.html"}, "the directory /no/such does not exist"),
        ("verify", {"from_": "topic:A"}, "reads log:DIR"),
        ("dlq", {"from_": "topic:A"}, "reads dlq:GROUP"),
    ],
)
def test_a_job_that_was_asked_wrongly_says_what_it_wants_before_spark_starts(job, line, words):
    with pytest.raises(BadSpec, match=words):
        checked(job, **line)


def test_a_time_on_the_line_is_local_and_says_which(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        since = checked("stats", from_="topic:A", since="2026-11-01T12:00")["since"]
        assert since.with_zone() == "2026-11-01T12:00:00+09:00"
        with pytest.raises(BadSpec, match="must have a time zone"):
            checked("stats", {"since": "2026-11-01T12:00"}, from_="topic:A")
        assert checked("stats", {"since": "2026-11-01T12:00Z"}, from_="topic:A")["since"].ms == 1793534400000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_sql_in_a_file_counts_as_its_text(tmp_path):
    file = tmp_path / "q.sql"
    file.write_text("SELECT 1")
    given = checked("transform", from_="topic:A", to="topic:B", sql_file=str(file))
    assert texts_of(given) == {"sql": "SELECT 1"}


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ("", None),
    ],
)
def test_the_version_of_java(said, version):
    assert java_version(said) == version


@pytest.mark.parametrize(
    ("conf", "partitions"),
    [
        ({}, {PARTITIONS: "2", INITIAL: "200"}),
        ({PARTITIONS: "7"}, {}),
        ({INITIAL: "50"}, {PARTITIONS: "2", INITIAL: "50"}),
    ],
)
def test_a_shuffle_has_as_many_partitions_as_there_are_cores_unless_it_was_chosen(conf, partitions):
    settings = {}
    spark = SimpleNamespace(
        conf=SimpleNamespace(set=settings.__setitem__), sparkContext=SimpleNamespace(defaultParallelism=2)
    )
    _set_partitions(spark, conf)
    assert settings == partitions


def test_durations_are_the_same_text_for_the_same_time():
    texts = {
        checked("dedupe", from_="topic:A", to="topic:B", within=text)["within"]
        for text in ("10m", "10 minutes", "600s", None)
    }
    assert texts == {"600000 milliseconds"}
    assert (
        checked("dedupe", from_="topic:A", to="topic:B", within="60d")["within"] == "5184000000 milliseconds"
    )
