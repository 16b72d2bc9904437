"""What identifies a copy that does not name its original, as Apache's brokers make them."""

import pytest

from turbopump.broker.delay import timer_records
from turbopump.protocol.record import Record

PROPERTIES = b"UNIQ_KEY\x01K1\x02TIMER_OUT_MS\x015000\x02TIMER_DEQUEUE_MS\x015001\x02"


def record(reference: int) -> Record:
    return Record("T", 0, 0, 0, 900, 0, 0, b"", 0, b"", 0, reference, properties=PROPERTIES)


def test_a_copy_of_apache_is_known_by_its_properties() -> None:
    assert timer_records.name_of_copy(record(0)) == ("T", b"K1", b"5000", 0)


@pytest.mark.parametrize("original", [0, 1, 700])
def test_a_copy_that_names_its_original_is_not_taken_for_one_of_apache(original: int) -> None:
    assert timer_records.name_of_copy(record(~original)) is None
