"""Makes the error texts for refused values and unknown names of options, columns, topics and flags. Pure."""

from collections.abc import Mapping
from difflib import get_close_matches

CLOSE, DISTANT = 0.6, 0.5
"""How alike two names must be for a suggestion: `difflib`'s own default, and less for long option names."""


def refusal(name: str, text: str, error: ValueError) -> str:
    """Returns what is wrong with a value: `NAME must be …, got TEXT`, or NAME=TEXT with another reason.

    >>> refusal("useTls", "maybe", ValueError("must be true or false"))
    "useTls must be true or false, got 'maybe'"
    """
    reason = str(error)
    return f"{name} {reason}, got {text!r}" if reason.startswith("must ") else f"{name}={text!r}: {reason}"


def nearest(word: str, known: Mapping[str, str], otherwise: str, min_alike: float = CLOSE) -> str:
    """Returns `did you mean NAME?` for the nearest of the known names, or `otherwise` when none is near.

    `known`: the form that is compared with `word` → the name as it is written.

    >>> nearest("bodi", {"body": "body"}, "there are body")
    'did you mean body?'
    """
    found = get_close_matches(word, known, 1, min_alike)
    return f"did you mean {known[found[0]]}?" if found else otherwise
