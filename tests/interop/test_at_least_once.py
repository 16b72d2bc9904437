"""At least once, counted: all are killed at random, and every acknowledged message is consumed, in order.

CHURN_SEED repeats a run (as far as processes can be repeated), CHURN_SECONDS makes it longer.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from . import artifacts, churn, peers, workers
from .churn import TOPIC, Churn
from .clients import GO

SECONDS = float(os.environ.get("CHURN_SECONDS", "60"))
SEED = int(os.environ.get("CHURN_SEED") or random.randrange(1_000_000))


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
    sent = crew.acknowledged(TOPIC)
    problems = []
    lines = [
        f"seed {SEED}, {java} and Go, {seconds:.0f} s, {len(sent)} messages acknowledged",
        f"{dict(run.kills)}",
    ]
    for group, mode in run.groups:
        got = crew.got(group)
        lines.append(f"{group}: {workers.tally(got)}")
        problems += [f"{group} lost {one}" for one in workers.lost(sent, got)]
        problems += churn.went_back(group, got, run.offsets, crew.began)
        if mode == "ordered":
            problems += workers.disorder(got)
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert len(sent) > seconds  # otherwise nothing was tried
    assert not problems, "\n".join([*lines, f"{len(problems)} problems", *problems[:50]])
