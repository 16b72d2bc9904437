"""Global transactions in random simulations."""

import os

import pytest
from tests.simulation.globals import run

SEEDS = int(os.environ.get("TURBOPUMP_SEEDS", "40"))
BATCH = 20


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_all_participants_do_what_was_decided_once_and_everything_ends(first: int) -> None:
    for seed in range(first, first + BATCH):
        try:
            run(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}\npython -m tests.simulation --world globals -v --seed {seed}")


def test_the_seeds_meet_what_they_are_for() -> None:
    """Outcomes of all kinds, and the ways of the fence and of recovery that faults lead to."""
    worlds = [run(seed) for seed in range(60)]
    counts = sum((world.counts for world in worlds), worlds[0].counts - worlds[0].counts)
    for kind in ("xa", "tcc", "saga"):
        assert counts[f"{kind} committed"] > 10, counts
        assert counts[f"{kind} aborted"] > 10, counts
        assert counts[f"{kind} in doubt"] > 0, counts
    assert counts["resolved retry"] > 0
    assert counts["resolved done"] > 0
    at_databases = [one.counts for world in worlds for one in world.databases.values()]
    for what in ("repeated", "empty", "rolled back"):
        assert sum(one[what] for one in at_databases) > 0, what
