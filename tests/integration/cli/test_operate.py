"""The commands of docs/operate.md, as they are written there."""

import os
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from tests.integration.cli.conftest import PATIENCE_S, PROGRAMS, Home

ROOT = Path(__file__).parents[3]
TESTED = re.compile(r"<!-- tested: (\w+) -->\n```sh\n(.*?)```", re.DOTALL)
BLOCKS = dict(TESTED.findall((ROOT / "docs/operate.md").read_text()))
UNITS = sorted((ROOT / "packaging").glob("*.service"))


def run(name: str, home: Home, **variables: str) -> str:
    environment = {**home.environment, **variables}
    environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-u", "-c", BLOCKS[name]],
        capture_output=True,
        text=True,
        env=environment,
        cwd=home.path,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_backup_beside_a_running_broker(home: Home) -> None:
    up = home.up()
    for number in range(5):
        assert home.run("turbopump", "send", "orders", f"m{number}").returncode == 0
    assert "sound" in run("backup", home)
    assert up.stop() == 0
    shutil.rmtree(home.path / "data")
    (home.path / "backup").rename(home.path / "data")
    restored = home.up()
    seen = home.run("turbopump", "tail", "orders", "--from", "first", "-n", "5").stdout
    assert all(f"m{number}" in seen for number in range(5))
    assert restored.stop() == 0


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_file_starts_a_command_that_we_install(path: Path) -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    program, *words = unit["Service"]["ExecStart"].split()
    assert (PROGRAMS / Path(program).name).exists()
    shown = subprocess.run([PROGRAMS / Path(program).name, "--help"], capture_output=True, text=True).stdout
    assert all(word in shown for word in words if word.startswith("-") and word != "-")
