"""Times by key: which have come, and which comes first."""

from hypothesis import given
from hypothesis import strategies as st

from turbopump.broker.transactions.book.due_times import MAX_STALE, DueTimes

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "discard", "due", "first"]), st.sampled_from("abcde"), st.integers(0, 20)
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_it_says_what_a_search_through_all_keys_says(steps: list[tuple[str, str, int]]) -> None:
    found, expected = DueTimes(), dict[str, int]()
    for step, key, number in steps:
        if step == "set":
            found.set(key, number)
            expected[key] = number
        elif step == "discard":
            found.discard(key)
            expected.pop(key, None)
        in_order = sorted((at, one) for one, at in expected.items())
        assert found.first() == (in_order[0][0] if in_order else None)
        assert found.due(number, 3) == [one for at, one in in_order if at <= number][:3]
        assert found.get(key) == expected.get(key)
        assert len(found) == len(expected)


def test_times_that_count_no_more_take_no_memory() -> None:
    times = DueTimes()
    for at in range(10_000):
        times.set("renewed", at)
        times.set("ended", at)
        times.discard("ended")
    assert len(times._heap) <= 2 + MAX_STALE
    assert times.due(10_000, 10) == ["renewed"]
