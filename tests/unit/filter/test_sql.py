"""SQL92 expressions: the results equal thousands of recorded results of Apache's filter classes.

The recording is made by `python -m tests.interop.filters`.
"""

import json
import random
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compat import filters as generated

from turbopump.filter import BadExpression, Undecidable, compile_sql
from turbopump.filter.parser import MAX_DEPTH, MAX_TERMS, MAX_TEXT
from turbopump.protocol import properties

RECORDED = Path(__file__).parents[2] / "compat" / "recorded" / "filters.json"
WORDS_OF_5 = ("contains", "startswith", "endswith")


def message(**pairs: str) -> bytes:
    return properties.pack(pairs).encode()


def test_our_evaluation_is_apaches() -> None:
    recorded = json.loads(RECORDED.read_text())
    sets = generated.packed(recorded["sets"])
    assert len(recorded["cases"]) > 5000
    for text, letters, *_ in recorded["cases"]:
        assert generated.answer(text, sets) == letters, text


def test_4_9_differs_in_three_words_alone() -> None:
    differ = [case[0] for case in json.loads(RECORDED.read_text())["cases"] if len(case) == 3]
    assert len(differ) > 100
    assert all(any(word in text.lower() for word in WORDS_OF_5) for text in differ)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("a > 5", True),
        ("a BETWEEN 1 AND 6", False),
        ("a NOT BETWEEN 1 AND 6", True),
        ("a = 7 AND (b = 'x' OR b = 'y')", True),
        ("b IN ('y', 'z')", False),
        ("missing IS NULL", True),
        ("missing > 5", None),
        ("missing > 5 OR a > 5", True),
        ("missing > 5 AND a > 5", None),
        ("NOT (missing > 5)", None),
        ("b CONTAINS 'x' AND b NOT STARTSWITH 'y'", True),
        ("flag = TRUE", True),
        ("a", False),  # all properties are texts, and a text is not true
        ("a = 7 what follows # is not looked at", True),
        ("/* words */ a = 7 -- words\n", True),
    ],
)
def test_truth_false_and_unknown(text: str, truth: bool | None) -> None:
    assert compile_sql(text).evaluate(message(a="7", b="x", flag="true")) is truth


def test_what_cannot_be_compared_is_not_wanted() -> None:
    predicate = compile_sql("a > 5 OR b = 'x'")
    with pytest.raises(Undecidable):
        predicate.evaluate(message(a="many", b="x"))
    assert not predicate.matches(message(a="many", b="x"))
    assert predicate.matches(message(a="6", b="y"))


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "got the end"),
        ("a >", 3, "got the end"),
        ("a = 'x", 4, "a text must end with a quote"),
        ("a > 5 AND # = 1", 10, "unexpected character '#'"),
        ("a BETWEEN 5 AND 3", 2, "the smaller number first"),
        ("(a = 1", 6, "expected an operator or )"),
        ("a IN (1)", 6, "expected a text in single quotes, got '1'"),
        ("a = 1 OR 5", 9, "expected a condition"),
        ("a > 'x'", 2, "only numbers and properties"),
        ("a = 99999999999999999999", 4, "at most 64 bits"),
        ("a NOT b", 6, "BETWEEN, IN, CONTAINS"),
    ],
)
def test_a_bad_expression_says_what_and_where(text: str, position: int, words: str) -> None:
    with pytest.raises(BadExpression) as raised:
        compile_sql(text)
    assert raised.value.position == position
    assert words in str(raised.value)


def test_the_place_is_shown_by_line_and_column() -> None:
    with pytest.raises(BadExpression) as raised:
        compile_sql("a = 1 AND\n  b = ;")
    assert str(raised.value) == "unexpected character ';' (line 2, column 7: a = 1 AND   b = [here];)"


def test_of_two_pairs_the_last_counts_and_an_empty_one_is_none() -> None:
    predicate = compile_sql("a = '2'")
    assert predicate.matches(b"a\x011\x02a\x012\x02")
    assert predicate.matches(b"a\x012\x02a\x01\x02")
    assert predicate.matches(b"b\x011\x02a\x012")  # as 4.9 writes it
    assert not predicate.matches(b"ba\x012\x02")


def test_a_text_is_as_long_as_it_may_be() -> None:
    text = "a = 1"
    assert compile_sql(text + " " * (MAX_TEXT - len(text)))
    with pytest.raises(BadExpression, match="at most 65,536 characters"):
        compile_sql(text + " " * (MAX_TEXT - len(text) + 1))


@pytest.mark.parametrize("sign", ["(", "-", "NOT ", "+"])
def test_levels_are_as_deep_as_they_may_be(sign: str) -> None:
    def nested(depth: int) -> str:
        return f"{sign * depth}a{')' * depth if sign == '(' else ''} {'= 5' if sign in '-+' else ''}"

    assert compile_sql(nested(MAX_DEPTH))
    with pytest.raises(BadExpression, match="at most 64 levels"):
        compile_sql(nested(MAX_DEPTH + 1))


def test_terms_are_as_many_as_they_may_be() -> None:
    terms = ["a=1"] * (MAX_TERMS // 3)
    assert compile_sql(" OR ".join(terms))
    with pytest.raises(BadExpression, match="at most 4,096 terms"):
        compile_sql(" OR ".join([*terms, "a=1"]))


@given(st.integers(0, 2**32))
def test_whatever_is_accepted_is_evaluated(seed: int) -> None:
    chance = random.Random(seed)
    sets = generated.packed(generated.property_sets(chance, 3))
    for text in islice(generated.expressions(chance), 5):
        assert set(generated.answer(text, sets)) <= set("TFNEX")


@given(st.text())
def test_any_text_is_an_expression_or_a_bad_one(text: str) -> None:
    bad = None
    try:
        compile_sql(text).matches(b"")
    except BadExpression as error:
        bad = error
    assert bad is None or (0 <= bad.position <= len(text) and str(bad))
