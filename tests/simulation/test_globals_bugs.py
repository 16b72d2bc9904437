"""Errors planted into global transactions: the judge of the world `globals` finds each within some seeds.

Each is planted in a process of its own: no other test runs in one in which code was replaced.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.globals.bugs import BUGS, PlantedBug

ROOT = Path(__file__).parents[2]
SOON = 50  # seeds: the bound of those that are found within a few seconds


def _cases() -> list[object]:
    marks = [() if bug.within <= SOON else (pytest.mark.long,) for bug in BUGS]
    return [pytest.param(bug, id=bug.name, marks=mark) for bug, mark in zip(BUGS, marks, strict=True)]


@pytest.mark.parametrize("bug", _cases())
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    command = [sys.executable, "-m", "tests.simulation.globals.bugs", bug.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
