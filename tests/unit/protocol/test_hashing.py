import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import readable, relaxed

from turbopump.protocol.bodies import HeartbeatData
from turbopump.protocol.hashing import extend_hash, index_hash, java_hash


def by_the_book(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


@given(st.text(max_size=100) | st.text("TopicTest#0123456789ABCDEF", max_size=60))
@relaxed
def test_the_hash_is_javas(text: str) -> None:
    assert java_hash(text) == by_the_book(text)


@given(st.text(max_size=30), st.text(max_size=30))
@relaxed
def test_a_hash_can_be_extended(prefix: str, text: str) -> None:
    assert extend_hash(java_hash(prefix), text) == java_hash(prefix + text)


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 1024, 5000])
def test_long_texts_are_hashed_in_pieces(length: int) -> None:
    for letter in "xé中":
        text = (letter + "ab") * (length // 3) + letter * (length % 3)
        assert java_hash(text) == by_the_book(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("hello", 99162322), ("TagA", 2598919), ("TagB", 2598920), ("polygenelubricants", -(1 << 31))],
)
def test_known_values(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_beyond_the_basic_plane_a_character_counts_as_two_units() -> None:
    assert java_hash("😀") == 31 * 0xD83D + 0xDE00
    assert java_hash("\ud83d\ude00") == java_hash("😀")


def test_an_index_hash_is_never_negative() -> None:
    assert index_hash("polygenelubricants") == 0  # the one value without an absolute value in 32 bits
    assert index_hash("TagA") == 2598919
    negative = "T1#7F000001000100000000000000000002"
    assert index_hash(negative) == abs(by_the_book(negative))


def test_tags_in_captured_heartbeats_have_the_codes_java_sent() -> None:
    seen = 0
    for row, _, command in readable():
        if row.by_java and command.code == 34 and not command.is_response:
            for consumer in HeartbeatData.decode(command.body).consumerDataSet:
                for subscription in consumer.subscriptionDataSet:
                    assert sorted(map(java_hash, subscription.tagsSet)) == sorted(subscription.codeSet)
                    seen += len(subscription.tagsSet)
    assert seen
