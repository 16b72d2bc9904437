"""At least once, counted: all are killed at random, and every acknowledged message is consumed, in order.

CHURN_SEED repeats a run (as far as processes can be repeated), CHURN_SECONDS makes it longer.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.interop.churn_settings import SECONDS, SEED

from . import artifacts, peers
from .churn import Churn
from .clients import GO


def test_every_acknowledged_message_is_consumed_in_order_whatever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = random.Random(SEED).choice(artifacts.JAVA_CLIENTS)
    check(tmp_path, capsys, f"java-{version}", SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("version", artifacts.JAVA_CLIENTS)
def test_the_same_for_minutes(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(tmp_path, capsys, f"java-{version}", max(SECONDS, 600.0))


def check(work: Path, capsys: pytest.CaptureFixture[str], java: str, seconds: float) -> None:
    cluster = peers.start(peers.OURS, peers.place(work / "cluster"))
    try:
        run = Churn(cluster, work / "logs", {"java": java, "go": GO}, SEED, seconds)
        (work / "logs").mkdir()
        crew = run.run()
    finally:
        cluster.discard()
    told, problems = run.judged(crew)
    with capsys.disabled():
        print("\n" + "\n".join(told))
    assert not problems, "\n".join([*told, f"{len(problems)} problems", *problems[:50]])
