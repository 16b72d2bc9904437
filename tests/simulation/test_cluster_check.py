"""The checker of the simulated cluster, on histories written by hand."""

from dataclasses import replace

import pytest
from tests.simulation.cluster.check import check
from tests.simulation.cluster.history import (
    BeganLate,
    Committed,
    Cut,
    Decided,
    Deleted,
    Died,
    Ended,
    Event,
    Fault,
    FirstRead,
    Found,
    History,
    Kind,
    Loss,
    Lost,
    Moved,
    Muted,
    Opened,
    PairEnd,
    Pulled,
    Sent,
    SlaveCommitted,
    SlaveEnd,
    Stored,
    Strayed,
    Unanswered,
    Wrote,
)

ONE = Sent(1.0, 1.1, "a", "a1", "m1", Kind.PLAIN, 0, 0, 0, 100, 0, "memory", 2, 0, holders=2)
TWO = replace(ONE, begin=2.0, at=2.1, name="m2", queue_offset=1, offset=100, end=200)
LOG = (Stored(0, 100, "T", 0, 0, "m1", 5), Stored(100, 200, "T", 0, 1, "m2", 6))
READ = Pulled(3.0, "a", 0, (Found(0, 0, "m1"), Found(1, 100, "m2")))


def _end(log: tuple[Stored, ...] = LOG) -> PairEnd:
    end = log[-1].end if log else 0
    names = tuple(one.name for one in log)
    return PairEnd("a", log, end, {0: names}, {}, {}, (SlaveEnd("a2", "following", end, end),))


def _names(events: list[Event], end: PairEnd | None = None) -> set[str]:
    return {one.name for one in check(History(events), [end or _end()])}


def test_a_history_in_order_has_no_anomaly() -> None:
    assert _names([ONE, TWO, READ]) == set()


def test_a_receipt_that_names_more_copies_than_there_were_is_found() -> None:
    assert _names([replace(ONE, holders=1), TWO, READ]) == {"receipt"}
    crash = Loss(1.05, "a", "a2", Lost.MACHINE, 0)
    assert _names([replace(ONE, holders=1), crash, TWO, READ]) == set()


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ((), {"lost write"}),
        ((Loss(5.0, "a", "a1", Lost.DISK, 0),), {"lost write"}),
        ((Loss(5.0, "a", "a1", Lost.DISK, 0), Loss(6.0, "a", "a2", Lost.MACHINE, 100)), set()),
        ((Loss(5.0, "a", "a1", Lost.DISK, 0), Loss(6.0, "a", "a2", Lost.MACHINE, 200)), {"lost write"}),
    ],
)
def test_a_message_may_be_lost_when_as_many_copies_died_as_its_receipt_names(
    losses: tuple[Loss, ...], expected: set[str]
) -> None:
    cut = Cut(6.0, "a", 100)
    assert _names([ONE, TWO, READ, *losses, cut], _end(LOG[:1])) == expected


def test_a_crash_of_a_machine_does_not_excuse_the_loss_of_a_copy_on_disk() -> None:
    on_disk = replace(TWO, durability="disk", replicas=1, on_disk=1)
    crash = Loss(5.0, "a", "a1", Lost.MACHINE, 100)
    assert _names([ONE, on_disk, READ, crash, Cut(5.0, "a", 100)], _end(LOG[:1])) == {"lost write"}


def test_a_message_at_two_places_and_two_at_one_place_are_found() -> None:
    twice = (*LOG, Stored(200, 300, "T", 0, 2, "m1", 7))
    read = replace(READ, found=(*READ.found, Found(2, 200, "m1")))
    assert {"duplicate", "inconsistent offsets"} <= _names([ONE, TWO, read], _end(twice))
    other = replace(READ, at=2.5, found=(Found(0, 0, "m1"), Found(1, 100, "m3")))
    assert _names([ONE, TWO, other, READ]) == {"inconsistent offsets"}
    assert "inconsistent offsets" not in _names([ONE, other, Cut(2.7, "a", 100), READ])


def test_a_message_that_was_cut_must_not_come_back_unless_a_promoted_slave_has_kept_it() -> None:
    cut = Cut(2.5, "a", 100)
    assert _names([ONE, TWO, cut, READ]) == {"resurrected"}
    assert _names([ONE, TWO, cut, Cut(2.8, "a", 100, adopted=200), READ]) == set()


def test_order_is_that_of_acknowledgements() -> None:
    log = (Stored(0, 100, "T", 0, 0, "m2", 5), Stored(100, 200, "T", 0, 1, "m1", 6))
    sent = [
        replace(ONE, offset=100, queue_offset=1, end=200),
        replace(TWO, offset=0, queue_offset=0, end=100),
    ]
    read = replace(READ, found=(Found(0, 0, "m2"), Found(1, 100, "m1")))
    assert _names([*sent, read], _end(log)) == {"write inversion"}


def test_a_message_that_the_reader_never_got_is_found() -> None:
    assert _names([ONE, TWO, replace(READ, found=READ.found[:1])]) == {"skipped poll"}


def test_a_slave_that_differs_or_does_not_follow_is_found() -> None:
    for slave in (SlaveEnd("a2", "following", 200, 100), SlaveEnd("a2", "stopped", 200, 200)):
        assert _names([ONE, TWO, READ], replace(_end(), slaves=(slave,))) == {"not a copy"}


def test_a_timed_message_that_comes_a_millisecond_early_is_found() -> None:
    timed = replace(ONE, kind=Kind.TIMED, delay_s=0.001)
    log = (Stored(0, 100, "rmq_sys_wheel_timer", 0, 0, "m1", 5), Stored(100, 200, "T", 0, 0, "m1", 6))
    read = replace(READ, found=(Found(0, 100, "m1"),))
    end = replace(_end(log), readable={0: ("m1",)})
    assert _names([timed, read], end) == set()
    assert _names([replace(timed, delay_s=0.002), read], end) == {"early"}
    assert _names([replace(timed, due_ms=7), read], end) == {"early"}
    assert _names([timed], replace(end, log=log[:1], log_end=100, readable={}, slaves=())) == {"lost write"}


def test_a_batch_that_is_decided_twice_and_rows_that_did_not_win_are_found() -> None:
    first = Decided(1.0, 1.1, "a", 0, ("t1",), 150)
    other = replace(first, begin=2.0, at=2.1, tokens=("t2",))
    rows = (Stored(0, 100, "RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, "r1", 5), Stored(200, 300, "T", 0, 0, "r1", 6))
    wrote, read = Wrote(0.5, "a", 0, "t1", ("r1",), 100), replace(READ, found=(Found(0, 200, "r1"),))
    end = replace(_end(rows), readable={0: ("r1",)}, winners={0: ("t1",)})
    assert _names([wrote, first, read], end) == set()
    assert _names([wrote, first, other, replace(first, at=3.0), read], end) == {"decided twice"}
    assert _names([wrote, replace(first, tokens=("t2",)), read], end) == {"decided twice"}
    assert _names([wrote, read], replace(end, winners={0: ("t2",)})) == {"aborted read"}
    assert _names([wrote, read], replace(end, winners={})) == {"half visible"}
    unseen = replace(end, log=rows[:1], log_end=100, readable={}, slaves=())
    assert _names([wrote, first], unseen) == {"lost write"}
    assert _names([wrote, first, Cut(1.5, "a", 0)], replace(unseen, log=(), log_end=0, winners={})) == set()


STARTS = [Opened(at, "a", {}, {}) for at in (0.5, 10.0)]
COMMITTED = Committed(11.0, "a", 0, 2)


def test_a_reader_that_is_sent_back_without_a_reason_is_found() -> None:
    back = Moved(12.0, "a", 0, 2, 0)
    kept = replace(_end(), offsets={0: 2})
    history = [ONE, TWO, READ, *STARTS, COMMITTED]
    assert _names([*history, back], kept) == set()  # soon after a start
    late = replace(back, at=200.0)
    assert _names([*history, late], kept) == {"non-monotonic poll"}
    assert _names([ONE, TWO, READ, STARTS[0], back]) == {"non-monotonic poll"}  # nothing was ever restarted
    early = replace(COMMITTED, at=4.0)  # saved, and at the slaves, long before the second start
    assert "non-monotonic poll" in _names([*history, early, back], kept)
    # To what is committed: the broker does not know of more.
    assert _names([*history, replace(late, before=5, after=2)], kept) == set()


def test_a_reader_of_slaves_may_be_sent_back_as_long_as_brokers_remember_a_start() -> None:
    back = Moved(100.0, "a", 0, 2, 0, group="SG")
    kept = replace(_end(), offsets={0: 2})
    of_slave = replace(READ, group="SG", is_of_slave=True)
    assert _names([ONE, TWO, READ, of_slave, *STARTS, back], kept) == set()
    assert _names([ONE, TWO, READ, of_slave, *STARTS, replace(back, at=300.0)], kept) == {
        "non-monotonic poll"
    }
    assert _names([ONE, TWO, READ, of_slave, STARTS[0], back], kept) == {"non-monotonic poll"}


def test_a_loss_is_a_reason_for_the_readers_of_its_queue_until_they_have_read_there_again() -> None:
    three = replace(TWO, begin=2.2, at=2.3, name="m3", queue_offset=2, offset=200, end=300)
    again = replace(three, begin=50.0, at=50.1, name="m4")
    cut = [
        Loss(9.0, "a", "a1", Lost.MACHINE, 200),
        Loss(9.0, "a", "a2", Lost.MACHINE, 200),
        Cut(9.0, "a", 200),
    ]
    log = (*LOG, Stored(200, 300, "T", 0, 2, "m4", 7))
    had = replace(READ, found=(*READ.found, Found(2, 200, "m3")))
    back = Moved(150.0, "a", 0, 3, 1)
    history = [ONE, TWO, three, had, *cut, *STARTS, COMMITTED, again]
    more = replace(READ, at=151.0, found=(Found(2, 200, "m4"),))
    end = replace(_end(log), offsets={0: 2})
    assert _names([*history, back, more], end) == set()
    assert _names([*history, replace(back, queue_id=1), more], end) == {"non-monotonic poll"}
    assert _names([*history, replace(more, at=100.0), back], end) == {"non-monotonic poll"}


def test_a_commit_may_go_back_to_what_its_queue_has_lost_and_no_further() -> None:
    committed = Committed(4.0, "a", 0, 2)
    crash = [Loss(20.0, "a", node, Lost.MACHINE, 100) for node in ("a1", "a2")]
    short = replace(_end(LOG[:1]), offsets={0: 1})
    events = [ONE, TWO, READ, committed, *crash, Cut(20.0, "a", 100)]
    assert _names(events, short) == set()
    assert _names(events, replace(short, offsets={0: 0})) == {"lost commit"}
    other = [replace(committed, queue_id=1), *events]
    assert _names(other, replace(short, offsets={0: 1, 1: 0})) == {"lost commit"}


def test_readers_miss_only_what_a_broker_with_an_empty_disk_stores_below_their_offsets() -> None:
    losses = [Loss(9.0, "a", node, Lost.DISK, 0) for node in ("a1", "a2")]
    three = replace(ONE, begin=20.0, at=20.1, name="m3")
    four = replace(TWO, begin=21.0, at=21.1, name="m4")
    five = replace(TWO, begin=22.0, at=22.1, name="m5", queue_offset=2, offset=200, end=300)
    log = tuple(
        Stored(100 * at, 100 * at + 100, "T", 0, at, name, 9) for at, name in enumerate(("m3", "m4", "m5"))
    )
    history = [ONE, TWO, READ, *losses, Cut(9.0, "a", 0), three, four, five]
    read = replace(READ, at=30.0, found=(Found(2, 200, "m5"),))
    assert _names([*history, read], _end(log)) == set()
    assert _names(history, _end(log)) == {"skipped poll"}


def test_a_slave_that_gives_other_messages_or_leads_readers_astray_is_found() -> None:
    of_slave = replace(READ, group="SG", is_of_slave=True)
    assert _names([ONE, TWO, READ, of_slave]) == set()
    other = replace(of_slave, found=(Found(0, 0, "m1"), Found(1, 100, "m3")))
    assert _names([ONE, TWO, READ, of_slave, other]) == {"inconsistent offsets"}
    assert _names([ONE, TWO, READ, Strayed(3.0, "a", "a2", 0, 2, 3)]) == {"skipped poll"}
    assert _names([ONE, TWO, READ, replace(of_slave, found=READ.found[:1])]) == {"skipped poll"}


def test_a_commit_at_a_slave_must_reach_the_master_unless_the_slave_died_at_once_or_was_cut() -> None:
    commit = SlaveCommitted(3.0, "a", "a2", 0, 2, last=100)
    assert _names([ONE, TWO, READ, commit], replace(_end(), slave_group={0: 2})) == set()
    assert _names([ONE, TWO, READ, commit]) == {"lost slave commit"}
    assert _names([ONE, TWO, READ, commit, Died(3.5, "a", "a2")]) == set()
    assert _names([ONE, TWO, READ, commit, Died(30.0, "a", "a2")]) == {"lost slave commit"}
    cut = Loss(30.0, "a", "a2", Lost.LEFT, 100)
    assert _names([ONE, TWO, READ, commit, cut]) == set()
    assert _names([ONE, TWO, READ, commit, replace(cut, end=101)]) == {"lost slave commit"}
    assert _names([ONE, TWO, READ], replace(_end(), slave_group={0: 3})) == {"offset beyond end"}


OLD = Deleted(4.0, "a", "a1", True, 0, 100, 200, 9_000, 8_000, 0, records=LOG[:1])
REST = PairEnd(
    "a", LOG[1:], 200, {0: ("m2",)}, {0: 2}, {}, (SlaveEnd("a2", "following", 200, 200, 0),), log_begin=100
)


def test_a_message_may_be_gone_when_its_file_had_expired_and_not_before() -> None:
    assert _names([ONE, TWO, READ, OLD], REST) == set()
    assert _names([ONE, TWO, READ], REST) >= {"lost write"}
    assert _names([ONE, TWO, READ, replace(OLD, idle_ms=7_999)], REST) >= {"lost write", "deleted early"}
    assert "deleted early" in _names([ONE, TWO, READ, replace(OLD, log_end=90)], REST)


def test_a_message_that_the_deleted_file_did_not_hold_is_lost() -> None:
    assert "lost write" in _names([ONE, TWO, READ, replace(OLD, records=())], REST)


def test_a_deletion_of_another_log_excuses_nothing() -> None:
    """The master that deleted it was replaced by one that had another log."""
    cut = Cut(5.0, "a", 0)
    assert "lost write" in _names([ONE, TWO, READ, OLD, cut], REST)


def test_a_reader_may_miss_what_was_deleted_but_nothing_else() -> None:
    late = replace(READ, at=5.0, found=READ.found[1:])
    moved = Moved(4.5, "a", 0, 0, 1)
    assert _names([ONE, TWO, OLD, moved, late], REST) == set()
    assert _names([ONE, TWO, OLD, replace(moved, at=3.9), late], REST) == {"non-monotonic poll"}
    beyond = replace(moved, after=2)
    assert _names([ONE, TWO, OLD, beyond], REST) == {"non-monotonic poll", "skipped poll"}


def test_a_slave_that_deletes_before_its_master_is_found() -> None:
    of_slave = replace(OLD, at=4.5, node="a2", is_master=False, master_begin=100)
    assert _names([ONE, TWO, READ, OLD, of_slave], REST) == set()
    ahead = replace(of_slave, at=3.5, master_begin=0)
    assert _names([ONE, TWO, READ, ahead, OLD], REST) == {"deleted early"}
    assert _names([ONE, TWO, READ, OLD, replace(ahead, at=4.5)], REST) == {"deleted early"}
    # While the master changes, the one that had deleted the file may be a former one.
    fault = Fault(4.0, 6.0, "a")
    assert _names([ONE, TWO, READ, OLD, replace(ahead, at=4.5), fault], REST) == set()


def test_a_slave_that_lacks_the_beginning_and_calls_itself_complete_is_found() -> None:
    late = BeganLate(4.5, "a", "a2", 100, 0)
    assert _names([ONE, TWO, READ, OLD, late], REST) == set()
    early = replace(late, at=3.5)
    assert _names([ONE, TWO, READ, OLD, early], REST) == {"not a copy"}
    assert _names([ONE, TWO, READ, OLD, early, Fault(3.0, 4.0, "a")], REST) == set()
    slave = SlaveEnd("a2", "following", 200, 200, begin=150)
    assert _names([ONE, TWO, READ, OLD], replace(REST, slaves=(slave,))) == {"not a copy"}


def test_a_request_without_an_answer_is_excused_only_at_a_broker_that_could_not_be_heard() -> None:
    silent = Unanswered(5.0, 20.0, "a", "send of m9 to a1")
    assert _names([ONE, TWO, READ, silent]) == {"no answer"}
    assert _names([ONE, TWO, READ, silent, Muted(6.0, 7.0, "a")]) == set()
    assert _names([ONE, TWO, READ, silent, Muted(6.0, 7.0, "a", "a1")]) == set()
    assert _names([ONE, TWO, READ, silent, Muted(6.0, 7.0, "a", "a2")]) == {"no answer"}


HALF = replace(ONE, kind=Kind.HALF)
WAITING = Stored(0, 100, "RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, "m1", 5)
COME = Stored(100, 200, "T", 0, 0, "m1", 6)


@pytest.mark.parametrize(("is_commit", "wrong"), [(True, "lost write"), (False, "aborted read")])
def test_a_transaction_ends_as_it_was_first_decided(is_commit: bool, wrong: str) -> None:
    ends = [Ended(2.0 + at, "a", "m1", is_commit is not bool(at), True) for at in (0, 1)]
    read = replace(READ, found=(Found(0, 100, "m1"),))
    delivered = replace(_end((WAITING, COME)), readable={0: ("m1",)})
    kept = replace(_end((WAITING,)), readable={})
    right, other = (delivered, kept) if is_commit else (kept, delivered)
    assert _names([HALF, *ends, read], right) == set()
    assert _names([HALF, *ends, read], other) == {wrong}
    # Without an answer to the first one, the second may have come before it; after a loss it may decide.
    assert _names([HALF, replace(ends[0], is_acknowledged=False), ends[1], read], other) == set()
    lost = Loss(2.5, "a", "a1", Lost.MACHINE, 100)
    assert _names([HALF, *ends, lost, read], other) == set()


@pytest.mark.parametrize(("found", "expected"), [(3, {"wrong first offset"}), (4, set()), (5, set())])
def test_a_reader_of_deleted_messages_gets_the_first_that_is_there(found: int, expected: set[str]) -> None:
    read = FirstRead(3.0, "a", "a1", 0, low=4, found=found, high=5)
    assert _names([ONE, TWO, READ, read]) == expected
    assert _names([ONE, TWO, READ, replace(read, found=6)]) == {"wrong first offset"}


def test_a_delayed_message_must_come_though_its_file_was_deleted() -> None:
    delayed = replace(ONE, kind=Kind.DELAYED, delay_s=0.001)
    waiting = Stored(0, 100, "SCHEDULE_TOPIC_XXXX", 0, 0, "m1", 5)
    again = replace(waiting, offset=200, end=300, queue_offset=1)
    came = Stored(300, 400, "T", 0, 1, "m1", 7)
    deleted, two = replace(OLD, records=(waiting,)), replace(TWO, queue_offset=0)
    log = (replace(LOG[1], queue_offset=0), again, came)
    end = replace(REST, log=log, log_end=400, readable={0: ("m2", "m1")}, slaves=())
    read = replace(READ, at=5.0, found=(Found(0, 100, "m2"), Found(1, 300, "m1")))
    assert _names([delayed, two, deleted, read], end) == set()
    without = replace(end, log=log[:1], log_end=200, readable={0: ("m2",)}, offsets={0: 1})
    assert _names([delayed, two, deleted, read], without) == {"lost write"}
    # The copy that was written before the deletion may be cut from the log with the rest of its end.
    assert _names([delayed, two, deleted, read, Cut(6.0, "a", 199)], without) == set()
