"""Splits an expression into tokens, one at a time.

Text is read only as far as the parser asks, since Apache's parser ignores what follows a complete expression:
`a = 1 b #` is `a = 1` there, and here too.
"""

import re
from typing import Final, NamedTuple

from turbopump.filter.errors import BadExpression

END: Final = "end"
NAME: Final = "name"
TEXT: Final = "text"
WHOLE: Final = "whole number"
FRACTION: Final = "fraction"

WORDS: Final = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")) | {
    "CONTAINS",
    "STARTSWITH",
    "ENDSWITH",
}


# The first alternative wins, so a longer token comes before its prefix.
_TOKEN: Final = re.compile(
    r"""
      (?P<space>    [ \t\n\r\f]+ | --[^\n\r]*[\n\r] )
    | (?P<fraction> (?: [0-9]+\.[0-9]* | \.[0-9]+ ) (?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<whole>    0 | [1-9][0-9]*[lL]? )
    | (?P<name>     [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<text>     '(?:''|[^'])*' )
    | (?P<sign>     <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE,
)
_KINDS: Final = {"fraction": FRACTION, "whole": WHOLE, "text": TEXT}


class Token(NamedTuple):
    """One token: its kind, its text and its position."""

    kind: str
    """A reserved word, a sign, or one of the kinds above."""
    image: str
    position: int


class Lexer:
    """Returns the tokens of a text one after the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 0

    def next(self) -> Token:
        text = self.text
        while self._at < len(text):
            at = self._at
            if text.startswith("/*", at) and (end := text.find("*/", at + 2)) >= 0:
                self._at = end + 2
                continue
            found = _TOKEN.match(text, at)
            if found is None:
                raise BadExpression(_unreadable(text[at]), text, at)
            self._at = found.end()
            if found.lastgroup != "space":
                return _token(found, at)
        return Token(END, "", len(text))


def _token(found: re.Match[str], at: int) -> Token:
    image = found.group()
    if found.lastgroup == "sign":
        return Token(image, image, at)
    if found.lastgroup == "name":
        word = image.upper()
        return Token(word if word in WORDS else NAME, image, at)
    assert found.lastgroup is not None
    return Token(_KINDS[found.lastgroup], image, at)


def _unreadable(character: str) -> str:
    if character == "'":
        return "a text must end with a quote"
    return f"unexpected character {character!r}"
