"""A type checker understands global transactions: right programs pass, wrong ones do not."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("typed_program.py")
RECIPES = [ROOT / "tests/recipes" / name for name in ("fastapi_bank.py", "transfer.py", "credit_service.py")]


def test_mypy_finds_what_is_wrong_in_a_program_and_nothing_in_the_recipes() -> None:
    programs = [str(path) for path in (PROGRAM, *RECIPES)]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", *programs]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    found = set(re.findall(r"(\w+\.py):(\d+): error", done.stdout))
    lines = PROGRAM.read_text().splitlines()
    wrong = {(PROGRAM.name, str(number)) for number, line in enumerate(lines, 1) if "# wrong:" in line}
    assert len(wrong) == 6
    assert found == wrong, done.stdout + done.stderr
