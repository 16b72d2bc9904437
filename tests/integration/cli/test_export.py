"""`turbopump export` beside a running broker, and of the directory it left."""

import json
import signal
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.integration.cli.conftest import Home


def sent(home: Home) -> None:
    for number in range(6):
        tag = "even" if number % 2 == 0 else "odd"
        done = home.run("turbopump", "send", "t", f"m{number}", "--key", f"k{number}", "--tag", tag)
        assert done.returncode == 0, done.stderr


def bodies(path: object) -> list[bytes]:
    return sorted(pq.read_table(path).column("body").to_pylist())


def test_a_topic_is_exported_from_its_brokers_and_from_their_directory(home: Home) -> None:
    up = home.up()
    sent(home)
    done = home.run("turbopump", "export", "--topic", "t", "--to", "a.parquet", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 6
    assert bodies(home.path / "a.parquet") == [b"m0", b"m1", b"m2", b"m3", b"m4", b"m5"]
    assert set(pq.read_table(home.path / "a.parquet").column("brokerName").to_pylist()) != {None}
    odd = home.run("turbopump", "export", "--topic", "t", "--tag", "odd", "--to", "odd.parquet")
    assert odd.returncode == 0, odd.stderr
    assert bodies(home.path / "odd.parquet") == [b"m1", b"m3", b"m5"]

    beside = home.run("turbopump", "export", "data", "--scan", "log", "--to", "out/b.parquet")
    assert beside.stdout.startswith("6 messages in 1 files"), beside.stderr
    assert up.stop() == 0
    one = home.run("turbopump", "export", "data", "--topic", "t", "--key", "k4", "--to", "c.parquet")
    assert one.returncode == 0, one.stderr
    assert bodies(home.path / "c.parquet") == [b"m4"]


def test_a_broker_that_is_not_there_is_named_and_no_part_is_taken_for_the_whole(home: Home) -> None:
    up = home.up()
    sent(home)
    known = ("-s", "TURBOPUMP_KNOWN_BROKERS", "-k", "broker-z")
    assert home.run("mqadmin", "updateKvConfig", *known, "-v", "DefaultCluster").returncode == 0
    done = home.run("turbopump", "export", "--topic", "t", "--to", "a.parquet")
    assert done.returncode == 1
    assert (
        "topic t has a part on brokers that are not registered: broker-z; start them, or use --skip"
        in done.stderr
    )
    assert not (home.path / "a.parquet").exists()
    done = home.run("turbopump", "export", "--topic", "t", "--to", "a.parquet", "--skip-missing")
    assert (done.returncode, done.stdout[:10]) == (0, "6 messages")
    assert "broker-z; their messages are missing" in done.stderr
    assert home.run("mqadmin", "deleteKvConfig", *known).returncode == 0
    assert home.run("turbopump", "export", "--topic", "t", "--to", "b.parquet").returncode == 0
    assert up.stop() == 0


def test_a_directory_for_each_topic_day_and_hour(home: Home) -> None:
    up = home.up()
    sent(home)
    assert up.stop() == 0
    done = home.run("turbopump", "export", "data", "--to", "lake", "--by", "topic,date,hour", "--properties")
    assert done.returncode == 0, done.stderr
    table = ds.dataset(home.path / "lake", format="parquet", partitioning="hive").to_table()
    assert sorted(table.column("body").to_pylist()) == [b"m%d" % number for number in range(6)]
    assert set(table.column("topic").to_pylist()) == {"t"}
    stored = {time.strftime("%Y-%m-%d %H") for time in table.column("storeTimestamp").to_pylist()}
    rows = zip(table.column("date").to_pylist(), table.column("hour").to_pylist(), strict=True)
    assert {f"{day} {hour:02}" for day, hour in rows} == stored
    again = home.run("turbopump", "export", "data", "--to", "lake", "--by", "topic")
    assert again.returncode == 1
    assert again.stderr == "turbopump: lake: directory exists and is not empty\n"


def test_what_cannot_be_is_one_line(home: Home) -> None:
    up = home.up()
    sent(home)
    assert up.stop() == 0
    for words, status, told in [
        (("data", "--topic", "tt"), 1, "no topic 'tt'"),
        ((".",), 1, "not a store"),
        (("data", "--columns", "bodi"), 2, "did you mean body"),
        (("data", "--by", "year"), 2, "must be among topic, date, hour"),
        (("data", "--by", "hour", "--columns", "body"), 2, "needs the column storeTimestamp"),
        ((), 2, "give one --topic"),
        (("data", "--since", "yesterday"), 2, "10m"),
    ]:
        done = home.run("turbopump", "export", *words, "--to", "x.parquet")
        assert (done.returncode, told in done.stderr) == (status, True), done.stderr
        assert done.stderr.count("\n") == 1
        assert not [path for path in home.path.iterdir() if path.name.startswith("x.parquet")]


@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGTERM])
def test_what_tail_shows_is_in_a_file_too_with_the_columns_of_an_export(home: Home, ended: int) -> None:
    home.up()
    sent(home)
    first = ("turbopump", "tail", "t", "--from", "first")
    three = home.run(*first, "--tag", "odd", "-n", "3", "--to", "three.parquet")
    assert (three.returncode, three.stdout.count("\n")) == (0, 3), three.stderr
    assert "3 messages" in three.stderr
    assert bodies(home.path / "three.parquet") == [b"m1", b"m3", b"m5"]

    tail = home.start(*first, "--to", "out/all.parquet")
    for _ in range(6):
        tail.wait_for("m[0-5]")
    assert tail.stop(ended) == 0
    done = home.run("turbopump", "export", "--topic", "t", "--to", "exported.parquet")
    assert done.returncode == 0, done.stderr
    assert_same_rows(home.path / "out" / "all.parquet", home.path / "exported.parquet")
    assert not list(home.path.glob("**/*.unfinished"))


def assert_same_rows(first: Path, second: Path) -> None:
    one, other = pq.read_table(first), pq.read_table(second)
    assert one.schema == other.schema
    order = [("queueId", "ascending"), ("queueOffset", "ascending")]
    assert one.sort_by(order).to_pylist() == other.sort_by(order).to_pylist()
