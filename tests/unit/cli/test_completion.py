"""Completion scripts, run in the installed shells; bash is always there."""

import shutil
import subprocess
from pathlib import Path

import pytest

from turbopump.cli.completion import SHELLS, places
from turbopump.cli.main import COMMANDS, main

CASES = [
    ("turbopump tai", {"tail"}),
    ("turbopump dlq ", {"list", "resend", "export"}),
    ("turbopump --namesrv-none dlq li", {"list"}),
    ("turbopump dlq list --si", {"--since"}),
    ("turbopump send orders hello --de", {"--delay"}),
    ("turbopump export --compression z", {"zstd"}),
    ("turbopump completion f", {"fish"}),
    ("turbopump help quick", {"quickstart"}),
    ("/usr/bin/turbopump doc", {"doctor"}),
    ("turbopump admin consumerPro", {"consumerProgress"}),
    ("mqadmin topicLi", {"topicList"}),
    ("mqadmin help topicLi", {"topicList"}),
    ("mqadmin topicRoute --top", {"--topic"}),
    ("mqbroker --printC", {"--printConfigItem"}),
    ("mqshutdown b", {"broker"}),
]

RUN = {
    "bash": """
source "$1"
line=$2; COMP_WORDS=($line); [[ $line == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_turbopump_complete
printf '%s\\n' "${COMPREPLY[@]}"
""",
    # What the line editor would call is replaced by what prints its words.
    "zsh": """
compdef() { :; }
_files() { :; }
compadd() { shift; print -l -- ${(M)@:#$words[CURRENT]*}; }
_describe() { local -a all=(${(P)2}); print -l -- ${${(M)all:#$words[CURRENT]*}%%:*}; }
source "$1"
words=(${(z)2}); [[ $2 == *' ' ]] && words+=('')
CURRENT=$#words
_turbopump
""",
    "fish": "source $argv[1]; complete -C $argv[2] | string split -f1 \\t",
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("completion")
    for shell, script in SHELLS.items():
        (directory / shell).write_text(script(places()))
    return directory


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("line", "words"), CASES)
def test_a_shell_completes(shell: str, line: str, words: set[str], scripts: Path) -> None:
    if shutil.which(shell) is None and shell != "bash":
        pytest.skip(f"no {shell} here")
    command = [shell, "-c", RUN[shell], *(["-"] if shell != "fish" else []), str(scripts / shell), line]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "HOME": "/"})
    assert done.stderr == ""
    assert set(filter(None, done.stdout.splitlines())) == words


def test_every_command_and_its_options_are_there() -> None:
    found = places()
    assert {word.text for word in found["turbopump"]} >= set(COMMANDS)
    for name in set(COMMANDS) - {"admin"}:
        assert "--help" in {word.text for word in found[f"turbopump {name}"]}


def test_an_unknown_shell_is_asked_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["completion", "tcsh"])
    assert caught.value.code == 2
    assert "tcsh" in capsys.readouterr().err
