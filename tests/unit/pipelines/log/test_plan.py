import pytest

from turbopump.pipelines.log.files import QueueName
from turbopump.pipelines.log.options import TABLE, query_of, rows_of
from turbopump.pipelines.log.plan import (
    FEW_ROWS,
    LATEST,
    LogRange,
    OffsetsGone,
    QueueEnds,
    QueuePositions,
    QueueRange,
    StoreQuery,
    divided,
    log_ranges,
    narrowed,
    preferred_cuts,
)
from turbopump.pipelines.options import BadOption, FormatOptions
from turbopump.store.pieces import LogPart

T0 = QueueName("T", 0)


def asked(**given: str) -> FormatOptions:
    return FormatOptions(TABLE, given, "rocketmq-log")


# ranges


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (-2, -1, (10, 20)),
        (15, -1, (15, 20)),
        (-2, 15, (10, 15)),
        (25, -1, (25, 25)),
        (-2, 99, (10, 20)),
        (15, 12, (15, 15)),
    ],
)
def test_offsets_are_held_against_what_there_is(begin, end, expected):
    found = narrowed(
        StoreQuery(starting=QueuePositions(begin), ending=QueuePositions(end)), QueueEnds(T0, 10, 20)
    )
    assert (found.begin, found.end) == expected


def test_offsets_before_the_first_are_an_error_unless_one_may_do_without():
    early = StoreQuery(starting=QueuePositions(LATEST, {T0: 3}))
    with pytest.raises(OffsetsGone, match="T/0 begins at offset 10: 3 is gone"):
        narrowed(early, QueueEnds(T0, 10, 20))
    lenient = StoreQuery(starting=QueuePositions(LATEST, {T0: 3}), is_strict=False)
    assert narrowed(lenient, QueueEnds(T0, 10, 20)).begin == 10


def test_offsets_beyond_the_end_are_an_error_unless_one_may_do_without():
    for beyond, words in (
        ({"ending": QueuePositions(LATEST, {T0: 99})}, "it cannot be read up to 99"),
        ({"starting": QueuePositions(LATEST, {T0: 21})}, "it cannot be read from 21 on"),
    ):
        with pytest.raises(OffsetsGone, match=f"T/0 ends at offset 20: {words}"):
            narrowed(StoreQuery(**beyond), QueueEnds(T0, 10, 20))
        assert narrowed(StoreQuery(**beyond, is_strict=False), QueueEnds(T0, 10, 20)).end <= 21
    assert narrowed(StoreQuery(ending=QueuePositions(LATEST, {T0: 20})), QueueEnds(T0, 10, 20)).end == 20


def test_times_narrow_too():
    assert narrowed(StoreQuery(), QueueEnds(T0, 10, 20, since=12, until=14)) == QueueRange(T0, 12, 14)


# sharing out


def test_long_ranges_are_cut_and_short_ones_share_a_partition():
    long = QueueRange(T0, 5, 5 + 2 * FEW_ROWS + 1)
    short = [QueueRange(QueueName("T", number), 0, FEW_ROWS // 2 - 1) for number in range(1, 6)]
    found = divided([*short[:2], long, *short[2:]], FEW_ROWS)
    assert [len(partition) for partition in found] == [1, 1, 1, 2, 2, 1]
    everything = [piece for partition in found for piece in partition]
    assert sum(map(len, everything)) == len(long) + sum(map(len, short))
    assert max(sum(map(len, partition)) for partition in found) <= FEW_ROWS


def test_empty_ranges_need_no_partition():
    assert divided([QueueRange(T0, 3, 3)], 10) == []


def test_partitions_may_be_smaller_than_what_is_thought_few():
    found = divided([QueueRange(T0, 0, 10)], 3)
    assert [len(piece) for (piece,) in found] == [2, 3, 2, 3]


def test_the_log_is_cut_where_records_begin():
    part = LogPart(1000, 1000, "")
    assert log_ranges(part, 1900, [1500, 990, 1950]) == [(LogRange(1000, 1500),), (LogRange(1500, 1900),)]
    assert log_ranges(part, 5000, []) == [(LogRange(1000, 2000),)]
    assert preferred_cuts(0, 1000, 1.0, 400) == [333, 666]
    assert preferred_cuts(0, 1000, 0.0, 400) == []


# options


def test_options_make_a_query():
    query = query_of(
        asked(
            topic="A, B",
            queue="1,2",
            startingOffsets='{"A":{"1":7},"B":{"broker-a":{"2":8}}}',
            endingTimestamp="2023-11-14T22:13:20Z",
            startingTimestamp="1600000000005",
            tags="a || b",
            failOnDataLoss="false",
        )
    )
    assert query.topics == ("A", "B")
    assert query.queues == {1, 2}
    assert query.starting.of == {QueueName("A", 1): 7, QueueName("B", 2): 8}
    assert (query.since_ms, query.until_ms) == (1_600_000_000_005, 1_700_000_000_000)
    assert (query.tags, query.is_strict) == ({"a", "b"}, False)
    assert rows_of(asked(kafkaCompat="true")).schema.names[0] == "key"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a", "subscribePattern": "b"}, "are both given: give one"),
        ({"startingOffsets": "latest"}, "use earliest"),
        ({"startingOffsets": "{}[]"}, "JSON"),
        ({"startingOffsets": '{"T":3}'}, "startingOffsets must be earliest, latest"),
        ({"queue": "x"}, "queue must be queue ids separated by commas, got 'x'"),
        ({"subscribePattern": "("}, "regular expression"),
        ({"startingTimestamp": "noon"}, "milliseconds"),
        ({"startingTimestamp": "2023-11-14T22:13:20"}, "must have a time zone"),
        ({"startingTimestamp": "1700000000"}, "looks like seconds"),
        ({"tags": " "}, "a || b"),
        ({"columns": "bodi"}, "did you mean body"),
        ({"topik": "T"}, "did you mean topic"),
    ],
)
def test_an_option_that_cannot_be_right_is_told(given, message):
    with pytest.raises(BadOption, match=message.replace("|", r"\|")):
        all_of(given)


def all_of(given):
    options = asked(**given)
    return query_of(options), rows_of(options)
