"""A short run of `python -m tests.fuzz`: the kept corpus, the seeds and some mutated inputs per target."""

import pytest
from tests.fuzz.__main__ import rotated
from tests.fuzz.search import ending, search
from tests.fuzz.targets import CORPUS, all_targets, kept

TARGETS = all_targets()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_nothing_unexpected_escapes(name: str) -> None:
    wanted = len(kept(name)) + TARGETS[name].taste
    report = search(name, TARGETS[name], seed=1, goes_on=lambda inputs: inputs < wanted)
    assert not report.failures, report.failures[0]
    assert report.endings


def test_the_same_seed_makes_the_same_inputs() -> None:
    seen = [
        search("frames", TARGETS["frames"], seed=7, goes_on=lambda inputs: inputs < 500) for _ in range(2)
    ]
    assert seen[0].endings == seen[1].endings


def test_a_failure_is_found_and_shrunk() -> None:
    def run(data: bytes) -> None:
        assert b"\xff" not in data

    target = type(TARGETS["frames"])(run, lambda: [b"hello"], ())
    report = search("none", target, seed=1, goes_on=lambda inputs: inputs < 2000)
    assert report.failures[0].data == b"\xff"
    assert ending(target, b"\xff")[1]


def test_the_corpus_stays_small_and_belongs_to_targets() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 300_000
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} <= TARGETS.keys()


def test_over_many_commits_each_target_has_its_turn() -> None:
    names = sorted(all_targets())
    commits = [f"commit {number}" for number in range(40)]
    chosen = [rotated(names, 12, commit) for commit in commits]
    assert all(len(set(some)) == 12 for some in chosen)
    assert {name for some in chosen for name in some} == set(names)
    assert rotated(names, 12, commits[0]) == chosen[0]
