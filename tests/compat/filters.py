"""Expressions and property sets by the thousand, out of a seed: what Apache's filter classes were asked, and
ours are. An answer is T(rue), F(alse), N (unknown), E(rror), or X for an expression that is not accepted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from turbopump.filter import BadExpression, Undecidable, compile_sql
from turbopump.protocol import properties

NAMES = ("a", "b", "c", "d", "a", "b", "c", "d", "missing", "TAGS", "_x$1")
COMMON = ("0", "1", "5", "7", "-5", "5.0", "1000", "abc", "ab", "x", "true", "3000000000")
ODD_NUMBERS = (
    "+5",
    "05",
    "5 ",
    " 5",
    "1e3",
    "0x1p3",
    "5d",
    "5f",
    ".5",
    "5.",
    "1.5e-3",
    "-0.0",
    "0.0",
    "-",
    "+",
)
ODD = ("NaN", "Infinity", "1e400", "5e", "1_000", "٣", "𝟓", "TRUE", "false", "null", "ABC", "it's", "ü", "")
LARGE = ("-2147483648", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808")
VALUES = (*ODD_NUMBERS, *ODD, *LARGE)
USUAL_NUMBERS = ("0", "1", "5", "7", "1000", "5.0", "5L", "7l", ".5", "5.", "5e0")
ODD_LITERALS = (
    "0.0",
    "1e400",
    "1e-400",
    "007",
    "0L",
    "1.5E-3",
    "2147483648",
    "3000000000",
    "9223372036854775808",
)
NUMBERS = (*USUAL_NUMBERS, *USUAL_NUMBERS, *ODD_LITERALS, "2147483647", "9223372036854775807")
TEXTS = ("'abc'", "'ab'", "'it''s'", "'5'", "''", "'true'", "'x'", "'ü'", "'5.0'", "'a'", "'c'", "'b'")
ORDERS = ("<", "<=", ">", ">=")
STRAYS = (
    "#",
    "'",
    ";",
    ",",
    "5",
    "'x'",
    "(",
    ")",
    "+",
    "a.b",
    "b = 1",
    "== 5",
    "!= 5",
    "like 'a'",
    "contains",
)
PIECES = (
    "and",
    "or",
    "not",
    "in",
    "in (1)",
    "is",
    "is not",
    "not a",
    "between 1",
    "startswith",
    "endswith 'c'",
)
RUBBISH = (*STRAYS, *PIECES, "--", "-- words\n", "/* words */", "/* words", "/***/", "-- words")


def property_sets(chance: random.Random, count: int) -> list[dict[str, str]]:
    """Values that mean something in Java; an empty one is never stored."""
    sets: list[dict[str, str]] = [{}]
    while len(sets) < count:
        names = [name for name in dict.fromkeys(NAMES) if name != "missing" and chance.random() < 0.75]
        sets.append(
            {
                name: value
                for name in names
                if (value := chance.choice(COMMON if chance.random() < 0.6 else VALUES))
            }
        )
    return sets


def expressions(chance: random.Random) -> Iterator[str]:
    """Most are accepted, some are nearly."""
    while True:
        text = _condition(chance, chance.randrange(4))
        yield _spoilt(chance, text) if chance.random() < 0.2 else text


def answer(text: str, sets: list[bytes]) -> str:
    """What ours say."""
    try:
        predicate = compile_sql(text)
    except BadExpression:
        return "X"
    letters = []
    for one in sets:
        try:
            truth = predicate.evaluate(one)
        except Undecidable:
            letters.append("E")
        else:
            letters.append("N" if truth is None else "T" if truth else "F")
    return "".join(letters)


def packed(sets: list[dict[str, str]]) -> list[bytes]:
    return [properties.pack(one).encode() for one in sets]


def _condition(chance: random.Random, depth: int) -> str:
    roll = chance.random()
    if depth and roll < 0.25:
        return f"{_condition(chance, depth - 1)} {_cased(chance, 'AND')} {_condition(chance, depth - 1)}"
    if depth and roll < 0.5:
        return f"{_condition(chance, depth - 1)} {_cased(chance, 'OR')} {_condition(chance, depth - 1)}"
    if depth and roll < 0.6:
        return f"{_cased(chance, 'NOT')} ({_condition(chance, depth - 1)})"
    if depth and roll < 0.7:
        return f"({_condition(chance, depth - 1)})"
    if depth and roll < 0.8:
        return f"({_condition(chance, depth - 1)}) {_equality(chance)}"
    return _simple(chance)


def _simple(chance: random.Random) -> str:
    kind = chance.randrange(9)
    no = f"{_cased(chance, 'NOT')} " if chance.random() < 0.3 else ""
    if kind < 2:
        return f"{_operand(chance)} {chance.choice(ORDERS)} {_operand(chance)}"
    if kind < 4:
        return f"{_operand(chance)} {_equality(chance)}"
    if kind == 4:
        low, high = _operand(chance), _operand(chance)
        return f"{_operand(chance)} {no}{_cased(chance, 'BETWEEN')} {low} {_cased(chance, 'AND')} {high}"
    if kind == 5:
        texts = ", ".join(chance.choices(TEXTS, k=chance.randrange(1, 7)))
        return f"{chance.choice(NAMES)} {no}{_cased(chance, 'IN')} ({texts})"
    if kind == 6:
        word = _cased(chance, chance.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
        return f"{_operand(chance)} {no}{word} {chance.choice(TEXTS)}"
    if kind == 7:
        return f"{_operand(chance)} {_cased(chance, 'IS')} {no}{_cased(chance, 'NULL')}"
    return f"{no}{chance.choice((*NAMES, 'TRUE', 'FALSE', 'NULL'))}"


def _equality(chance: random.Random) -> str:
    if chance.random() < 0.2:
        return chance.choice(("IS NULL", "IS NOT NULL", "= TRUE", "<> FALSE", "= NULL"))
    return f"{chance.choice(('=', '<>'))} {_operand(chance)}"


def _operand(chance: random.Random) -> str:
    roll = chance.random()
    if roll < 0.5:
        return chance.choice(NAMES)
    if roll < 0.8:
        sign = chance.choice(("", "", "", "-", "+", "- -", "--", "-("))
        return f"{sign}{chance.choice(NUMBERS)}{')' if sign == '-(' else ''}"
    if roll < 0.93:
        return chance.choice(TEXTS)
    return chance.choice(("TRUE", "false", "NULL", "-a", "+a", "-(a = 5)", "-TRUE", "NOT a", "-'5'"))


def _cased(chance: random.Random, word: str) -> str:
    return word if chance.random() < 0.6 else chance.choice((word.lower(), word.title()))


def _spoilt(chance: random.Random, text: str) -> str:
    kind = chance.randrange(4)
    if kind == 0:
        return f"{text} {chance.choice(RUBBISH)}"
    if kind == 1:
        return text[: chance.randrange(len(text) + 1)]
    words = text.split(" ")
    at = chance.randrange(len(words))
    if kind == 2:
        words[at] = chance.choice(RUBBISH)
    else:
        words.insert(at, chance.choice((*RUBBISH, "\t", "\n", "\f")))
    return " ".join(words)
