"""Trace records, as clients write them into the trace topic: text, fields ended by \\x01, records by \\x02.

Pure. What cannot be read is left out: a trace is a help, and old clients write fewer fields.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FIELD_END = "\x01"
RECORD_END = "\x02"


@dataclass(frozen=True, slots=True)
class Trace:
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


def decode(text: str) -> list[Trace]:
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


def _sent(fields: Sequence[str]) -> Trace:
    """Pub time region group topic id tags keys storeHost bodyLength cost msgType [offsetId] success."""
    success = fields[12] if len(fields) == 13 else fields[13]
    return Trace(
        "Pub", fields[5], fields[3], fields[4], int(fields[1]), int(fields[10]), success == "true", fields[7]
    )


def _before(fields: Sequence[str]) -> Trace:
    """SubBefore time region group requestId id retries keys."""
    return Trace(
        "SubBefore", fields[5], fields[3], None, int(fields[1]), keys=fields[7], request_id=fields[4]
    )


def _after(fields: Sequence[str]) -> Trace:
    """SubAfter requestId id cost success keys [contextCode] [time group]."""
    time_ms, group = (int(fields[7]), fields[8]) if len(fields) >= 9 else (0, None)
    success = fields[4] == "true"
    return Trace("SubAfter", fields[2], group, None, time_ms, int(fields[3]), success, fields[5], fields[1])


def _end(fields: Sequence[str]) -> Trace:
    """EndTransaction time region group topic id tags keys …"""
    return Trace("EndTransaction", fields[5], fields[3], fields[4], int(fields[1]), keys=fields[7])


def _recall(fields: Sequence[str]) -> Trace:
    """Recall time region group topic id success."""
    success = fields[6] == "true"
    return Trace("Recall", fields[5], fields[3], fields[4], int(fields[1]), is_success=success)


READERS: dict[str, Callable[[Sequence[str]], Trace]] = {
    "Pub": _sent,
    "SubBefore": _before,
    "SubAfter": _after,
    "EndTransaction": _end,
    "Recall": _recall,
}
