"""Rows become the bytes that a client would have made of them, or are complained about by name."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.message import CopiedMessage, Message, MessageQueue
from turbopump.client.produce.selectors import by_hash
from turbopump.pipelines.sink import rows
from turbopump.pipelines.sink.frames import half_frames, lanes
from turbopump.pipelines.sink.rows import BadRow, cut, groups, pieces, records, refused_row, rows_of
from turbopump.protocol import batch, properties
from turbopump.protocol.ids import UniqueIds

PAIRS = pa.map_(pa.string(), pa.string())
TIME = pa.timestamp("us", "UTC")
FRONT = UniqueIds("127.0.0.1", 1, lambda: 0).next()[:-4]

text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs", "Cc", "Z")), max_size=6)
some_text = text.filter(bool)
names = some_text.filter(lambda name: name not in rows.NOT_FREE)
made_rows = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(min_size=1, max_size=40),
            "topic": st.sampled_from(["A", "B", "C"]),
            "tags": st.none() | text,
            "keys": st.none() | st.lists(some_text, max_size=3),
            "properties": st.none() | st.dictionaries(names, some_text, max_size=3),
            "shardingKey": st.none() | text,
        }
    ),
    min_size=1,
    max_size=20,
)


def arrow(made: list[dict]) -> pa.RecordBatch:
    types = {"keys": pa.list_(pa.string()), "properties": PAIRS, "body": pa.binary()}
    columns = {}
    for name in made[0]:
        values = [list(row[name].items()) if isinstance(row[name], dict) else row[name] for row in made]
        columns[name] = pa.array(values, types.get(name, pa.string()))
    return pa.record_batch(columns)


def message(row: dict) -> Message:
    """Rows may be copies of stored messages, so their tags are not held to what a new message may have."""
    return CopiedMessage(
        row["topic"], row["body"], row["tags"] or "", row["keys"] or (), row["properties"] or {}
    )


def expected(row: dict) -> dict[str, str]:
    own = message(row).property_map()
    if row["shardingKey"]:
        own[properties.SHARDING_KEY] = row["shardingKey"]
    return own | {properties.WAIT: "true"}


def seen(packed: bytes) -> dict[str, str]:
    """Without the unique key, which must be there."""
    pairs = properties.parse(packed)
    assert pairs.pop(properties.UNIQUE_KEY).startswith(FRONT)
    return pairs


@given(made_rows, st.integers(0, 3))
def test_rows_have_the_properties_that_a_client_gives_their_messages(made, skipped):
    packed = rows_of(arrow(made).slice(skipped), None, FRONT)
    left = made[skipped:]
    assert [seen(one) for one in packed.properties.to_pylist()] == [expected(row) for row in left]
    assert packed.bodies.to_pylist() == [row["body"] for row in left]
    keys = [properties.find(one, properties.UNIQUE_KEY) for one in packed.properties.to_pylist()]
    assert len(set(keys)) == len(keys)


@given(made_rows)
def test_lanes_have_every_row_once_at_the_queue_of_its_key_and_in_order(made):
    found: dict[tuple[str, int | None], list[tuple[bytes, dict[str, str]]]] = {}
    for lane in lanes(rows_of(arrow(made), None, FRONT), {"A": 1, "B": 4, "C": 7}):
        for frame in lane.frames:
            split = batch.split(frame.body)
            assert len(split) == frame.count
            place = found.setdefault((frame.topic, lane.queue), [])
            place += [(body, seen(packed)) for _, body, packed in split]
    wanted: dict[tuple[str, int | None], list[tuple[bytes, dict[str, str]]]] = {}
    for row in made:
        queues = [MessageQueue(row["topic"], "b", n) for n in range({"A": 1, "B": 4, "C": 7}[row["topic"]])]
        key = row["shardingKey"]
        queue = by_hash(key)(queues, message(row)).id if key else None
        wanted.setdefault((row["topic"], queue), []).append((row["body"], expected(row)))
    assert found == wanted


@given(made_rows, st.integers(0, 9))
def test_half_messages_name_their_queue_and_go_to_its_broker(made, turn):
    packed = rows_of(arrow(made), None, FRONT)
    places = [[(topic, "x", 0), (topic, "y", 0), (topic, "x", 1)] for topic in packed.topics]
    bodies = []
    for broker, body, count in half_frames(packed, places, turn, 1 << 20, 4):
        split = batch.split(body)
        assert len(split) == count <= 4
        for _, one, text in split:
            pairs = seen(text)
            place = pairs[properties.REAL_TOPIC], broker, int(pairs[properties.REAL_QUEUE_ID])
            assert place in [place for each in places for place in each]
            bodies.append((place[0], one))
    assert sorted(bodies) == sorted((row["topic"], row["body"]) for row in made)


def test_rows_without_a_key_take_turns_over_the_queues():
    packed = rows_of(pa.record_batch({"body": pa.array([b"x"] * 8)}), "T", FRONT)
    places = [[("T", "x", 0), ("T", "x", 1), ("T", "x", 2), ("T", "x", 3)]]
    ((_, body, _),) = half_frames(packed, places, 1, 1 << 20, 4096)
    queues = [seen(text)[properties.REAL_QUEUE_ID] for _, _, text in batch.split(body)]
    assert queues == ["1", "2", "3", "0", "1", "2", "3", "0"]


def test_a_topic_that_is_given_counts_more_than_the_column():
    packed = rows_of(pa.record_batch({"body": ["x"], "topic": ["A"]}), "T", FRONT)
    assert packed.topics == ("T",)


def test_a_text_of_keys_is_kept_with_its_blanks():
    packed = rows_of(pa.record_batch({"body": ["x"], "keys": [" a b "]}), "T", FRONT)
    assert seen(packed.properties[0].as_py())[properties.KEYS] == "a b"


def test_rows_with_a_time_go_alone_with_time_rounded_up():
    made = pa.record_batch(
        {
            "body": ["now", "level", "later"],
            "delayLevel": pa.array([0, 3, None], pa.int32()),
            "deliverTime": pa.array([None, None, 1_600_000_000_000_001], TIME),
        }
    )
    alone, also, others = lanes(rows_of(made, "T", FRONT), {"T": 4})
    assert alone.frames[0].body == b"level"
    assert properties.find(alone.frames[0].alone, properties.DELAY) == "3"
    assert properties.find(also.frames[0].alone, properties.TIMER_DELIVER_MS) == "1600000000001"
    assert [body for _, body, _ in batch.split(others.frames[0].body)] == [b"now"]


def test_half_messages_say_when_they_are_due_and_keep_their_order():
    made = pa.record_batch(
        {
            "body": ["now", "level", "later", "also now"],
            "delayLevel": pa.array([0, 3, None, None], pa.int32()),
            "deliverTime": pa.array([None, None, 1_600_000_000_000_001, None], TIME),
        }
    )
    places = [[("T", "x", 0)]]
    ((_, body, count),) = half_frames(rows_of(made, "T", FRONT), places, 0, 1 << 20, 4096)
    times = properties.DELAY, properties.TIMER_DELIVER_MS
    assert count == 4
    assert [(one, *(seen(text).get(name) for name in times)) for _, one, text in batch.split(body)] == [
        (b"now", None, None),
        (b"level", "3", None),
        (b"later", None, "1600000000001"),
        (b"also now", None, None),
    ]


def test_a_row_whose_time_a_broker_refuses_is_named_with_its_column():
    made = pa.record_batch(
        {
            "body": ["now", "level", "later"],
            "delayLevel": pa.array([0, 3, None], pa.int32()),
            "deliverTime": pa.array([None, None, 1_600_000_000_000_001], TIME),
        }
    )
    packed = rows_of(made, "T", FRONT, 100)
    too_far = refused_row(packed, 100, f"message {FRONT}0002: too far")
    assert str(too_far) == "row 102 of its partition: column deliverTime is refused by a broker: too far"
    assert "column delayLevel" in str(refused_row(packed, 100, f"message {FRONT}0001: no"))
    for other in (f"message {FRONT}0003: no", f"message {'0' * 28}0002: no", "the disk is full", ""):
        assert refused_row(packed, 100, other) is None


def test_all_rows_may_have_a_time():
    made = pa.record_batch({"body": ["a", "b"], "delayLevel": pa.array([1, 2], pa.int32())})
    assert [lane.frames[0].body for lane in lanes(rows_of(made, "T", FRONT), {"T": 4})] == [b"a", b"b"]


def test_a_row_that_is_larger_than_a_frame_goes_alone():
    bodies = [b"a", b"b" * (2 << 20), b"c"]
    found = lanes(rows_of(pa.record_batch({"body": bodies}), "T", FRONT), {"T": 1})
    assert [(lane.frames[0].count, lane.frames[0].alone is None) for lane in found] == [
        (1, True),
        (1, False),
        (1, True),
    ]
    assert found[1].frames[0].body == bodies[1]


def test_large_batches_come_in_pieces(monkeypatch):
    monkeypatch.setattr(rows, "MAX_PIECE_BYTES", 10)
    made = pa.record_batch({"body": [b"12345678", b"123", b"1", b"1", b"12345678901"]})
    assert [len(piece) for piece in pieces(made)] == [1, 3, 1]


def test_cuts_stay_within_bytes_and_rows():
    assert cut(np.array([5, 5, 5, 20, 1, 1, 1]), 10, 2) == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]
    assert cut(np.array([], np.int64), 10, 2) == []


def test_groups_keep_the_order_of_rows():
    assert [(code, list(part)) for code, part in groups(np.array([2, 1, 2, 1]))] == [(1, [1, 3]), (2, [0, 2])]


def test_a_record_counts_all_of_its_properties():
    packed = rows_of(pa.record_batch({"body": [b"x"], "tags": ["t"]}), "T", FRONT)
    data, offsets = records(packed, pa.array([b"A\x011\x02"]))
    ((_, body, text),) = batch.split(data.to_pybytes()[: offsets[-1]])
    assert (body, text[:10]) == (b"x", b"A\x011\x02TAGS\x01t")


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("body", ["x", None], "row 11 of its partition: column body is null"),
        ("body", ["x", ""], "row 11 .* body is empty"),
        ("body", ["x", "x" * (4 << 20) + "y"], "row 11 .* body must have at most 4194304 bytes"),
        ("topic", ["A", None], "row 11 .* topic is null"),
        ("topic", ["A", "a b"], "row 11 .* topic is wrong: .* must have only"),
        ("tags", ["a", "a\x02"], r"row 11 .* tags contains \\x01 or \\x02"),
        ("keys", [["a"], ["b", "c d"]], "row 11 .* keys holds a key that is null, empty or contains a space"),
        ("keys", [["a"], [None]], "row 11 .* keys holds a key"),
        ("keys", [["a"], [""]], "row 11 .* keys holds a key"),
        ("properties", [[("a", "1")], [("b", None)]], "row 11 .* properties has a value that is null"),
        (
            "properties",
            [[("a", "1")], [("b", " ")]],
            "row 11 .* properties has a value that is null or blank",
        ),
        ("properties", [[("a", "1")], [("", "x")]], "row 11 .* name that is blank"),
        ("properties", [[("a", "1")], [("a\x01", "x")]], r"row 11 .* properties contains \\x01"),
        ("properties", [[], [("a", "b"), ("TAGS", "x")]], "row 11 .* name that brokers and clients use"),
        ("properties", [[], [("a", "b" * 40_000)]], "row 11 .* must have at most 31743 bytes"),
        ("delayLevel", [1, -1], "row 11 .* delayLevel must not be negative"),
    ],
)
def test_a_bad_row_is_named_with_its_column_and_the_fix(column, values, words):
    types = {"keys": pa.list_(pa.string()), "properties": PAIRS, "delayLevel": pa.int32()}
    columns = {"body": pa.array(["x", "y"]), "topic": pa.array(["A", "A"])}
    columns[column] = pa.array(values, types.get(column, pa.string()))
    whole = pa.record_batch(columns)
    with pytest.raises(BadRow, match=words):
        rows_of(whole, None, FRONT, 10)
    with pytest.raises(BadRow, match=words):
        rows_of(whole.slice(1), None, FRONT, 11)


def test_one_time_is_enough():
    made = pa.record_batch(
        {"body": ["x"], "delayLevel": pa.array([1], pa.int32()), "deliverTime": pa.array([1], TIME)}
    )
    with pytest.raises(BadRow, match=r"row 0 .* deliverTime and delayLevel are both given"):
        rows_of(made, "T", FRONT)
