"""Consumer groups in random simulations."""

import os

import pytest
from tests.simulation.groups import run

SEEDS = int(os.environ.get("TURBOPUMP_SEEDS", "100")) // 2
BATCH = 10


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_promises_to_groups_are_kept(first: int) -> None:
    for seed in range(first, first + BATCH):
        try:
            run(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}\npython -m tests.simulation --world groups -v --seed {seed}")
