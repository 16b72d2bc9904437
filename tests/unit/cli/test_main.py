import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbopump.cli.main import COMMANDS, EXAMPLES, command_named, main, parser_of
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
    printed = capsys.readouterr().out
    assert "RocketMQ in Python" in printed
    assert "import" not in printed


def test_the_program_alone_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert all(f"  {name} " in printed.out for name in COMMANDS)
    assert "example" in printed.out


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_help_is_what_the_program_alone_prints(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    alone = capsys.readouterr().out
    assert status_of(words) == 0
    assert capsys.readouterr().out == alone


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("help send", "usage: turbopump send "),
        ("help dlq resend", "usage: turbopump dlq resend "),
        ("help admin topicList", "usage: mqadmin topicList"),
        ("help help", "usage: turbopump help "),
    ],
)
def test_help_explains_a_command(words: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(words.split()) == 0
    assert capsys.readouterr().out.startswith(usage)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("sned t x", "turbopump: there is no command 'sned' (did you mean send?); see turbopump --help"),
        ("stroe", "turbopump: there is no command 'stroe' (did you mean store?); see turbopump --help"),
        ("help sned", "turbopump: there is no command 'sned' (did you mean send?); see turbopump --help"),
        (
            "dlq lst g",
            "turbopump dlq: there is no action 'lst' (did you mean list?); see turbopump dlq --help",
        ),
        (
            "store fly .",
            "turbopump store: there is no action 'fly' (choose from verify, rebuild, backup, dump); "
            "see turbopump store --help",
        ),
        ("tail t --fly", "turbopump tail: unrecognized arguments: --fly; see turbopump tail --help"),
        (
            "dlq list g --fly",
            "turbopump dlq list: unrecognized arguments: --fly; see turbopump dlq list --help",
        ),
        ("--fly", "turbopump: unrecognized arguments: --fly; see turbopump --help"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant_and_the_right_help(
    words: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(words.split()) == 2
    assert capsys.readouterr().err == f"{line}\n"


def parsers_of(name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Returns the parsers of a command and of its actions; those of jobs are in another table."""
    parser = parser_of(name, f"turbopump {name}")
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and name != "pipeline":
            yield from ((f"{name} {each}", child) for each, child in action.choices.items())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_text_keeps_its_capitals_and_has_an_example(command: str) -> None:
    for name, parser in parsers_of(command):
        printed = parser.format_help()
        assert f"example:\n  turbopump {name}" in printed or "examples:\n" in printed or name == "completion"
        assert "rocketmq's quick start" not in printed
        assert parser.description is not None
        assert parser.description[0].isupper()
        assert parser.description.endswith(".")


def test_capitals_within_a_summary_stay() -> None:
    assert "RocketMQ's quick start" in (parser_of("quickstart", "turbopump quickstart").description or "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_can_be_read_by_the_command_it_is_of(name: str) -> None:
    for line in EXAMPLES[name].splitlines():
        words = shlex.split(line.partition("<(")[2].rstrip(")") or line, comments=True)
        words = words[: words.index("<")] if "<" in words else words
        assert words[:2] == ["turbopump", name]
        if "--help" not in words:
            parser_of(name, f"turbopump {name}").read(words[2:])


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
        (f"send t x --tag {'a' * 40_000}", "got 40058"),
        (f"send {UNDECODABLE} x", r"'a\udcff'"),
        (f"send t x --tag {UNDECODABLE}", r"'a\udcff'"),
        (f"send t x --key {UNDECODABLE}", r"'a\udcff'"),
        (f"admin sendMessage -t {UNDECODABLE} -p x", r"'a\udcff'"),
        ("health --namesrv ;", "--namesrv must name at least one server, got ';'"),
        ("send b@d x", "'b@d'"),
        ("tail b@d", "'b@d'"),
        ("tail t -n -5", "must be a number of 0 or more, got '-5'"),
        ("store dump . -n -3", "must be a number of 0 or more, got '-3'"),
        ("quickstart producer -n -1", "must be a number of 0 or more, got '-1'"),
        ("quickstart consumer -n -1", "must be a number of 0 or more, got '-1'"),
        ("dlq list g -n -1", "must be a number of 0 or more, got '-1'"),
        ("timers list -n -1", "must be a number of 0 or more, got '-1'"),
        ("transactions list -n -1", "must be a number of 0 or more, got '-1'"),
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
    except SystemExit as left:  # how argparse exits
        return left.code


def test_a_list_of_name_servers_in_the_environment_must_name_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", " ; ")
    assert main(["health"]) == 2
    assert capsys.readouterr().err == "turbopump: NAMESRV_ADDR must name at least one server, got ' ; '\n"


def test_a_body_from_stdin_needs_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as after `<&-`
    assert main(["send", "t"]) == 2
    assert capsys.readouterr().err == "turbopump: cannot read the body: stdin is closed\n"


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
    """Before that, Ctrl-C cannot be caught."""
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
