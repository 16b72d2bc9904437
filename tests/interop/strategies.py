"""`python -m tests.interop.strategies`: records what Apache's allocation strategies answer.

For the unit tests of ours. Needs no server: the classes of the 4.9.8 client are asked directly.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import artifacts

VERSION = "4.9.8"
QUESTIONS = 4000
RECORDED = Path(__file__).resolve().parents[1] / "compat" / "recorded" / "strategies.json"
TIMEOUT_S = 60


def main() -> None:
    java = artifacts.tool("java", f"Java client {VERSION}")
    command = [java, *artifacts.JAVA_OPTIONS, "-cp", artifacts.strategy_programs(VERSION), "Strategies"]
    subprocess.run([*command, str(RECORDED), str(QUESTIONS)], check=True, timeout=TIMEOUT_S)


if __name__ == "__main__":
    main()
