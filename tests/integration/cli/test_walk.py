"""The transcript of docs/quickstart.md: each command is typed, and prints what the page says."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.integration.cli.conftest import Home

PAGE = Path(__file__).parents[3] / "docs/quickstart.md"
WALK = re.compile(r"<!-- walk -->\n```console\n(.*?)```", re.DOTALL)
ANYTHING = "…"


def steps(text: str) -> list[tuple[str, list[str]]]:
    """Commands and the lines that the page shows below each."""
    found: list[tuple[str, list[str]]] = []
    for block in WALK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def looks_like(shown: list[str], printed: list[str]) -> bool:
    """`…` in a line stands for any text, alone in a line for any lines."""
    lines = [
        r"(?:.*\n)*" if line == ANYTHING else ".*".join(map(re.escape, line.split(ANYTHING))) + r"\n"
        for line in shown
    ]
    return re.fullmatch("".join(lines), "".join(f"{line.rstrip()}\n" for line in printed)) is not None


def test_the_walk_of_the_quick_start(home: Home) -> None:
    walk = steps(PAGE.read_text())
    assert len(walk) > 6
    up = home.up()
    for command, shown in walk:
        done = home.run(*shlex.split(command))
        printed = (done.stdout + done.stderr).splitlines()
        assert looks_like(shown, printed), f"$ {command}\n{done.stdout[-3000:]}{done.stderr}"
    assert up.stop() == 0


def test_make_run_is_what_the_walk_starts() -> None:
    told = subprocess.run(["make", "-n", "run"], cwd=PAGE.parents[1], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "turbopump up --data ./data" in told.stdout


def test_make_run_starts_the_servers_though_pyspark_cannot_be_had(tmp_path: Path) -> None:
    """In an environment whose `pip` fails and whose `turbopump` only says how it was called."""
    (tmp_path / "bin").mkdir()
    for program, script in {"python": "exit 1", "turbopump": 'echo "turbopump $*"'}.items():
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    for stamp in (".python", ".run"):
        (tmp_path / stamp).touch()
    ran = subprocess.run(
        ["make", "run", f"VENV={tmp_path}"],
        cwd=PAGE.parents[1],
        capture_output=True,
        text=True,
        env={
            "PATH": os.environ["PATH"],
            "JAVA_HOME": "/nowhere",
        },  # nothing of the `make` that runs this test
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == "PySpark could not be had: the pipeline is left out\n"
    assert ran.stdout.splitlines()[-1] == "turbopump up --data ./data --demo"
    assert not (tmp_path / ".shown").exists()


def test_a_transcript_is_compared_line_by_line() -> None:
    assert looks_like(["a … c", "…", "z"], ["a b c", "1", "2", "z"])
    assert looks_like(["a", "…"], ["a  "])
    assert not looks_like(["a"], ["a", "b"])
    assert not looks_like(["a … c"], ["a b d"])
