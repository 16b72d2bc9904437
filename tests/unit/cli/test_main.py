import subprocess
import sys
from pathlib import Path

import pytest

from turbopump.cli.main import COMMANDS, command_named, main
from turbopump.cli.mq import shutdown


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


def test_the_help_is_prose_and_no_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert "RocketMQ in Python" in told
    assert "import" not in told


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_page_about_commands(name: str) -> None:
    page = Path(__file__).parents[3] / "docs/commands.md"
    headings_and_rows = [line for line in page.read_text().splitlines() if line.startswith(("#", "|"))]
    assert any(f"`turbopump {name}" in line for line in headings_and_rows)


UNDECODABLE = b"a\xff".decode("utf-8", "surrogateescape")  # how Python hands over $'a\xff'


@pytest.mark.parametrize(
    ("words", "blamed"),
    [
        ("send t x --namesrv 127.0.0.1:99999", "'127.0.0.1:99999'"),
        ("tail t --namesrv 127.0.0.1:99999", "'127.0.0.1:99999'"),
        ("health 127.0.0.1:99999", "'127.0.0.1:99999'"),
        ("dlq list g --namesrv 127.0.0.1:99999", "'127.0.0.1:99999'"),
        ("admin topicList -n 127.0.0.1:99999", "'127.0.0.1:99999'"),
        ("send t x --namesrv a..b:9876", "'a..b:9876'"),
        (f"send t x --namesrv {UNDECODABLE}:9876", r"'a\udcff:9876'"),
        (f"send t x --tag {'a' * 40_000}", "40058 bytes"),
        (f"send {UNDECODABLE} x", r"'a\udcff'"),
        (f"send t x --tag {UNDECODABLE}", r"'a\udcff'"),
        (f"send t x --key {UNDECODABLE}", r"'a\udcff'"),
        (f"admin sendMessage -t {UNDECODABLE} -p x", r"'a\udcff'"),
        ("health --namesrv ;", "--namesrv ';' names no server"),
        ("send b@d x", "'b@d'"),
        ("tail b@d", "'b@d'"),
        ("tail t -n -5", "-5 is not a number from 0 on"),
        ("store dump . -n -3", "-3 is not a number from 0 on"),
        ("quickstart producer -n -1", "-1 is not a number from 0 on"),
        ("quickstart consumer -n -1", "-1 is not a number from 0 on"),
        ("dlq list g -n -1", "-1 is not a number from 0 on"),
        ("timers list -n -1", "-1 is not a number from 0 on"),
        ("transactions list -n -1", "-1 is not a number from 0 on"),
        ("tail", "TOPIC"),
        ("up --fly", "--fly"),
        ("fly", "'fly'"),
        ("store fly", "'fly'"),
    ],
)
def test_bad_input_is_status_two_and_one_line(
    words: str, blamed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(words.split()) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert blamed in line
    assert captured.out == ""


def status_of(words: list[str]) -> int | str | None:
    try:
        return main(words)
    except SystemExit as ended:  # how argparse leaves
        return ended.code


def test_a_list_of_name_servers_in_the_environment_must_name_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", " ; ")
    assert main(["health"]) == 2
    assert capsys.readouterr().err == "turbopump: NAMESRV_ADDR ' ; ' names no server\n"


def test_a_body_from_stdin_needs_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as after `<&-`
    assert main(["send", "t"]) == 2
    assert capsys.readouterr().err == "turbopump: there is no stdin to read the body from\n"


def test_none_is_enough_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "t", "-n", "0", "--namesrv", "127.0.0.1:1"]) == 0
    assert capsys.readouterr().out == ""


def test_ctrl_c_while_a_command_is_imported_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("turbopump.cli.main.command_named", interrupted)
    assert main(["send", "t", "x"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("program", ["main", "mq", "admin"])
def test_a_program_begins_before_it_imports_much(program: str) -> None:
    """Until then nobody could catch Ctrl-C."""
    code = f"import sys, turbopump.cli.{program}; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_shutdown_explains_itself(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mqshutdown", word])
    assert shutdown() == 0
    assert capsys.readouterr().out.startswith("Usage: mqshutdown broker | namesrv\n")


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
