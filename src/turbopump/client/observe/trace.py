"""The format of trace records in the trace topic: text, fields ended by \\x01, records by \\x02.

Pure. `encode` writes what Apache's tools read, `decode` reads what any client wrote. Records that cannot be
read are left out, because old clients write fewer fields. `trace_hooks.py` makes records, `trace_sender.py`
sends them.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum

import msgspec

FIELD_END = "\x01"
RECORD_END = "\x02"
NOTHING = "null"  # how Apache's clients write a missing text

PUB, BEFORE, AFTER, END, RECALL = "Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"


class TraceMessageKind(IntEnum):
    """Kinds of messages in trace records, with Apache's numbers."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class TraceOutcome(IntEnum):
    """Outcomes of a delivery in trace records, with Apache's numbers."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


class Trace(msgspec.Struct, frozen=True, gc=False):
    """One trace record, about a send, the begin or end of a delivery, a transaction's end or a recall."""

    type: str
    """Pub, SubBefore, SubAfter, EndTransaction or Recall."""
    message_id: str
    group: str | None = None
    topic: str | None = None
    time_ms: int = 0
    cost_ms: int = 0
    is_success: bool = True
    keys: str | None = None
    request_id: str | None = None
    """The same in the records before and after one delivery."""
    region: str | None = None
    tags: str | None = None
    store_host: str | None = None
    body_size: int = 0
    kind: int = TraceMessageKind.NORMAL
    offset_message_id: str | None = None
    retry_times: int = 0
    outcome: int = TraceOutcome.SUCCESS
    transaction_id: str | None = None
    state: str | None = None
    """State of a transaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    from_check: bool = False


# --- writing ---------------------------------------------------------------------------------------------


def encode(trace: Trace, is_cloud: bool = False) -> str:
    """Encodes a trace record as text with its end mark; `is_cloud`: in the layout of access channel CLOUD."""
    fields = WRITERS[trace.type](trace)
    if is_cloud and trace.type == AFTER:
        return FIELD_END.join([trace.type, *map(_text, fields[:-2]), ""]) + RECORD_END
    return FIELD_END.join([trace.type, *map(_text, fields)]) + RECORD_END


def _text(value: object) -> str:
    if value.__class__ is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return NOTHING if value is None else str(int(value) if isinstance(value, IntEnum) else value)


def _heading(one: Trace) -> list[object]:
    return [one.time_ms, one.region, one.group]


def _message(one: Trace) -> list[object]:
    return [*_heading(one), one.topic, one.message_id, one.tags, one.keys, one.store_host]


WRITERS: dict[str, Callable[[Trace], list[object]]] = {
    PUB: lambda one: [
        *_message(one),
        one.body_size,
        one.cost_ms,
        one.kind,
        one.offset_message_id,
        one.is_success,
    ],
    BEFORE: lambda one: [*_heading(one), one.request_id, one.message_id, one.retry_times, one.keys],
    AFTER: lambda one: [
        one.request_id,
        one.message_id,
        one.cost_ms,
        one.is_success,
        one.keys,
        one.outcome,
        one.time_ms,
        one.group,
    ],
    END: lambda one: [*_message(one), TraceMessageKind.COMMIT, one.transaction_id, one.state, one.from_check],
    RECALL: lambda one: [*_heading(one), one.topic, one.message_id, one.is_success],
}
"""The fields of a record after its type, in their order."""


# --- reading ---------------------------------------------------------------------------------------------


def decode(text: str) -> list[Trace]:
    """Decodes the trace records in a body of the trace topic; skips those that cannot be read."""
    found = []
    for line in text.split(RECORD_END):
        fields = line.split(FIELD_END)
        read = READERS.get(fields[0])
        if read is not None:
            try:
                found.append(read(fields))
            except (IndexError, ValueError):
                continue
    return found


def _read(text: str) -> str | None:
    return None if text == NOTHING else text


def _sent(fields: Sequence[str]) -> Trace:
    """Reads the fields of a `Pub` record, which is about a send.

    Pub time region group topic id tags keys storeHost bodyLength cost msgType [offsetId] success.
    """
    is_old = len(fields) == 13
    return Trace(
        PUB,
        fields[5],
        _read(fields[3]),
        _read(fields[4]),
        int(fields[1]),
        int(fields[10]),
        (fields[12] if is_old else fields[13]) == "true",
        _read(fields[7]),
        region=_read(fields[2]),
        tags=_read(fields[6]),
        store_host=_read(fields[8]),
        body_size=int(fields[9]),
        kind=int(fields[11]),
        offset_message_id=None if is_old else _read(fields[12]),
    )


def _before(fields: Sequence[str]) -> Trace:
    """Reads the fields of a `SubBefore` record, which is about the begin of a delivery.

    SubBefore time region group requestId id retries keys.
    """
    return Trace(
        BEFORE,
        fields[5],
        _read(fields[3]),
        time_ms=int(fields[1]),
        keys=_read(fields[7]),
        request_id=fields[4],
        region=_read(fields[2]),
        retry_times=int(fields[6]),
    )


def _after(fields: Sequence[str]) -> Trace:
    """Reads the fields of a `SubAfter` record, which is about the end of a delivery.

    SubAfter requestId id cost success keys [contextCode] [time group].
    """
    time_ms, group = (int(fields[7]), _read(fields[8])) if len(fields) >= 9 else (0, None)
    return Trace(
        AFTER,
        fields[2],
        group,
        time_ms=time_ms,
        cost_ms=int(fields[3]),
        is_success=fields[4] == "true",
        keys=_read(fields[5]),
        request_id=fields[1],
        outcome=int(fields[6]) if len(fields) >= 7 else TraceOutcome.SUCCESS,
    )


def _end(fields: Sequence[str]) -> Trace:
    """Reads the fields of an `EndTransaction` record.

    EndTransaction time region group topic id tags keys storeHost msgType transactionId state fromCheck.
    """
    return Trace(
        END,
        fields[5],
        _read(fields[3]),
        _read(fields[4]),
        int(fields[1]),
        keys=_read(fields[7]),
        region=_read(fields[2]),
        tags=_read(fields[6]),
        store_host=_read(fields[8]),
        kind=int(fields[9]),
        transaction_id=_read(fields[10]),
        state=_read(fields[11]),
        from_check=fields[12] == "true",
    )


def _recall(fields: Sequence[str]) -> Trace:
    """Reads the fields of a `Recall` record, which is about the recall of a delayed message.

    Recall time region group topic id success.
    """
    success = fields[6] == "true"
    return Trace(
        RECALL,
        fields[5],
        _read(fields[3]),
        _read(fields[4]),
        int(fields[1]),
        is_success=success,
        region=_read(fields[2]),
    )


READERS: dict[str, Callable[[Sequence[str]], Trace]] = {
    PUB: _sent,
    BEFORE: _before,
    AFTER: _after,
    END: _end,
    RECALL: _recall,
}
