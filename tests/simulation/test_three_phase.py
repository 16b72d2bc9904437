"""Three-phase commit under one fault each, in random simulations: what it buys, and what it costs."""

import pytest
from tests.simulation.globals.three_phase import TERMINATION, VARIANTS, Fault, ThreePhaseWorld, counted

SEEDS = range(300)


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.COORDINATOR, Fault.PARTICIPANT, Fault.BOTH])
def test_three_phase_commit_neither_splits_nor_blocks_when_processes_die(fault: Fault) -> None:
    assert counted(TERMINATION, fault, SEEDS) == (0, 0)


def test_three_phase_commit_splits_when_the_network_is_cut_and_every_split_is_found() -> None:
    outcomes = [ThreePhaseWorld(seed, TERMINATION, Fault.PARTITION).run() for seed in SEEDS]
    assert sum(one.split for one in outcomes) > 10  # 37 when this was written
    assert [one.found for one in outcomes] == [one.split for one in outcomes]


def test_without_the_termination_protocol_it_splits_when_one_process_dies() -> None:
    two_phase, careful, bold, _ = VARIANTS
    for variant in (careful, bold):
        assert counted(variant, Fault.COORDINATOR, SEEDS)[0] > 5
        assert counted(variant, Fault.PARTICIPANT, SEEDS)[0] > 10
    split, blocked = counted(two_phase, Fault.COORDINATOR, SEEDS)
    assert split == 0
    assert blocked > 30  # two-phase commit waits, but never splits
    assert counted(two_phase, Fault.PARTITION, SEEDS)[0] == 0
