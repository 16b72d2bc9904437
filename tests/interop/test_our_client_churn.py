"""At least once with our own client: its processes and the broker are killed at random, and it is counted.

CHURN_SEED repeats a run (as far as processes can be repeated), CHURN_SECONDS makes it longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.churn_settings import SECONDS, SEED

from . import artifacts, peers
from .churn import Churn
from .clients import PYTHON


def test_our_producers_and_consumers_lose_nothing_whatever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(peers.OURS, tmp_path, capsys, SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("kind", [peers.OURS, *artifacts.SERVERS])
def test_the_same_for_minutes(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(kind, tmp_path, capsys, max(SECONDS, 600.0))


def check(kind: str, work: Path, capsys: pytest.CaptureFixture[str], seconds: float) -> None:
    cluster = peers.start(kind, peers.place(work / "cluster"))
    try:
        run = Churn(cluster, work / "logs", {"python": PYTHON}, SEED, seconds)
        (work / "logs").mkdir()
        crew = run.run()
    finally:
        cluster.discard()
    told, problems = run.judged(crew)
    with capsys.disabled():
        print("\n" + "\n".join([f"on {kind}", *told]))
    assert not problems, "\n".join([*told, f"{len(problems)} problems", *problems[:50]])
