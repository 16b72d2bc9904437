"""The properties of messages that are in several queues, or are several messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.protocol import batch, inner, light, properties
from turbopump.protocol.errors import BrokenBody

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\x01\x02/,"), min_size=1, max_size=20).map(
    lambda text: f"%LMQ%{text}"
)
PLACES = st.dictionaries(NAMES, st.integers(0, 10**17), max_size=6).map(lambda found: list(found.items()))
OTHERS = st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY"]), st.text("abc ", min_size=1))


@given(PLACES, OTHERS, PLACES)
def test_what_is_written_about_light_queues_is_read(places, others, before) -> None:
    text = light.with_places(properties.pack(others).encode(), before)
    written = light.with_places(text, places)
    assert light.places(written) == places
    found = properties.parse(written)
    assert {name: value for name, value in found.items() if not name.startswith("INNER")} == others


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_some_places_or_none(data: bytes) -> None:
    for name, offset in light.places(data):
        assert light.is_good(name)
        assert offset >= 0
    assert 1 <= inner.count(data) <= inner.MAX_MESSAGES


@pytest.mark.parametrize(
    ("names", "offsets", "found"),
    [
        ("%LMQ%a,%LMQ%b", "3,4", [("%LMQ%a", 3), ("%LMQ%b", 4)]),
        ("%LMQ%a,", "3", [("%LMQ%a", 3)]),  # as 5.5.0 stores a list that ends in a comma
        ("%LMQ%a,%LMQ%a", "0,0", [("%LMQ%a", 0)]),  # one name twice: 5.5.0 counts two, and puts one
        ("other,%LMQ%a", ",5", [("%LMQ%a", 5)]),  # no light queue: 5.5.0 gives it no offset
        ("%LMQ%a,%LMQ%x/y", "3,0", [("%LMQ%a", 3)]),
        ("%LMQ%a,%LMQ%b", "3", []),
        ("%LMQ%a", "x", []),
        ("%LMQ%a", "-1", []),
    ],
)
def test_places_as_apache_writes_them(names: str, offsets: str, found: list) -> None:
    text = f"INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02"
    assert light.places(text.encode()) == found


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_messages_that_wait_or_come_again_are_in_no_light_queue(topic: str) -> None:
    assert not light.takes_part(topic)
    assert light.takes_part("Orders")


MESSAGES = st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=20), st.binary(max_size=20)), max_size=8)


@given(MESSAGES, st.integers(0, 10**12))
def test_an_inner_batch_is_taken_apart_with_consecutive_offsets(messages, base: int) -> None:
    text = f"INNER_NUM\x01{len(messages)}\x02INNER_BASE\x01{base}\x02".encode()
    found = list(inner.unwrapped(batch.join(messages), text, 7))
    assert found == [(base + number, message) for number, message in enumerate(messages)]


def test_a_sender_that_counts_wrong_is_told() -> None:
    body = batch.join([(0, b"a", b""), (0, b"b", b"")])
    assert len(inner.checked(body, {"INNER_NUM": "2"})) == 2
    for said in ("1", "3", "x", ""):
        with pytest.raises(BrokenBody, match="INNER_NUM"):
            inner.checked(body, {"INNER_NUM": said})
