"""A group of pure Raft nodes in random simulations."""

import os

import pytest
from tests.simulation.raft import run
from tests.simulation.raft.history import History
from tests.simulation.raft.world import World

SEEDS = int(os.environ.get("TURBOPUMP_SEEDS", "200")) * 5 // 2
BATCH = 50


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_promises_of_a_group_are_kept(first: int) -> None:
    for seed in range(first, first + BATCH):
        try:
            run(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}\npython -m tests.simulation.raft --seed {seed}")


def _history(seed: int, is_traced: bool = False) -> History:
    return World(seed, is_traced=is_traced).run()


def test_a_seed_is_the_same_run_again() -> None:
    first = _history(3)
    assert len(first.occurrences) > 100
    assert _history(3) == first


def test_a_transcript_is_of_the_run_that_failed() -> None:
    plain, traced = _history(3), _history(3, is_traced=True)
    kept = [str(one) for one in plain.occurrences]
    rest = iter([str(one) for one in traced.occurrences])
    assert all(line in rest for line in kept)
