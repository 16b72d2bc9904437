"""What waits and what is due, without a clock."""

from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples

from turbopump.broker.delay.pending import Entry, PendingDelays, QueuePosition

SIZE = 100


def entries(*due: int, first: int = 0) -> list[Entry]:
    return [(1000 * (first + number), SIZE, due_ms) for number, due_ms in enumerate(due)]


def begun(*due: int, position: QueuePosition | None = None) -> PendingDelays:
    """One queue with these messages, all looked at."""
    pending = PendingDelays()
    pending.resume(0, position or QueuePosition(0), 0, len(due))
    look(pending, due)
    return pending


def look(pending: PendingDelays, due: tuple[int, ...]) -> None:
    while (wanted := pending.wanted(0, len(due))) is not None:
        begin, end = wanted
        pending.saw(0, begin, entries(*due[begin:end], first=begin))


def deliver(pending: PendingDelays, due: tuple[int, ...], now_ms: int) -> list[int]:
    """Everything that is due; the offsets in their order."""
    found = []
    while (run := pending.due(now_ms)) is not None:
        found.append(run.at)
        pending.done(run, 1, due[run.at + 1] if run.at + 1 < run.end else 0)
    return found


def test_messages_of_one_delay_are_one_run() -> None:
    due = (10, 20, 20, 30)
    pending = begun(*due)
    assert len(list(pending.runs())) == 1
    assert pending.next_due_ms == 10
    assert deliver(pending, due, 9) == []
    assert deliver(pending, due, 20) == [0, 1, 2]
    assert (pending.next_due_ms, [len(run) for run in pending.runs()]) == (30, [1])
    assert pending.position(0) == QueuePosition(3)


def test_a_message_does_not_wait_behind_one_that_is_due_later() -> None:
    due = (10, 20, 30, 40, 25, 35, 45, 41, 42, 43)
    pending = begun(*due)
    assert deliver(pending, due, 41) == [0, 1, 4, 2, 5, 3, 7]
    assert pending.position(0) == QueuePosition(8, ((6, 7),))
    assert pending.position(0).first == 6
    assert deliver(pending, due, 100) == [8, 9, 6]
    assert pending.position(0) == QueuePosition(10)
    assert pending.next_due_ms is None


def test_what_was_left_goes_on_where_it_was() -> None:
    due = (10, 20, 30, 40, 25, 35, 45, 41, 42, 43)
    pending = begun(*due, position=QueuePosition(8, ((6, 7),)))
    assert deliver(pending, due, 100) == [8, 9, 6]


def test_what_turns_out_to_be_done_is_left_out() -> None:
    due = (10, 20, 30, 40)
    pending = PendingDelays()
    pending.resume(0, QueuePosition(1), 0, 4)
    pending.were_done([2000, 77])
    look(pending, due)
    assert deliver(pending, due, 100) == [1, 3]


def test_a_position_outside_of_the_queue_is_brought_back_to_it() -> None:
    pending = PendingDelays()
    pending.resume(0, QueuePosition(50, ((0, 3), (4, 8), (20, 30))), 2, 6)
    assert pending.position(0) == QueuePosition(4, ((2, 3),))
    pending.resume(1, QueuePosition(0), 5, 9)
    assert pending.wanted(1, 9) == (5, 9)


def test_a_queue_that_was_deleted_and_made_again_begins_anew() -> None:
    pending = PendingDelays()
    pending.resume(3, QueuePosition(0), 0, 2)
    pending.saw(3, 0, [(100, 10, 5), (110, 10, 6)])
    seen = pending.runs()
    next(seen)
    pending.resume(4, QueuePosition(0), 0, 0)  # a level's first message, in the middle of a round over all
    assert list(seen) == []
    pending.resume(3, QueuePosition(0), 0, 1)
    assert pending.due(9) is None
    pending.saw(3, 0, [(200, 10, 7)])
    run = pending.due(9)
    assert run is not None
    assert (run.at, run.end, run.due_ms) == (0, 1, 7)


def test_new_messages_continue_the_last_run_while_there_is_one() -> None:
    pending = begun(10)
    pending.saw(0, 1, entries(20, first=1))
    (run,) = pending.runs()
    assert (run.at, run.end) == (0, 2)
    pending.done(run, 2, 0)
    pending.saw(0, 2, entries(15, first=2))
    assert pending.next_due_ms == 15


def test_what_is_put_off_lets_others_pass() -> None:
    due = (10, 20, 15)
    pending = begun(*due)
    run = pending.due(30)
    assert run is not None
    pending.put_off(run, 1000)
    assert deliver(pending, due, 30) == [2]
    assert pending.next_due_ms == 1000
    assert deliver(pending, due, 1000) == [0, 1]


@examples(300)
@given(
    st.lists(st.integers(0, 60), max_size=40),
    st.lists(st.tuples(st.sampled_from("lsrk"), st.integers(0, 40)), max_size=30),
)
def test_each_is_delivered_once_and_in_time_across_restarts(
    due: list[int], story: list[tuple[str, int]]
) -> None:
    """Looks at some, lets time pass, writes down, restarts, is killed: the log knows what was done since."""
    now, known, saved, since = 0, 0, QueuePosition(0), set()
    pending = PendingDelays()
    pending.resume(0, saved, 0, 0)
    delivered: dict[int, int] = {}
    for what, number in [*story, ("l", len(due)), ("s", 100)]:
        if what == "l":
            known = min(len(due), known + number)
            while (wanted := pending.wanted(0, known)) is not None:
                begin, end = wanted[0], min(wanted[1], wanted[0] + 3)
                pending.saw(0, begin, entries(*due[begin:end], first=begin))
        elif what == "s":
            now += number
            for offset in deliver(pending, tuple(due), now):
                assert offset not in delivered, "twice"
                delivered[offset] = now
                since.add(offset)
        elif what == "r":
            saved, since = pending.position(0), set()
        else:
            pending = PendingDelays()
            pending.resume(0, saved, 0, known)
            pending.were_done([1000 * offset for offset in since])
            while (wanted := pending.wanted(0, known)) is not None:
                pending.saw(0, wanted[0], entries(*due[wanted[0] : wanted[1]], first=wanted[0]))
    assert sorted(delivered) == list(range(len(due)))
    assert all(at >= due[offset] for offset, at in delivered.items())
    assert pending.position(0) == QueuePosition(len(due))
