"""What a person types wrongly, and readers that go away: as real processes, with real pipes."""

import os
import subprocess

import pytest
from tests.integration.cli.conftest import PATIENCE_S, PROGRAMS, Home


def typed(home: Home, line: str) -> subprocess.CompletedProcess[bytes]:
    """A line of a shell. The status is that of the first command of a pipe, or of any that failed."""
    environment = {**home.environment, "PATH": f"{PROGRAMS}{os.pathsep}{home.environment['PATH']}"}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        env=environment,
        cwd=home.path,
        timeout=PATIENCE_S,
    )


def test_what_a_broker_refuses_is_told_once_and_is_no_silence(home: Home) -> None:
    home.up()
    sent = home.run("turbopump", "send", "SCHEDULE_TOPIC_XXXX", "x")
    assert sent.returncode == 1
    (line,) = sent.stderr.splitlines()
    assert line.startswith("turbopump: refused: NO_PERMISSION")
    assert line.count("NO_PERMISSION") == 1
    assert "no answer" not in line


@pytest.mark.parametrize(
    ("line", "status", "blamed"),
    [
        ("turbopump send hello <&-", 2, "stdin is closed"),
        (r"turbopump send $'a\xff' x", 2, r"'a\udcff'"),
        (r"turbopump send t x --tag $'a\xff'", 2, r"'a\udcff'"),
        (r"turbopump send t x --key $'a\xff'", 2, r"'a\udcff'"),
        (r"mqadmin sendMessage -t $'a\xff' -p x", 2, r"'a\udcff'"),
        ("turbopump send t x --tag $(printf 'a%.0s' $(seq 40000))", 2, "got 40058"),
        ("mqadmin topicList -n 127.0.0.1:99999", 2, "127.0.0.1:99999"),
        ("NAMESRV_ADDR=' ' turbopump health", 2, "NAMESRV_ADDR must name at least one server, got ' '"),
        ("turbopump tail 'bad topic'", 2, "'bad topic'"),
        ("turbopump up --host nosuch.invalid --namesrv-port 0 --broker-port 0", 1, "nosuch.invalid"),
        ("turbopump up --host a..b --namesrv-port 0 --broker-port 0", 2, "a..b"),
    ],
)
def test_bad_input_is_one_line_and_a_status(home: Home, line: str, status: int, blamed: str) -> None:
    done = typed(home, line)
    assert done.returncode == status, done.stderr
    (told,) = done.stderr.decode().splitlines()
    assert blamed in told
    assert done.stdout == b""


def test_a_broker_does_not_begin_a_log_beside_that_of_a_dledger_node(home: Home) -> None:
    data = home.path / "old" / "store" / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / f"{0:020}").write_bytes(bytes(65536))
    (home.path / "broker.conf").write_text(f"storePathRootDir={home.path / 'old' / 'store'}\nlistenPort=0\n")
    done = typed(home, "turbopump broker -c broker.conf")
    assert done.returncode == 1
    assert "DLedger node n0" in done.stderr.decode()
    assert not (home.path / "old" / "store" / "commitlog").exists()


def test_a_body_that_is_no_text_is_sent_as_its_bytes(home: Home) -> None:
    home.up()
    assert typed(home, r"turbopump send raw $'\xff\xfe'").returncode == 0
    read = home.run("turbopump", "tail", "raw", "--from", "first", "-n", "1")
    assert read.stdout.endswith("| \\xff\\xfe\n")


def test_a_reader_who_goes_away_is_no_failure(home: Home) -> None:
    home.up()
    for line in (
        "turbopump send t first | true",
        "turbopump send t second | true",
        "turbopump health | true",
        "turbopump --help | true",
        "mqadmin topicList | true",
    ):
        done = typed(home, line)
        assert (done.returncode, done.stderr) == (0, b""), line
    # All that they print is more than a pipe holds, or ends when nobody reads it: else it would wait.
    body = home.path / "body"
    body.write_bytes(b"x" * 100_000)
    assert typed(home, "turbopump send t < body").returncode == 0
    for line in ("turbopump store dump data | head -1", "turbopump tail t --from first | head -1"):
        done = typed(home, line)
        assert (done.returncode, done.stderr) == (0, b""), line
        assert done.stdout.endswith(b"first\n"), line
    done = typed(home, "turbopump quickstart consumer --topic t --group g | head -1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"SCHEDULE_TOPIC_XXXX" not in typed(home, "turbopump store dump data").stdout  # nor sent back


@pytest.mark.parametrize(
    "line", ["turbopump send t x --namesrv 127.0.0.1:1 2>&-", "turbopump store verify data 2>&-"]
)
def test_without_a_stderr_nothing_but_output_is_on_stdout(home: Home, line: str) -> None:
    home.up().stop()
    done = typed(home, line)
    is_verify = "verify" in line
    assert (done.returncode, b"records" in done.stdout) == (not is_verify, is_verify)
    assert b"no answer" not in done.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has it")
@pytest.mark.parametrize(
    "line",
    [
        "turbopump tail t --from first -n 1",
        "turbopump send t x",
        "turbopump --help",
        "PYTHONUNBUFFERED=1 turbopump --version",
    ],
)
def test_output_that_finds_no_room_is_not_blamed_on_servers(home: Home, line: str) -> None:
    home.up()
    assert typed(home, "turbopump send t x").returncode == 0
    done = typed(home, f"{line} > /dev/full")
    assert done.returncode == 1
    (told,) = done.stderr.decode().splitlines()
    assert told.endswith("No space left on device")
    assert "no answer" not in told
