"""A type checker understands the clients: right programs pass, wrong ones do not."""

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("typed_program.py")


def test_mypy_finds_what_is_wrong_in_a_program_and_nothing_else() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROGRAM.parents[3])
    found = {int(line) for line in re.findall(r"typed_program\.py:(\d+): error", done.stdout)}
    lines = PROGRAM.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# wrong:" in line}
    assert len(wrong) == 4
    assert found == wrong, done.stdout + done.stderr
