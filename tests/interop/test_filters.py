"""Expressions that nobody has asked yet: Apache's filter classes and ours give the same answers. And Java's
consumers are given the same by Apache's brokers and by ours.
"""

from __future__ import annotations

import os
import random
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.compat import filters as generated

from . import artifacts, clients, filters, peers, topics
from .conftest import StartOnce

EXPRESSIONS = 20_000
CHOSEN = {
    "n BETWEEN 5 AND 30 AND s = 's1'": lambda n: 5 <= n <= 30 and n % 3 == 1,
    "quarter IS NOT NULL AND NOT (quarter = 'yes')": lambda n: n % 4 == 0 and n % 8,
    "s IN ('s0', 's2') AND n < 10 OR n >= 35.5": lambda n: (n % 3 != 1 and n < 10) or n >= 36,
    "TAGS = 'tag1' AND n > 20": lambda n: n % 2 == 1 and n > 20,
    "quarter = TRUE": lambda n: n % 4 == 0 and n % 8,
    "s > 5": lambda n: False,
}
MESSAGES = 40
PARSE_FAILED = 23
LITE_GETS_NOTHING = {("java-5.5.0", "4.9.7")}  # seen with Apache's own; the same program runs elsewhere


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


@pytest.mark.parametrize("client", [f"java-{version}" for version in artifacts.JAVA_CLIENTS])
@pytest.mark.parametrize("kind", [peers.OURS, *artifacts.SERVERS])
def test_java_consumers_choose_the_same_on_every_server(
    client: str, kind: str, start_once: StartOnce, tmp_path: Path
) -> None:
    cluster = start_once(kind)
    topic = topics.create(cluster, clients.prefix(), 2)
    has_lite = client != "java-4.5.1" and (client, kind) not in LITE_GETS_NOTHING
    arguments = [cluster.namesrv, topic, "lite" if has_lite else "push"]
    for text, wants in CHOSEN.items():
        arguments += [str(sum(map(bool, map(wants, range(MESSAGES))))), quote(text, safe="")]
    said = clients.run_java(client, "Choosing", arguments, tmp_path).splitlines()
    wanted = [[n for n in range(MESSAGES) if wants(n)] for wants in CHOSEN.values()]
    kinds = ("push", "lite") if has_lite else ("push",)
    for line in (f"{how} {number} {chosen}" for how in kinds for number, chosen in enumerate(wanted)):
        assert line in said
    assert f"bad {PARSE_FAILED}" in said
