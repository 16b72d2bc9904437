"""Filter expressions of subscribers, in heartbeats and pulls."""

import random
from collections.abc import Iterator
from itertools import islice

from tests.compat import filters as generated
from tests.fuzz.targets import Target

from turbopump.filter import BadExpression, Undecidable, compile_sql
from turbopump.filter.lexer import WORDS

SEEDS = 40
MESSAGES = generated.packed(generated.property_sets(random.Random(1), 4))


def sql(data: bytes) -> None:
    """Checks that an accepted expression evaluates any message, also one with these bytes as properties."""
    predicate = compile_sql(data.decode("utf-8", "replace"))
    for message in (*MESSAGES, data):
        try:
            truth = predicate.evaluate(message)
        except Undecidable:
            truth = None
        assert predicate.matches(message) is (truth is True)


def _seeds() -> Iterator[bytes]:
    for text in islice(generated.expressions(random.Random(2)), SEEDS):
        yield text.encode()


TARGETS = {"sql": Target(sql, _seeds, (BadExpression,), tuple(sorted(word.encode() for word in WORDS)))}
