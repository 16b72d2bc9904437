"""Two-phase commit blocks: who has voted Yes may decide nothing until it is told, and keeps its locks.

The program that coordinates (TM) dies between the votes and the decision. An hour later the rows are still
locked. Then another process of its group asks the broker (TC), which writes an abort, and the rows are free.
"""

from dataclasses import dataclass

from turbopump.protocol.global_transactions import GlobalDecision
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Decide,
)
from turbopump.transactions.distributed.xa import XaMachine


@dataclass
class Bank:
    """A database with one row, which a prepared branch locks. It survives what happens to programs."""

    name: str
    cents: int
    prepared: int | None = None

    def can_commit(self, change: int) -> None:
        self.prepared = change
        print(f"TM -> {self.name}: CanCommit?  Yes, the row is locked")

    def read(self) -> int:
        return self.cents  # readers are not blocked: they see the state before

    def write(self) -> str:
        return "it is written" if self.prepared is None else "it waits for the lock"

    def do_abort(self) -> None:
        self.prepared = None
        print(f"recovery -> {self.name}: DoAbort, the row is free")


banks = {"icbc": Bank("icbc", 5_000_000), "ccb": Bank("ccb", 0)}
changes = {"icbc": -1_000_000, "ccb": 1_000_000}

machine = XaMachine(tuple(banks))  # two-phase commit as the coordinator of this project does it
actions = [*machine.begin(), *machine.step(BlockLeft(commit=True))]
for call in [one for one in actions if isinstance(one, CallBranch)]:
    banks[call.branch].can_commit(changes[call.branch])
    actions = machine.step(BranchAnswered(call.branch, call.phase, BranchVerdict.DONE))
assert any(isinstance(one, Decide) for one in actions)  # next it would ask the TC for the decision
del machine
print("the TM is killed")

for hours in (0, 1):
    print(f"{hours} h later: read {banks['icbc'].read()}; another write to icbc: {banks['icbc'].write()}")

book: dict[str, GlobalDecision] = {}  # of the TC: it has no decision, and the first one counts
decision = book.setdefault("gid", GlobalDecision.ABORT)
print(f"recovery -> TC: decide abort; what counts: {decision}")
for bank in banks.values():
    bank.do_abort()
print(
    f"another write to icbc: {banks['icbc'].write()}; the sum is {sum(bank.cents for bank in banks.values())}"
)
