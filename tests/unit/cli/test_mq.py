"""Apache's command names and scripts."""

import pytest

from turbopump.cli import mq
from turbopump.cli.running_servers import plays


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, list[str]]]:
    calls: list[tuple[str, str, list[str]]] = []

    def main_as(name: str, program: str, words: list[str]) -> int:
        calls.append((name, program, words))
        return 0

    monkeypatch.setattr(mq, "main_as", main_as)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return calls


PRODUCER = "org.apache.rocketmq.example.quickstart.Producer"


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        (PRODUCER, "quickstart", ["producer"]),
        ("org.apache.rocketmq.example.quickstart.Consumer -n 5", "quickstart", ["consumer", "-n", "5"]),
        ("-server -cp a:b org.apache.rocketmq.namesrv.NamesrvStartup -c x", "namesrv", ["-c", "x"]),
        ("-Xms256m org.apache.rocketmq.broker.BrokerStartup -n a:9876", "broker", ["-n", "a:9876"]),
        ("org.apache.rocketmq.tools.command.MQAdminStartup topicList", "admin", ["topicList"]),
    ],
)
def test_a_class_is_a_command(
    line: str, name: str, words: list[str], called: list[tuple[str, str, list[str]]]
) -> None:
    assert mq.run_class("tools.sh", line.split()) == 0
    ((asked, program, given),) = called
    assert (asked, given) == (name, words)
    assert program.startswith("tools.sh org.apache.rocketmq.")


def test_a_jvm_option_without_effect_is_named_and_the_address_is_taken(
    called: list[tuple[str, str, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mq.os, "environ", environ := {})
    words = ["-Xms256m", "-Drocketmq.namesrv.addr=10.0.0.5:9876", PRODUCER]
    assert mq.run_class("tools.sh", words) == 0
    assert environ == {"NAMESRV_ADDR": "10.0.0.5:9876"}
    assert capsys.readouterr().err == "tools.sh: JVM options have no effect: -Xms256m\n"


@pytest.mark.parametrize("words", [[], ["-Xms1g"], ["org.apache.rocketmq.proxy.ProxyStartup"]])
def test_an_unknown_class_is_asked_wrongly(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert mq.run_class("tools.sh", words) == 2
    assert PRODUCER in capsys.readouterr().err


def test_scripts_play_the_role_of_their_class() -> None:
    script = ["python3", "/opt/bin/runbroker.sh", "-Xms1g", "org.apache.rocketmq.broker.BrokerStartup"]
    assert plays("broker", script)
    assert not plays("namesrv", script)
    assert plays("namesrv", ["python3", "runserver.sh", "org.apache.rocketmq.namesrv.NamesrvStartup"])
    assert not plays("broker", ["python3", "runbroker.sh"])
