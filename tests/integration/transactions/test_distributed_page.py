"""The page about distributed transactions does what it says; tests/interop runs its part with servers."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client import pages

from turbopump.testing import Cluster

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/distributed-transactions.md"
PRINTED = re.compile(r"<!-- printed by (\S+) -->\n```text\n(.*?)```", re.DOTALL)


def test_the_blocks_without_a_server_print_what_stands_below_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks = [block for block in pages.blocks(PAGE) if "psycopg" not in block.code]
    assert len(blocks) == 2
    with Cluster() as cluster:
        for block in blocks:
            pages.run(PAGE, block, cluster.name_servers, names)


@pytest.mark.parametrize(
    ("program", "text"),
    PRINTED.findall(PAGE.read_text()),
    ids=[one for one, _ in PRINTED.findall(PAGE.read_text())],
)
def test_a_program_prints_what_the_page_shows(program: str, text: str) -> None:
    done = subprocess.run([sys.executable, ROOT / program], capture_output=True, text=True, check=True)
    assert done.stdout == text


def test_the_page_shows_what_two_and_three_phases_cannot_do() -> None:
    shown = [program for program, _ in PRINTED.findall(PAGE.read_text())]
    assert shown == [
        "examples/two_phase_blocks.py",
        "examples/two_phase_without_a_log.py",
        "examples/three_phase_splits.py",
    ]
