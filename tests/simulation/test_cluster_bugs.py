"""Errors planted into replication: the checker of the simulated cluster finds each within some seeds."""

import pytest
from tests.simulation.cluster.bugs import BUGS, Bug, hunt

SOON = 60  # seeds; those that need more are part of the long tests


def _cases() -> list[object]:
    marks = [() if bug.within <= SOON else (pytest.mark.long,) for bug in BUGS]
    return [pytest.param(bug, id=bug.name, marks=mark) for bug, mark in zip(BUGS, marks, strict=True)]


@pytest.mark.parametrize("bug", _cases())
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert hunt(bug) is not None, f"{bug.within} seeds have not shown it: {bug.name}"
