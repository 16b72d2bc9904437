import subprocess
import sys

import pytest

from turbopump.cli.main import COMMANDS, command_named, main


def test_every_command_in_the_table_has_its_module() -> None:
    for name in COMMANDS:
        command = command_named(name)
        assert callable(command.add_arguments)
        assert callable(command.run)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"usage: turbopump {name}" in capsys.readouterr().out


def test_asked_wrongly_is_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["fly"])
    assert caught.value.code == 2
    assert "fly" in capsys.readouterr().err


def test_a_failure_is_one_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "-c", "/no/such/broker.conf"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "turbopump: /no/such/broker.conf: No such file or directory\n"


def test_sending_needs_none_of_the_servers() -> None:
    servers = {"turbopump.broker.server", "turbopump.namesrv.server", "turbopump.store.store"}
    code = f"import sys, turbopump.cli.send; sys.exit(bool({servers} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
