"""The changes of the book of global transactions, as they are stored in the log. No rule belongs here."""

import msgspec

from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalRecord,
    GlobalState,
    GlobalTransaction,
)


class GlobalOpened(msgspec.Struct, frozen=True, omit_defaults=True, tag="opened"):
    """Change: a transaction was opened, with its plan; its owner has lease 1."""

    at_ms: int
    gid: str
    group: str
    kind: GlobalKind
    owner: str
    lease_until_ms: int
    deadline_ms: int = 0
    plan: str = ""


class GlobalAppended(msgspec.Struct, frozen=True, omit_defaults=True, tag="appended"):
    """Change: the owner added records, and may have parked or ended the transaction."""

    at_ms: int
    gid: str
    records: tuple[GlobalRecord, ...]
    lease_until_ms: int
    state: GlobalState
    outcome: str = ""
    next_try_ms: int = 0
    error: str = ""


class GlobalDecided(msgspec.Struct, frozen=True, omit_defaults=True, tag="decided"):
    """Change: a transaction was decided; one that was not open is known from now on."""

    at_ms: int
    gid: str
    group: str
    kind: GlobalKind
    decision: GlobalDecision
    by: str
    branches: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    deadline_ms: int = 0
    lease_until_ms: int = 0
    is_ended: bool = False
    """There is nothing to carry out: it was aborted without having been opened."""


class GlobalClaimed(msgspec.Struct, frozen=True, tag="claimed"):
    """Change: another client took over a transaction, with the next lease."""

    at_ms: int
    gid: str
    owner: str
    lease: int
    lease_until_ms: int


class GlobalResolved(msgspec.Struct, frozen=True, omit_defaults=True, tag="resolved"):
    """Change: an operator had a transaction tried again, or decided about it by hand."""

    at_ms: int
    gid: str
    record: GlobalRecord
    decision: GlobalDecision = GlobalDecision.NONE


class GlobalKept(msgspec.Struct, frozen=True, tag="kept"):
    """Change: a transaction as it is, without records, stored again: older records will be deleted."""

    transaction: GlobalTransaction


class GlobalKeptRecords(msgspec.Struct, frozen=True, tag="records"):
    """Change: some more of the records of a transaction that is stored again."""

    gid: str
    first: int
    """The number of the first of them."""
    records: tuple[GlobalRecord, ...]


class GlobalForgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """Change: a transaction that ended long ago is not kept any more."""

    gid: str


GlobalChange = (
    GlobalOpened
    | GlobalAppended
    | GlobalDecided
    | GlobalClaimed
    | GlobalResolved
    | GlobalKept
    | GlobalKeptRecords
    | GlobalForgotten
)

_CHANGE: msgspec.json.Decoder[GlobalChange] = msgspec.json.Decoder(GlobalChange)


def gid_of(change: GlobalChange) -> str:
    return change.transaction.gid if isinstance(change, GlobalKept) else change.gid


def read_global_change(body: bytes) -> GlobalChange:
    """Decodes the body of a record to a change of the book. Raises BrokenBody."""
    try:
        return _CHANGE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBody(f"a record of the book of global transactions cannot be read: {error}") from None
