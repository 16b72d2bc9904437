"""The ledger in random simulations."""

import os

import pytest
from tests.simulation.ledger import run

SEEDS = int(os.environ.get("TURBOPUMP_SEEDS", "10"))
BATCH = 5


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_each_row_of_the_winners_is_seen_once_and_no_other(first: int) -> None:
    for seed in range(first, first + BATCH):
        try:
            run(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}\npython -m tests.simulation --world ledger -v --seed {seed}")
