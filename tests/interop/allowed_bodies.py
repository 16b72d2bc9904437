"""Where a variant of a body does something else with us than with both of Apache's servers, and why.

A row is matched against `body | variant`. What 5.5.0 or 4.9.7 accepts, we accept with the effect that it has
on one of them, and what both refuse we refuse; all else needs a row here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .clients import Answers
from .compare import Difference

ALLOWED = {
    r" too large$": "4.9.7 takes the lower bits of a number that does not fit; refused, as by 5.5.0",
    r" (an object|a list|replaced by a (number|text))$": "one version reads another shape, one refuses",
    r"\| (null|a list|no bytes)$": "answered with success and without effect, or not at all: refused",
    r"DataSet(\.0\.subscriptionDataSet)? null$": "a null fails in Apache's handlers; it is an empty list",
    r"\.(groupName|topic) (missing|null)$": "a null fails in Apache's handlers; it is an empty name",
    r"HeartbeatData \| clientID (missing|null)$": "likewise",
    r"^(Unl|L)ock\w+ \| (clientId|consumerGroup|mqSet) (missing|null)$": "likewise",
    r"^Unlock\w+ \| no fields$": "likewise",
    r"^Create\w+ \| (\w+List (missing|null)|no fields)$": "likewise, an empty list: nothing is created",
    r"^(Subscription|Create).* (null|empty)$": "5.5.0 reads 0 or false; it is the default, as with 4.9.7",
    r"\.(type|topicFilterType) of an unknown name$": "5.5.0 keeps a null; it is the default",
    r"^SubscriptionGroupConfig \| groupName with a fraction$": "refused, as by 5.5.0; 4.9.7 checks no names",
    r"^GetConsumerStatusBody .* null$": "an empty table instead of no table for this client",
    r"^GetConsumerStatusBody .* true$": "5.5.0 reads true as 1 in other places, and so do we here",
    r"topicConfigTable\.\w+\.topicName ": "a topic is known by its key in the table, not by the name inside",
    r"topicConfigTable\.\w+ missing$": "4.9.7 takes a new broker with one topic; refused, as by 5.5.0",
    r"^Query\w+ \| (consumerGroup|messageModel|topic) (missing|null|empty)$": "absent: the default",
    r"^Query\w+ \| (messageModel of an unknown name|no fields)$": "likewise",
    r"^Query\w+ \| strategyName ": "a strategy that does not exist is refused by its name",
    r"^TopicRouteData \| \w+\.0 null$": "a null among objects is refused, not dropped",
}


class BodyJudge:
    """Holds what was seen against both recordings, and remembers which rows were needed."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def unexpected(self, newer: Answers, older: Answers, seen: Answers) -> Iterator[Difference]:
        for kind, variants in seen.items():
            for variant, effect in variants.items():
                recorded = newer[kind][variant], older.get(kind, {}).get(variant)
                if not _is_right(effect, *recorded) and not self._is_allowed(f"{kind} | {variant}"):
                    yield Difference(
                        f"{kind} | {variant}", {"5.5.0": recorded[0], "4.9.7": recorded[1]}, effect
                    )

    def stale(self) -> list[str]:
        return [pattern for pattern in ALLOWED if pattern not in self._used]

    def _is_allowed(self, path: str) -> bool:
        matching = [pattern for pattern in ALLOWED if re.search(pattern, path)]
        self._used.update(matching)
        return bool(matching)


def _is_right(seen: Any, newer: Any, older: Any) -> bool:
    accepted = [recorded for recorded in (newer, older) if recorded is not None and recorded["code"] == 0]
    return seen in accepted if accepted else seen["code"] != 0
