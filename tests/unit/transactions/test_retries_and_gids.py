"""The retry policy, and the names of global transactions."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.distributed import gids
from turbopump.transactions.distributed.retries import CONFIRM, FOR_EVER, Retry


def test_pauses_grow_to_the_longest_and_end_with_the_attempts() -> None:
    retry = Retry(attempts=5, first=0.5, factor=3, longest=10)
    assert [retry.pause(failures) for failures in range(1, 7)] == [0.5, 1.5, 4.5, 10, None, None]
    assert Retry(attempts=1).pause(1) is None


def test_a_decision_is_carried_out_for_ever_and_a_confirm_for_about_an_hour() -> None:
    assert FOR_EVER.pause(100_000) == 300
    pauses = [CONFIRM.pause(failures) for failures in range(1, 20)]
    assert 3_000 < sum(pause for pause in pauses if pause is not None) < 4_000
    assert CONFIRM.pause(20) is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"attempts": 0}, "attempts must be at least 1"),
        ({"first": -1}, "first must be at least 0"),
        ({"factor": 0.5}, "factor at least 1"),
        ({"longest": 3601}, "longest must be 0 to 3600"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(more: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Retry(**more)  # type: ignore[arg-type]


@given(st.text(max_size=50), st.text(max_size=50), st.booleans())
def test_a_gid_names_its_group_and_fits_into_every_database(group: str, other: str, last: bool) -> None:
    gid = gids.new_gid(group, random.Random(1), last)
    assert len(gid) == 37
    assert gid.isascii()
    assert gids.is_of_group(gid, group)
    assert gids.is_of_group(gid, other) == (gids.mark_of(group) == gids.mark_of(other))
    assert gids.may_last_resource_decide(gid) == last


@pytest.mark.parametrize("gid", ["", "tp1.", "order-4711", "tp2." + "0" * 33, "tp1.d860bf7a." + "0" * 23])
def test_other_names_belong_to_no_group(gid: str) -> None:
    assert not gids.is_of_group(gid, "bank")
