"""Flow control: refuses requests that waited too long before their handler began, with Apache's remarks.

Their sender may have given up, or will before the answer arrives. A producer that is refused at once goes to
another broker, and a broker that is behind has less to do. The limit depends on the kind of request.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from turbopump.broker.config import WaitLimits
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, decode, encode, reply
from turbopump.protocol.frame import Frame
from turbopump.remoting.connection import Connection
from turbopump.remoting.late_requests import NEVER
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

LOG_INTERVAL_S = 10.0
TIMEOUT = "TIMEOUT_CLEAN_QUEUE"
DISK_BUSY = "PCBUSY_CLEAN_QUEUE"
REMARK = "[{why}]broker busy, start flow control for a while, period in queue: {ms}ms, size of queue: {left}"

SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
LIMITS: dict[int, str] = {
    **dict.fromkeys(SENDS, "send_ms"),
    RequestCode.PULL_MESSAGE: "pull_ms",
    RequestCode.LITE_PULL_MESSAGE: "lite_pull_ms",
    RequestCode.HEART_BEAT: "heartbeat_ms",
    RequestCode.END_TRANSACTION: "transaction_ms",
    RequestCode.ACK_MESSAGE: "ack_ms",
}
"""Request code -> field of `WaitLimits` with its limit."""

ADMIN = "admin_ms"
FIELDS = frozenset((*LIMITS.values(), ADMIN))

PATIENT = frozenset(
    {
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
"""Requests that may wait without limit, as in Apache. All others are administrative, with `admin_ms`."""


class RequestWaits:
    """Refuses requests that waited too long; while the disk is busy, sends after the shortest limit already.

    `waits` returns the limits in force; `refused` counts the refusals by reason.
    """

    def __init__(self, waits: Callable[[], WaitLimits], disk_is_busy: Callable[[], bool]) -> None:
        self._waits = waits
        self._disk_is_busy = disk_is_busy
        self._refusals = RateLimitedLog(log, LOG_INTERVAL_S)
        self.refused: Counter[str] = Counter()  # by reason

    def shortest_s(self) -> float:
        """Returns the shortest of all limits in seconds; a request that waited less is not late.

        `NEVER` when flow control is off.
        """
        waits = self._waits()
        return min(getattr(waits, name) for name in FIELDS) / 1000 if waits.enabled else NEVER

    def late(self, connection: Connection, frames: list[Frame], waited_s: float) -> list[Frame]:
        """Refuses requests that waited too long, and sends while the disk is busy; returns the rest."""
        waited_ms = round(waited_s * 1000)
        kept: list[Frame] = []
        refused: list[tuple[Command, str]] = []
        for frame in frames:
            command = decode(frame)
            why = self._why(command, waited_ms)
            if why is None:
                kept.append(frame)
            else:
                refused.append((command, why))
        if refused:
            self._refuse(connection, refused, waited_ms)
        return kept

    def _why(self, command: Command, waited_ms: int) -> str | None:
        code = command.code
        if command.is_response or code in PATIENT:
            return None
        if code in SENDS and self._disk_is_busy():
            return DISK_BUSY
        limit: int = getattr(self._waits(), LIMITS.get(code, ADMIN))
        return TIMEOUT if waited_ms >= limit else None

    def _refuse(self, connection: Connection, refused: list[tuple[Command, str]], waited_ms: int) -> None:
        answers = []
        for number, (command, why) in enumerate(refused, 1):
            self.refused[why] += 1
            if not command.is_oneway:
                remark = REMARK.format(why=why, ms=waited_ms, left=len(refused) - number)
                answers.append(encode(reply(command, ResponseCode.SYSTEM_BUSY, remark)))
        connection.write(b"".join(answers))
        words = "Refusing %d requests of %s, the first with code %d: they waited %d ms"
        now = asyncio.get_running_loop().time()
        self._refusals.log(now, words, len(refused), connection, refused[0][0].code, waited_ms)
