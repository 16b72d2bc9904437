"""The profiles of property tests."""

import pytest
from hypothesis import settings
from tests import properties


def test_only_the_long_profile_runs_every_example() -> None:
    assert properties.scaled(400, properties.MAX_EXAMPLES["long"]) == 400
    assert properties.scaled(400, properties.MAX_EXAMPLES["ci"]) == 100
    assert properties.scaled(400, properties.MAX_EXAMPLES["quick"]) == 40


@pytest.mark.parametrize(
    ("count", "expected"), [(100, 10), (60, 6), (50, 5), (30, 5), (5, 5), (3, 3), (1, 1)]
)
def test_a_small_number_is_cut_no_further_than_to_five(count: int, expected: int) -> None:
    assert properties.scaled(count, properties.MAX_EXAMPLES["quick"]) == expected


@pytest.mark.parametrize("name", properties.MAX_EXAMPLES)
def test_no_profile_has_a_deadline(name: str) -> None:
    profile = settings.get_profile(name)
    assert profile.max_examples == properties.MAX_EXAMPLES[name]
    assert profile.deadline is None


def test_a_test_with_a_number_of_its_own_follows_the_profile() -> None:
    of_profile = settings().max_examples
    assert properties.examples(200).max_examples == 2 * of_profile
    assert properties.examples(200, stateful_step_count=7).stateful_step_count == 7
