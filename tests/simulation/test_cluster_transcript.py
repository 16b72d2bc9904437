"""A seed of the simulated cluster that fails shows what happened, in few lines, and the same again."""

import re

import pytest
from tests.simulation.cluster import MAX_SHOWN, run
from tests.simulation.cluster.bugs import BUGS
from tests.simulation.cluster.history import MAX_LINES

LINE = re.compile(r" *\d+\.\d{3}  \S.*")
MAX_WIDTH = 250  # a line fits on a screen in two


def _failure_of(name: str) -> tuple[int, str]:
    """Returns the first seed that shows a planted bug, and the text of its failure."""
    [bug] = [bug for bug in BUGS if bug.name == name]
    with bug.plant():
        for seed in bug.seeds():
            try:
                run(seed)
            except AssertionError as error:
                return seed, str(error)
    raise AssertionError(f"{bug.within} worlds have not shown: {name}")


def test_a_failing_seed_prints_a_short_transcript_and_is_the_same_again() -> None:
    seed, text = _failure_of("acknowledge before the slave has it")
    first, *lines = text.splitlines()
    [count] = re.findall(r"^(\d+) anomalies$", first)
    shown = lines[-min(int(count), MAX_SHOWN) :]
    transcript = lines[: -len(shown)]
    assert all(re.match(r"  [a-z ]+: [ab]: \S", line) for line in shown), text
    if transcript[0].startswith("..."):
        assert re.fullmatch(r"\.\.\. \d+ lines before", transcript.pop(0))
    assert 0 < len(transcript) <= MAX_LINES
    assert [line for line in transcript if not LINE.fullmatch(line) or len(line) > MAX_WIDTH] == []
    times = [float(line.split()[0]) for line in transcript]
    assert times == sorted(times)
    # What each line says: who did what, to which message, with which result.
    assert any(" runs as " in line or re.search(" has [ab]-", line) for line in transcript), text
    assert _failure_of("acknowledge before the slave has it") == (seed, text)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_without_a_failure_prints_nothing(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    run(seed)
    assert capsys.readouterr().out == ""
