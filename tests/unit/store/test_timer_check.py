"""Numbers in a timercheck that cannot be true."""

import pytest

from turbopump.store.timer_check import PUBLIC, SIZE, decode

LARGEST = 2**63 - 1


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("number", [-1, LARGEST])
def test_a_time_or_place_that_cannot_be_is_damage(place: int, number: int) -> None:
    numbers = [5] * 7
    numbers[place] = number
    with pytest.raises(ValueError, match="must be numbers from 0"):
        decode(PUBLIC.pack(*numbers).ljust(SIZE, b"\0"))


@pytest.mark.parametrize("counter", [-1, LARGEST])
def test_a_counter_that_has_no_next_begins_anew(counter: int) -> None:
    assert decode(PUBLIC.pack(5, 5, 5, 5, 0, 5, counter).ljust(SIZE, b"\0")).counter == 0
