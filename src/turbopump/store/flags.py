"""Reasons why nothing can be written at the moment. The append loop looks at one attribute, `blocked`.

Each part of the store sets and clears its own reason; a refused sender gets the first in the order below.
"""

import contextlib
import errno
from collections.abc import Iterator
from enum import Enum

from turbopump.protocol.errors import Refused, ServiceNotAvailable, SystemBusy


class Reason(Enum):
    """Why the store does not accept messages, most important first."""

    STOPPED = "the message store has been shut down"
    SLAVE = "this broker is a slave; only its master writes to it"
    SYNC_FAILED = "the last sync of the commit log failed"
    DISK_FULL = "the broker's disk is full"
    NO_ROOM = "the disk has no space for the next commit log file"
    NO_ABORT = (
        "the disk has no space for the file abort, without which a crash would look like an orderly stop"
    )
    QUEUES_STUCK = "consume queues cannot be written"
    POOL_EMPTY = "[REJECTREQUEST]system busy, start flow control for a while"
    BUSY = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"


def is_no_room(error: OSError) -> bool:
    """Whether an error means a full disk or an exhausted quota, which passes when space becomes free."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Flags:
    """The reasons that currently block writing."""

    def __init__(self) -> None:
        self.blocked = False
        self._details: dict[Reason, str] = {}

    def set(self, reason: Reason, detail: str = "") -> None:
        self._details[reason] = detail
        self.blocked = True

    def clear(self, reason: Reason) -> None:
        self._details.pop(reason, None)
        self.blocked = bool(self._details)

    @contextlib.contextmanager
    def lifted(self, reason: Reason) -> Iterator[None]:
        """Context manager that suspends one reason, if it is set, while its block runs, then restores it."""
        detail = self._details.get(reason)
        self.clear(reason)
        try:
            yield
        finally:
            if detail is not None:
                self.set(reason, detail)

    def is_set(self, reason: Reason) -> bool:
        return reason in self._details

    @property
    def first(self) -> Reason | None:
        """The most important reason; None when the store can be written to."""
        return next((reason for reason in Reason if reason in self._details), None)

    @property
    def fault(self) -> str | None:
        """Why nothing can be written, apart from this broker being a slave; None: there is no such reason."""
        reason = next((one for one in Reason if one in self._details and one is not Reason.SLAVE), None)
        return None if reason is None else self._refusal(reason).remark

    @property
    def reason(self) -> str | None:
        """The text that refused senders get; None when the store can be written to."""
        return self.refusal().remark if self.blocked else None

    def refusal(self) -> Refused:
        """Returns the error to raise to a sender, for the most important reason; only while `blocked`."""
        reason = self.first
        assert reason is not None, "nothing blocks writing"
        return self._refusal(reason)

    def _refusal(self, reason: Reason) -> Refused:
        if reason in (Reason.BUSY, Reason.POOL_EMPTY):
            return SystemBusy(reason.value)
        words = f"{reason.value} {self._details[reason]}".rstrip()
        return ServiceNotAvailable(f"service not available now: {words}")
