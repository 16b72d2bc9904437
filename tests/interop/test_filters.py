"""Expressions that nobody has asked yet: Apache's filter classes and ours give the same answers."""

from __future__ import annotations

import os
import random
from itertools import islice

from tests.compat import filters as generated

from . import filters

EXPRESSIONS = 20_000


def test_new_expressions_are_evaluated_as_apache_does() -> None:
    """FILTER_SEED=n asks again what was asked."""
    seed = int(os.environ.get("FILTER_SEED") or random.SystemRandom().randrange(2**32))
    chance = random.Random(seed)
    sets = generated.property_sets(chance, 20)
    texts = list(islice(generated.expressions(chance), EXPRESSIONS))
    lines = [*map(filters.set_line, sets), *map(filters.sql_line, texts)]
    packed = generated.packed(sets)
    for text, letters in zip(texts, filters.ask(filters.NEW, lines), strict=True):
        assert generated.answer(text, packed) == letters, f"FILTER_SEED={seed}: {text}"
