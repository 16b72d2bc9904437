"""Who gets which queues: the same answer in every member, and the same as Apache's."""

from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.group.rebalance import assignment_change, averagely, own_queues
from turbopump.client.message import MessageQueue

QUEUES = st.lists(
    st.builds(
        MessageQueue, st.just("t"), st.sampled_from(["broker-a", "broker-b"]), st.integers(min_value=0)
    ),
    unique=True,
)
MEMBERS = st.lists(st.text("abc@#1", min_size=1), unique=True, min_size=1)


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "broker-a", number) for number in range(count)]


def ids(count: int, members: int) -> list[list[int]]:
    names = [f"c{number}" for number in range(members)]
    return [[queue.id for queue in averagely(queues(count), names, name)] for name in names]


def test_queues_are_divided_into_runs_the_first_ones_longer() -> None:
    assert ids(8, 3) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert ids(4, 2) == [[0, 1], [2, 3]]


def test_with_more_members_than_queues_the_last_ones_get_none() -> None:
    assert ids(2, 4) == [[0], [1], [], []]


def test_who_is_not_on_the_list_gets_nothing() -> None:
    assert averagely(queues(4), ["a", "b"], "c") == ()
    assert averagely(queues(4), [], "c") == ()


@given(QUEUES, MEMBERS)
def test_every_queue_has_one_owner(queues: list[MessageQueue], members: list[str]) -> None:
    shares = [own_queues(queues, members, me) for me in members]
    assert sorted(queue for part in shares for queue in part) == sorted(queues)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(QUEUES, MEMBERS, st.randoms())
def test_the_order_of_the_lists_does_not_matter(queues, members, chance) -> None:  # type: ignore[no-untyped-def]
    mixed_queues = chance.sample(queues, len(queues))
    mixed_members = chance.sample(members, len(members))
    assert own_queues(queues, members, members[0]) == own_queues(mixed_queues, mixed_members, members[0])


@given(QUEUES, MEMBERS, st.integers(min_value=0))
def test_the_division_is_apaches(queues: list[MessageQueue], members: list[str], pick: int) -> None:
    """The rule of its clients: r = N mod M, sizes and starts by the index."""
    queues, members = sorted(queues), sorted(members)
    index = pick % len(members)
    many, rest = divmod(len(queues), len(members))
    has_more = rest > 0 and index < rest
    size = 1 if len(queues) <= len(members) else many + 1 if has_more else many
    start = index * size if has_more else index * size + rest
    taken = max(min(size, len(queues) - start), 0)
    assert averagely(queues, members, members[index]) == tuple(queues[start : start + taken])


def test_only_what_changed_is_dropped_and_taken() -> None:
    first, second, third = queues(3)
    change = assignment_change([first, second], [second, third])
    assert (change.dropped, change.taken) == ((first,), (third,))
