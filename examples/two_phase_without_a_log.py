"""Two-phase commit needs a decision on disk: a coordinator without a log that dies in between loses money.

Both banks vote Yes, the coordinator decides to commit, one bank has committed, and the coordinator is killed.
The one that takes its place must tell the other bank what was decided. Once it has only its memory, which is
empty: it presumes an abort. Once it asks the book of the broker (TC), where the decision was written first.
"""

from dataclasses import dataclass, field
from typing import Protocol


class Log(Protocol):
    """Where a coordinator notes its decisions."""

    def decide(self, gid: str, decision: str) -> str: ...


class Memory:
    """Notes decisions in the memory of the coordinator: the next coordinator begins with an empty one."""

    def decide(self, gid: str, decision: str) -> str:
        return decision


@dataclass
class Book:
    """Notes decisions at the broker, on disk: the first one counts for all that ask later."""

    decisions: dict[str, str] = field(default_factory=dict)

    def decide(self, gid: str, decision: str) -> str:
        return self.decisions.setdefault(gid, decision)


@dataclass
class Bank:
    """A database: what is prepared survives, and is changed only by DoCommit and DoAbort."""

    cents: int
    prepared: int = 0

    def do_commit(self) -> None:
        self.cents, self.prepared = self.cents + self.prepared, 0

    def do_abort(self) -> None:
        self.prepared = 0


def transfer(log: Log) -> None:
    icbc, ccb = Bank(5_000_000), Bank(0)
    icbc.prepared, ccb.prepared = -1_000_000, 1_000_000  # CanCommit: both have voted Yes
    log.decide("gid", "commit")
    icbc.do_commit()
    # The coordinator is killed here. ccb is in doubt, and the next coordinator asks the log.
    decision = log.decide("gid", "abort")
    if decision == "commit":
        ccb.do_commit()
    else:
        ccb.do_abort()
    total = icbc.cents + ccb.cents
    print(f"{type(log).__name__}: {decision} for ccb, icbc {icbc.cents}, ccb {ccb.cents}, sum {total}")


transfer(Memory())
transfer(Book())
