"""The count of the failures of real processes, on histories written by hand."""

from dataclasses import replace

from tests.failures.count import FAILED, OK, Figures, Found, History, Loss, Sent, count

ONE = Sent(1.0, 1.1, "0-1", 0, OK, "a", 0)
TWO = Sent(2.0, 2.1, "0-2", 0, OK, "a", 1)
WARNED = Sent(3.0, 3.1, "0-3", 0, "SLAVE_NOT_AVAILABLE", "a", 2)
AT = {sent.name: Found(0, sent.offset, sent.name) for sent in (ONE, TWO, WARNED)}


def _history(*sent: Sent, losses: tuple[Loss, ...] = (), read: tuple[Found, ...] = ()) -> History:
    return History(frozenset("ab"), list(sent), list(read), list(losses))


def test_a_history_without_a_failure_has_no_anomaly() -> None:
    figures = count(_history(ONE, TWO, WARNED, read=tuple(AT.values())), AT.values(), AT.values())
    assert figures == Figures(sent=3, ok=2, warned=1)
    assert figures.anomalies == 0


def test_an_acknowledged_message_that_is_missing_is_lost_and_named() -> None:
    figures = count(_history(ONE, TWO, read=(AT["0-1"],)), [AT["0-1"]])
    assert (figures.lost, figures.lost_ok, figures.excused) == (1, 1, 0)
    assert figures.examples == ["0-2, SEND_OK at 2.100 by a"]


def test_the_loss_of_one_broker_excuses_only_what_that_broker_alone_had() -> None:
    gone = Loss(4.0, "a")
    figures = count(_history(ONE, TWO, WARNED, losses=(gone,)), [AT["0-1"]])
    assert (figures.lost, figures.lost_ok, figures.excused) == (1, 1, 1)


def test_the_loss_of_the_slave_does_not_excuse_what_the_master_had_alone() -> None:
    figures = count(_history(ONE, WARNED, losses=(Loss(4.0, "b"),)), [AT["0-1"]])
    assert (figures.lost, figures.lost_ok) == (1, 0)


def test_the_loss_of_both_brokers_excuses_everything_before() -> None:
    losses = (Loss(1.5, "a"), Loss(2.5, "b"))
    figures = count(_history(ONE, TWO, losses=losses), [])
    assert (figures.lost, figures.excused) == (1, 1)
    assert figures.examples == ["0-2, SEND_OK at 2.100 by a"]


def test_a_send_without_a_receipt_may_be_missing_or_there() -> None:
    unknown = replace(TWO, status=FAILED, node="", offset=-1)
    assert count(_history(ONE, unknown), [AT["0-1"]]).anomalies == 0
    assert count(_history(ONE, unknown), [AT["0-1"], AT["0-2"]]).anomalies == 0


def test_a_message_at_two_offsets_is_a_duplicate() -> None:
    figures = count(_history(ONE, TWO), [AT["0-1"], AT["0-2"], Found(0, 2, "0-1")])
    assert (figures.duplicates, figures.conflicts) == (1, 0)


def test_an_acknowledged_message_at_another_offset_than_its_receipt_says_has_moved() -> None:
    assert count(_history(ONE), [Found(0, 7, "0-1")]).conflicts == 1
    assert count(_history(WARNED), [Found(0, 7, "0-3")]).conflicts == 0


def test_a_message_behind_one_that_was_sent_after_its_acknowledgement_breaks_the_order() -> None:
    swapped = [Found(0, 1, "0-1"), Found(0, 0, "0-2")]
    assert count(_history(ONE, TWO), swapped).order == 1
    at_once = replace(TWO, begin=1.05)
    assert count(_history(ONE, at_once), swapped).order == 0


def test_what_the_consumer_or_the_slave_does_not_have_is_counted() -> None:
    figures = count(_history(ONE, TWO, read=(AT["0-1"],)), [AT["0-1"], AT["0-2"]], [AT["0-2"]])
    assert (figures.unread, figures.not_copied) == (1, 1)


def test_a_message_that_was_acknowledged_and_that_the_running_consumer_did_not_get_is_named() -> None:
    unknown = replace(TWO, status=FAILED, node="", offset=-1)
    figures = count(_history(ONE, unknown, WARNED), AT.values())
    assert (figures.unread, figures.skipped, figures.anomalies) == (3, 2, 0)
    assert figures.examples == [
        "0-1, skipped, SEND_OK at 1.100 by a",
        "0-3, skipped, SLAVE_NOT_AVAILABLE at 3.100 by a",
    ]
