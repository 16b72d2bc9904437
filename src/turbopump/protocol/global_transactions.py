"""Global transactions, as brokers keep them and clients read them: JSON in, values out.

A global transaction has an id (gid) and spans several participants: databases, services, brokers. Its history
is kept in one place, the book of the broker that is the home of its group. The broker decides it once, and
does not know what a participant is: plans, and what records say of branches, are texts of the client.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.ledger import LedgerEntry

T = TypeVar("T")

LAST_RESOURCE_PREFIX: Final = "tpl."
"""Begins the gid of a transaction that a participant may have decided: the commit of its last resource."""
LEDGER_PREFIX: Final = "global/"
LEDGER_RUN: Final = "-"
"""The run of all ids of the ledger that belong to global transactions: they are decided one by one."""
LEDGER_BATCH: Final = 0

MAX_BRANCHES: Final = 64
MAX_APPEND_BYTES: Final = 16 << 10  # of the records of one request: fits in a record of a small test log too
MAX_TEXT_BYTES: Final = 1024  # of outcomes, errors, reasons and owners
MAX_DEADLINE_MS: Final = 3_600_000


class GlobalKind(StrEnum):
    """The protocol by which the participants of a global transaction agree."""

    XA = "xa"
    THREE_PHASE = "3pc"
    TCC = "tcc"
    SAGA = "saga"


class GlobalState(StrEnum):
    """How far a global transaction is."""

    OPEN = "open"
    """Not decided."""
    DECIDED = "decided"
    """Decided; participants have not all carried it out."""
    PARKED = "parked"
    """It waits for an operator."""
    ENDED = "ended"


class GlobalDecision(StrEnum):
    """What the participants of a global transaction must do."""

    NONE = ""
    COMMIT = "commit"
    ABORT = "abort"


class GlobalRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event in the history of a global transaction, in the words of the client that wrote it."""

    event: str
    branch: str = ""
    data: str = ""
    at_ms: int = 0
    """Set by the broker."""

    @property
    def size(self) -> int:
        return len(self.event) + len(self.branch) + len(self.data) + 64


class GlobalTransaction(msgspec.Struct, omit_defaults=True):
    """The state of one global transaction."""

    gid: str
    group: str
    kind: GlobalKind
    state: GlobalState = GlobalState.OPEN
    plan: str = ""
    opened_ms: int = 0
    deadline_ms: int = 0
    """After this it can only be aborted; 0: no deadline."""
    owner: str = ""
    """The client that works on it."""
    lease: int = 0
    """Grows with each owner: a client with an earlier lease is refused."""
    lease_until_ms: int = 0
    """After this another client may claim it."""
    decision: GlobalDecision = GlobalDecision.NONE
    decided_by: str = ""
    decided_ms: int = 0
    branches: tuple[str, ...] = ()
    """The participants that the decision names."""
    brokers: tuple[str, ...] = ()
    """Brokers that have messages of it."""
    records: list[GlobalRecord] = []
    outcome: str = ""
    error: str = ""
    """Why it could not go on when it was last tried."""
    next_try_ms: int = 0
    """When it may be claimed again."""
    ended_ms: int = 0


def ledger_id(group: str, gid: str = "") -> str:
    """Returns the id under which the ledger knows a group's home, or the messages of one transaction."""
    return f"{LEDGER_PREFIX}{group}/{gid}" if gid else LEDGER_PREFIX + group


def split_ledger_id(id: str) -> tuple[str, str] | None:
    """Returns group and gid (or an empty gid) of an id made by `ledger_id`; None: it is another id."""
    if not id.startswith(LEDGER_PREFIX):
        return None
    group, _, gid = id[len(LEDGER_PREFIX) :].partition("/")
    return group, gid


def entry_of_decision(gid: str, decision: GlobalDecision) -> LedgerEntry:
    """Returns the ledger's entry about the messages of a decided transaction: its gid has won, or nothing."""
    return LedgerEntry((gid,) if decision is GlobalDecision.COMMIT else ())


def encode(value: GlobalTransaction | Sequence[GlobalTransaction] | Sequence[GlobalRecord]) -> bytes:
    return msgspec.json.encode(value)


def read_transaction(body: bytes) -> GlobalTransaction:
    return _read(body, _TRANSACTION)


def read_transactions(body: bytes) -> list[GlobalTransaction]:
    return _read(body, _TRANSACTIONS)


def read_records(body: bytes) -> list[GlobalRecord]:
    """Decodes a list of records; an empty body is an empty list. Raises BrokenBody."""
    return _read(body, _RECORDS) if body else []


def read_names(text: str) -> tuple[str, ...]:
    """Decodes names that a header field lists, separated by commas."""
    return tuple(name for name in text.split(",") if name)


_TRANSACTION = msgspec.json.Decoder(GlobalTransaction)
_TRANSACTIONS = msgspec.json.Decoder(list[GlobalTransaction])
_RECORDS = msgspec.json.Decoder(list[GlobalRecord])


def _read(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBody(f"a global transaction cannot be read: {error}") from None
