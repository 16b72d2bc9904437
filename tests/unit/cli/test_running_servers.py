from pathlib import Path

import pytest

from turbopump.cli import mq
from turbopump.cli.running_servers import plays, running


@pytest.mark.parametrize(
    "command",
    [
        "/usr/bin/python3 /home/me/.venv/bin/mqbroker -c broker.conf",
        "python3.12 -X importtime /usr/local/bin/turbopump broker -n localhost:9876",
        "python -m turbopump up --data x",
        "/usr/local/bin/turbopump up",
    ],
)
def test_a_broker_is_known_by_its_command_line(command: str) -> None:
    assert plays("broker", command.split())


@pytest.mark.parametrize(
    "command",
    [
        "",
        "vim mqbroker",
        "grep -r turbopump broker",
        "python turbopump_broker.py",
        "/usr/bin/python3 /usr/local/bin/turbopump send broker hello",
        "/usr/bin/python3 /usr/local/bin/mqnamesrv",
        "java org.apache.rocketmq.broker.BrokerStartup",
    ],
)
def test_other_command_lines_are_left_alone(command: str) -> None:
    assert not plays("broker", command.split())


def test_running_servers_are_found_by_reading_proc(tmp_path: Path) -> None:
    for pid, words in {
        "12": "python\0-m\0turbopump\0up\0",
        "7": "python\0/bin/mqbroker\0",
        "8": "bash\0",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_text(words)
    (tmp_path / "self").mkdir()
    (tmp_path / "99").mkdir()  # ended between the listing and the reading
    assert running("broker", tmp_path) == [7, 12]
    assert running("namesrv", tmp_path) == [12]


def test_shutdown_speaks_the_words_of_apaches_script(capsys: pytest.CaptureFixture[str]) -> None:
    killed = []
    assert mq.stop("mqbroker", [41], lambda pid, number: killed.append((pid, number))) == 0
    assert killed == [(41, 15)]
    assert capsys.readouterr().out.splitlines() == [
        "The mqbroker(41) is running...",
        "Send shutdown request to mqbroker(41) OK",
    ]


def test_shutdown_of_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert mq.stop("mqnamesrv", [], lambda pid, number: None) == 1
    assert capsys.readouterr().out == "No mqnamesrv running.\n"
