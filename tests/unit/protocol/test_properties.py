import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import relaxed

from turbopump.protocol.properties import append, find, pack, parse, without

words = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=8)
strings = st.text("AB\x01\x02", max_size=40)


@given(st.dictionaries(words, words, max_size=8))
@relaxed
def test_pairs_come_back_but_for_empty_ones(pairs: dict[str, str]) -> None:
    kept = {name: value for name, value in pairs.items() if name and value}
    assert parse(pack(pairs)) == kept
    assert parse(pack(pairs).encode()) == kept
    assert parse(pack(pairs).removesuffix("\x02")) == kept  # as 4.9.1 to 5.1.4 write it


@given(strings, st.sampled_from(["A", "B", "AB", "AA"]))
@relaxed
def test_finding_one_agrees_with_parsing_all(text: str, name: str) -> None:
    assert find(text, name) == parse(text).get(name) == find(text.encode(), name)


@given(strings, st.sampled_from(["A", "B", "AB"]))
@relaxed
def test_removing_one_leaves_the_others(text: str, name: str) -> None:
    expected = parse(text)
    expected.pop(name, None)
    assert parse(without(text.encode(), f"{name}\x01".encode())) == expected


@given(strings)
@relaxed
def test_appending_one_leaves_the_others(text: str) -> None:
    assert parse(append(text, "NEW", "x")) == {**parse(text), "NEW": "x"}


@given(st.binary(max_size=60))
@relaxed
def test_any_bytes_can_be_read(data: bytes) -> None:
    parse(data)
    find(data, "A")


def test_apaches_string_is_read_and_written() -> None:
    text = "UNIQ_KEY\x01ABC\x02WAIT\x01true\x02"
    assert parse(text) == {"UNIQ_KEY": "ABC", "WAIT": "true"}
    assert pack({"UNIQ_KEY": "ABC", "WAIT": "true"}) == text
    assert pack({}) == ""


@pytest.mark.parametrize(
    "text", ["", "\x02", "A", "A\x01", "\x01A", "\x01", "A\x01\x02", "\x01A\x02", "\x02\x02"]
)
def test_what_is_no_pair_is_dropped(text: str) -> None:
    assert parse(text) == {}
    assert find(text, "A") is None


def test_a_value_may_hold_the_first_separator_and_the_last_pair_counts() -> None:
    text = "A\x01x\x01y\x02B\x01b\x02A\x01z\x02"
    assert parse(text) == {"A": "z", "B": "b"}
    assert find("A\x01x\x01y\x02", "A") == "x\x01y"


def test_an_empty_pair_hides_no_earlier_one() -> None:
    assert find("A\x01x\x02A\x01\x02", "A") == "x"
    assert find("A\x01x\x02" + "A\x01\x02" * 100_000, "A") == "x"


def test_a_name_is_found_whole_only() -> None:
    assert find("XKEYS\x01a\x02KEYSX\x01b\x02", "KEYS") is None
    assert find("V\x01KEYS\x02KEYS\x01b", "KEYS") == "b"


def test_the_missing_end_of_a_4_9_string_is_added_before_appending() -> None:
    assert append("A\x01x", "B", "y") == "A\x01x\x02B\x01y\x02"
    assert append("A\x01x\x02", "B", "y") == "A\x01x\x02B\x01y\x02"
    assert append("", "B", "y") == "B\x01y\x02"


@pytest.mark.parametrize("pair", [("a\x01", "v"), ("a\x02", "v"), ("a", "v\x02")])
def test_a_separator_in_a_pair_is_not_packed(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="must not contain"):
        pack(dict([pair]))


def test_removing_takes_every_occurrence_and_keeps_the_rest_as_it_was() -> None:
    assert without(b"A\x01x\x02B\x01y\x02A\x01z", b"A\x01") == b"B\x01y"
    assert without(b"B\x01y\x02", b"A\x01") == b"B\x01y\x02"
    assert without(b"B\x01A\x01y\x02A\x01z\x02C\x01\x02", b"A\x01") == b"B\x01A\x01y\x02C\x01\x02"
