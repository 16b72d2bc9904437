"""A global transaction after each change: a function of the state before it and the change, without rules.

Rules belong to `book.py`: a change that is stored has been allowed.
"""

import sys

from msgspec.structs import replace

from turbopump.broker.transactions.book.changes import (
    GlobalAppended,
    GlobalChange,
    GlobalClaimed,
    GlobalDecided,
    GlobalForgotten,
    GlobalKept,
    GlobalKeptRecords,
    GlobalOpened,
    GlobalResolved,
)
from turbopump.protocol.global_transactions import GlobalDecision, GlobalState, GlobalTransaction


def after(known: GlobalTransaction | None, change: GlobalChange) -> GlobalTransaction | None:
    """Returns a transaction after a change; None: it is not known."""
    match change:
        case GlobalOpened():
            return _opened(change)
        case GlobalDecided():
            return _decided(known, change)
        case GlobalKept():
            return replace(change.transaction, records=known.records if known else [])
        case GlobalForgotten():
            return None
    if known is None:
        return None
    match change:
        case GlobalAppended():
            return _appended(known, change)
        case GlobalClaimed():
            return replace(
                known, owner=change.owner, lease=change.lease, lease_until_ms=change.lease_until_ms
            )
        case GlobalResolved():
            return _resolved(known, change)
        case GlobalKeptRecords():
            end = change.first + len(change.records)
            return replace(
                known, records=[*known.records[: change.first], *change.records, *known.records[end:]]
            )


def _opened(change: GlobalOpened) -> GlobalTransaction:
    return GlobalTransaction(
        change.gid,
        sys.intern(change.group),  # few groups and owners have many transactions
        change.kind,
        plan=change.plan,
        opened_ms=change.at_ms,
        deadline_ms=change.deadline_ms,
        owner=sys.intern(change.owner),
        lease=1,
        lease_until_ms=change.lease_until_ms,
    )


def _decided(known: GlobalTransaction | None, change: GlobalDecided) -> GlobalTransaction:
    if known is None:
        known = GlobalTransaction(
            change.gid,
            sys.intern(change.group),
            change.kind,
            opened_ms=change.at_ms,
            deadline_ms=change.deadline_ms,
            owner=sys.intern(change.by),
            lease=1,
            lease_until_ms=change.lease_until_ms,
        )
    return replace(
        known,
        state=GlobalState.ENDED if change.is_ended else GlobalState.DECIDED,
        decision=change.decision,
        decided_by=change.by,
        decided_ms=change.at_ms,
        branches=change.branches,
        brokers=change.brokers,
        ended_ms=change.at_ms if change.is_ended else 0,
        outcome="aborted" if change.is_ended else "",
        next_try_ms=0,
    )


def _appended(known: GlobalTransaction, change: GlobalAppended) -> GlobalTransaction:
    return replace(
        known,
        records=[*known.records, *change.records],
        state=change.state,
        lease_until_ms=change.lease_until_ms,
        outcome=change.outcome or known.outcome,
        next_try_ms=change.next_try_ms,
        error=change.error,
        ended_ms=change.at_ms if change.state is GlobalState.ENDED else 0,
    )


def _resolved(known: GlobalTransaction, change: GlobalResolved) -> GlobalTransaction:
    """Returns the transaction free for the next claim, with a lease that fences its present owner."""
    decision = change.decision or known.decision
    is_decided = decision is not GlobalDecision.NONE
    return replace(
        known,
        records=[*known.records, change.record],
        state=GlobalState.DECIDED if is_decided else GlobalState.OPEN,
        decision=decision,
        decided_by=known.decided_by if decision is known.decision else change.record.data,
        decided_ms=known.decided_ms or (change.at_ms if is_decided else 0),
        lease=known.lease + 1,
        lease_until_ms=0,
        next_try_ms=0,
        error="",
    )
