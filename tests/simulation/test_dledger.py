"""A DLedger group of three whole brokers in random simulations."""

import os

import pytest
from tests.simulation.dledger import run

SEEDS = int(os.environ.get("TURBOPUMP_SEEDS", "100")) // 10
BATCH = 5


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_promises_of_a_group_are_kept(first: int) -> None:
    for seed in range(first, first + BATCH):
        try:
            run(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}\npython -m tests.simulation --world dledger --seed {seed}")
