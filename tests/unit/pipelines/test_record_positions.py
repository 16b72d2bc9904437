"""Where records begin, in buffers of many: runs of one size, changes of size, and what is no record."""

import random
from itertools import accumulate

import pytest

from turbopump.pipelines.record_positions import MAX_RUN, RUN, starts_in
from turbopump.protocol.record import BLANK, MAGIC_V1, MIN_RECORD_SIZE

SIZES = {
    "of one size, more than one look takes": [MIN_RECORD_SIZE] * (2 * MAX_RUN + 3),
    "of one size, then another": [100] * 500 + [120] * 500,
    "one of another size among many": [100] * 300 + [101] + [100] * 300,
    "of many sizes": [random.Random(1).randrange(MIN_RECORD_SIZE, 200) for _ in range(3000)],
    "of two sizes in turn": [100, 110] * 1500,
    "fewer than a look is worth": [100] * (RUN - 1),
    "as many as a look is worth": [100] * (RUN + 1),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_each_record_is_found_whatever_sizes_follow_one_another(sizes):
    assert starts_in(joined(sizes)).tolist() == begins(sizes)


@pytest.mark.parametrize("count", [0, 1, RUN, RUN + 1, 200])
@pytest.mark.parametrize(
    "end", [b"", b"\0" * 200, b"\0\0\0\x64\xff", (100).to_bytes(4, "big") + b"none" + bytes(92)]
)
def test_a_run_ends_where_something_else_follows(count, end):
    sizes = [100] * count
    assert starts_in(joined(sizes) + end).tolist() == begins(sizes)


def test_a_record_that_does_not_end_before_the_limit_is_not_taken():
    sizes = [100] * 300
    assert starts_in(joined(sizes), 0, 29_999).tolist() == begins(sizes)[:-1]
    assert starts_in(joined(sizes)[:-1]).tolist() == begins(sizes)[:-1]
    assert starts_in(joined(sizes), 100, 20_000).tolist() == begins(sizes)[1:200]


def test_a_blank_within_a_run_is_passed_over():
    blank = record(100, BLANK)
    data = joined([100] * 50) + blank + joined([100] * 50)
    assert starts_in(data).tolist() == [at for at in range(0, 10_100, 100) if at != 5_000]


def begins(sizes):
    return [0, *accumulate(sizes[:-1])] if sizes else []


def joined(sizes):
    return b"".join(record(size) for size in sizes)


def record(size, magic=MAGIC_V1):
    return size.to_bytes(4, "big") + magic.to_bytes(4, "big", signed=True) + bytes(size - 8)
