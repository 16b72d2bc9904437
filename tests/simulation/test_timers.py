"""Timed messages in random simulations."""

import os

import pytest
from tests.simulation.timers import run

SEEDS = int(os.environ.get("TURBOPUMP_SEEDS", "50"))
BATCH = 10


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_timed_messages_come_once_and_in_their_millisecond_in_worlds_of_faults(first: int) -> None:
    for seed in range(first, first + BATCH):
        try:
            run(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}\npython -m tests.simulation --world timers -v --seed {seed}")
