import asyncio

from hypothesis import given
from hypothesis import strategies as st

from turbopump.pipelines.source.broker_client import first_late


@given(st.integers(0, 50), st.integers(0, 200), st.integers(0, 250), st.integers(0, 250))
def test_a_time_finds_its_first_message_whatever_the_broker_hints(low, size, first, hint):
    high = low + size

    async def is_late(offset: int) -> bool:
        assert low <= offset < high
        return offset >= first

    assert asyncio.run(first_late(is_late, low, high, hint)) == min(max(first, low), high)


def test_a_right_hint_costs_two_looks():
    looks = []

    async def is_late(offset: int) -> bool:
        looks.append(offset)
        return offset >= 70

    assert asyncio.run(first_late(is_late, 0, 1000, 70)) == 70
    assert looks == [70, 69]
