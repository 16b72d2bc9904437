from pathlib import Path

import pytest

from turbopump.cli.broker import load
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.failures import CommandFailure
from turbopump.cli.mq import broker

EXAMPLE = Path(__file__).parents[3] / "examples/broker.conf"


def test_the_example_configuration_is_accepted_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    loaded = load(ConfFile.read(str(EXAMPLE)), {})
    assert loaded.warnings == ()
    assert loaded.config.identity.broker_name == "broker-a"


def test_the_flag_wins_over_the_file_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    file = ConfFile("broker.conf", b"namesrvAddr = 10.0.0.2:9876\n")
    assert load(file, {}).config.name_servers.addresses == ("10.0.0.1:9876",)
    assert load(file, {"namesrvAddr": "10.0.0.3:9876"}).config.name_servers.addresses == ("10.0.0.3:9876",)


def test_a_mistake_in_a_file_is_blamed_on_the_file_and_one_in_a_flag_is_not() -> None:
    with pytest.raises(CommandFailure, match=r"^broker\.conf: line 1: listenPort"):
        load(ConfFile("broker.conf", b"listenPort = x\n"), {})
    with pytest.raises(CommandFailure, match=r"^flag for namesrvAddr"):
        load(ConfFile("broker.conf", b""), {"namesrvAddr": "nowhere"})


@pytest.mark.parametrize("flag", ["-p", "-m"])
def test_printing_the_configuration_names_the_keys_without_effect(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    file = tmp_path / "broker.conf"
    file.write_text("sendMessageThreadPoolNums=128\nreviveInterval=1\ntransactionCheckInterval=10\nxyzzy=1\n")
    monkeypatch.setattr("sys.argv", ["mqbroker", "-c", str(file), flag])
    assert broker() == 0
    printed = capsys.readouterr()
    assert "brokerName=" in printed.out
    assert "xyzzy" not in printed.out
    assert printed.err.splitlines() == [
        "WARNING line 3: transactionCheckInterval=10 means 10 milliseconds, not seconds; "
        "for 10 seconds write transactionCheckInterval=10000",
        "WARNING line 4: xyzzy: unknown key, no effect",
        "WARNING not supported yet, no effect: reviveInterval in line 2 (POP consumption)",
        "WARNING keys without effect here: sendMessageThreadPoolNums",
    ]
