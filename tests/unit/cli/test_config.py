"""`turbopump config check`: lists all problems of a file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from turbopump.cli.config import Problem, load_broker, load_namesrv, problems, without_line
from turbopump.cli.main import main

BROKER = """brokerName = broker-a
flushDiskTyp = SYNC_FLUSH
listenPort = many
somethingElse = 1
sendMessageThreadPoolNums = 16
brokerIP1 = 127.0.0.1
fileReservedTime = \\
   soon
brokerId = 1
"""


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    monkeypatch.setenv("HOME", str(tmp_path))

    def write(text: str, name: str = "broker.conf") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_every_problem_is_named_with_its_line(conf: Callable[[str], str]) -> None:
    texts = [f"{one.kind}: {one.text}" for one in problems(BROKER.encode(), load_broker)]
    for wanted in (
        "refused: line 2: flushDiskTyp: unknown key; did you mean flushDiskType?",
        "refused: line 3: listenPort: must be a port from 0 to 65535, got 'many'",
        "refused: line 7: fileReservedTime: must be ",
        "refused: line 9: brokerId: a master must have the id 0",
        "warning: line 4: somethingElse: unknown key, no effect",
        "warning: keys without effect here: sendMessageThreadPoolNums",
        "warning: brokerIP1=127.0.0.1: clients on other machines",
    ):
        assert any(text.startswith(wanted) for text in texts), (wanted, texts)
    assert len(texts) == 7


def test_what_wins_over_the_file_is_named(
    conf: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURBOPUMP_FLUSH_DISK_TYPE", "SYNC_FLUSH")
    found = problems(b"flushDiskType=ASYNC_FLUSH", load_broker)
    wins = "line 1: flushDiskType: overridden by the environment variable TURBOPUMP_FLUSH_DISK_TYPE"
    assert found == [Problem("warning", wins)]


def test_a_wrong_environment_is_named(conf: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURBOPUMP_LISTEN_PORT", "many")
    (found,) = problems(b"", load_broker)
    assert found.kind == "refused"
    assert "TURBOPUMP_LISTEN_PORT" in found.text


def test_a_name_server_has_its_own_keys(conf: Callable[[str], str]) -> None:
    text = b"listenPort=9876\nclusterTest=true\nbrokerName=a\nlistenPrt=1"
    assert [one.text for one in problems(text, load_namesrv)] == [
        "line 4: listenPrt: unknown key; did you mean listenPort?",
        "line 2: clusterTest: has no effect",
        "line 3: brokerName: unknown key, no effect",
    ]


def test_lines_keep_their_numbers() -> None:
    assert without_line(b"a=1\nb=\\\r\n 2\nc=3", 2) == b"a=1\n\n\nc=3"


@pytest.mark.parametrize(
    ("text", "flags", "status"),
    [
        ("brokerName=a", (), 0),
        ("unheardOf=1", (), 1),
        ("unheardOf=1", ("--lenient",), 0),
        ("listenPort=x", ("--lenient",), 1),
    ],
)
def test_the_exit_status(
    text: str,
    flags: tuple[str, ...],
    status: int,
    conf: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = conf(text)
    assert main(["config", "check", path, *flags]) == status
    assert path in capsys.readouterr().out


def test_json_and_the_role_by_the_name_of_the_file(
    conf: Callable[[str, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", "--json", conf("clusterTest=true", "namesrv.conf")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["role"] == "namesrv"
    assert found["problems"] == [{"kind": "warning", "text": "line 1: clusterTest: has no effect"}]


def test_a_file_that_is_not_there_is_asked_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "/no/such.conf"]) == 2
    assert "No such file" in capsys.readouterr().err
