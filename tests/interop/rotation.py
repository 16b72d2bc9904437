"""Which part of the live matrix runs at a commit: the core always, a third of the rest by the commit's hash.

`--rotate COMMIT` leaves out the other two thirds. Tests that share expensive work (a module's servers, what
was begun early, one journey of a store) are one group, and a group runs or is left out as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil

# The pairs that users have, one scenario of each at least: Java 4.5 to 5.5, Go and our client at our broker,
# our client at Apache's 4.9.7 and 5.5.0, every mqadmin of Apache's, a store that goes to ours and back, a
# DLedger group of both kinds, a Java client that signs over mutual TLS.
CORE = (
    "harness::*",
    "printed::*",
    "workers::*",
    "scenarios::test_our_servers_answer_as_apache_did*",
    "scenarios::test_every_allowed_difference*",
    "push::test_our_servers_treat_push_consumers_as_apache_did*",
    "push::test_every_allowed_difference*",
    "our_client::*",
    "our_consumer::test_a_consumer_of_ours_lives_through_its_day?ours?",
    "mqadmin::test_mqadmin_prints_of_our_servers_what_it_prints_of_apaches*",
    "mqadmin::test_every_*",
    "store_round_trip::*?5.5.0-kill -9?",
    "dledger_brokers::test_in_a_mixed_group*?two of ours?",
    "xa_traps::*",
    "guarded_clients::*_in_brief*",
)
# Modules whose cases have nothing in common but servers that other modules start too.
BY_CASE = {
    "bodies",
    "broadcast_offsets",
    "extensions",
    "filters",
    "first_messages",
    "guarded_clients",
    "mqadmin",
    "other_clients",
    "our_consumer",
    "scenarios",
    "tracing",
}
BY_PARAMETER = {"store_round_trip"}  # the tests of one journey
SHARE = 3  # one of so many groups of the rest


@dataclass(frozen=True)
class Case:
    module: str  # without test_
    test: str
    parameters: str
    early: str

    @property
    def name(self) -> str:
        return f"{self.module}::{self.test}" + (f"[{self.parameters}]" if self.parameters else "")

    @property
    def is_core(self) -> bool:
        return any(fnmatchcase(self.name, pattern) for pattern in CORE)

    @property
    def group(self) -> str:
        if self.early:
            return f"early {self.early}"
        if self.module in BY_CASE:
            return self.name
        return f"{self.module}[{self.parameters}]" if self.module in BY_PARAMETER else self.module


def chosen(groups: Iterable[str], commit: str) -> set[str]:
    """Returns the third of the groups that runs at this commit; each has its turn over many commits."""
    every = sorted(set(groups), key=lambda group: hashlib.sha256(f"{commit} {group}".encode()).digest())
    return set(every[: ceil(len(every) / SHARE)])
