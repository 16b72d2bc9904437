import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.protocol.conf import MAX_CONF_BYTES, ConfigError, pack_properties, parse_properties

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def pairs(text: bytes | str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in parse_properties(text)]


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("  a \t = \f b c ", "a", "b c "),
        ("a==b", "a", "=b"),
        ("a = : b", "a", ": b"),
        ("a", "a", ""),
        ("=b", "", "b"),
        (r"a\=b\:c\ d = e", "a=b:c d", "e"),
        (r"a = \ b", "a", " b"),
        (r"path = C:\\store\\x", "path", r"C:\store\x"),
        (r"path = C:\store\n", "path", "C:store\n"),
        (r"a = \u4F60\u597d", "a", "你好"),
        (r"a = \ud83d\ude00", "a", "😀"),
        (r"a = \ud83d", "a", "\N{REPLACEMENT CHARACTER}"),
        ("a = 你好", "a", "你好"),
        ("a = b # c", "a", "b # c"),
    ],
)
def test_a_line_becomes_key_and_value_as_in_java(line: str, key: str, value: str) -> None:
    assert pairs(line) == [(key, value)]


def test_comments_and_blank_lines_count_as_lines_and_nothing_else() -> None:
    entries = parse_properties("# one\r\n\r\n   ! two \\\nthree=3\r  \nfive=5")
    assert [(entry.key, entry.value, entry.line) for entry in entries] == [
        ("three", "3", 4),
        ("five", "5", 6),
    ]


def test_a_line_goes_on_after_an_odd_number_of_backslashes() -> None:
    assert pairs("fruits = apple, \\\n     pear\\\\\nnext=1") == [("fruits", "apple, pear\\"), ("next", "1")]
    assert pairs("last = one \\") == [("last", "one ")]


def test_bytes_that_are_not_utf8_are_read_as_latin_1() -> None:
    assert pairs("a=ä".encode("latin-1")) == [("a", "ä")]


@pytest.mark.parametrize("text", [r"x=1" + "\n" + r"a=\u12", r"y" + "\n" + r"a=\u00zz", "y\n" + r"\u"])
def test_a_broken_escape_names_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"line 2: .* four hexadecimal digits"):
        parse_properties(text)


def test_a_file_of_more_than_a_megabyte_is_refused() -> None:
    assert parse_properties(b"#" * MAX_CONF_BYTES) == []
    with pytest.raises(ConfigError):
        parse_properties(b"#" * (MAX_CONF_BYTES + 1))


@given(st.dictionaries(TEXT, TEXT, max_size=6))
def test_what_was_packed_is_read_back(values: dict[str, str]) -> None:
    assert dict(pairs(pack_properties(values))) == values


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace")))
def test_no_bytes_raise_anything_but_a_configuration_error(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_properties(data)
