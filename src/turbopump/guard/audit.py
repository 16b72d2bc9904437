"""The audit log: one JSON line for each refusal and each change of access, and, if asked for, each grant.

    {"time":"2026-11-18T20:00:00.000Z","event":"refused","user":"alice","address":"10.0.0.7","code":310,
     "need":"Pub on Topic:orders","why":"no matched policies"}

In: what happened. Out: lines of a file, written in the background. A line never has a body, a signature or
a secret. Lines are lost when the disk is too slow or full: they are counted, and the next line says how
many. Anybody who can connect can cause refusals, so their lines have a limit (`refusal_lines.py`). A file
that has grown to `MAX_FILE_BYTES` is renamed to `.1`, which replaces the one before.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from turbopump.guard.peer_networks import network_of
from turbopump.guard.refusal_lines import WINDOW_S, RefusalLines
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

MAX_PENDING = 10_000  # lines that wait for the disk, about 3 MB
MAX_FILE_BYTES = 64 << 20
MAX_TEXT = 300  # characters of a name or a reason, which peers choose
LOG_INTERVAL_S = 60.0
LINES_PER_TURN = 1_000

Run = Callable[..., Awaitable[Any]]
"""Runs blocking work in a thread."""


class AuditLog:
    """Writes audit lines to a file in the background."""

    def __init__(self, path: str, disk: Disk, run: Run, clock: Clock, grants: bool = False) -> None:
        """With an empty `path` no line is kept, for servers that have no file at all."""
        self.lost = 0
        """Lines that could not be written since the start."""
        self.grants = grants
        self._path = path
        self._disk = disk
        self._run = run
        self._clock = clock
        self._pending: deque[dict[str, Any]] = deque()
        self._lost_before = 0  # what the last line about lost lines said
        self._refusals = RefusalLines()
        self._wake = asyncio.Event()
        self._tasks = Tasks(log)
        self._failures = RateLimitedLog(log, LOG_INTERVAL_S, logging.ERROR)

    def refused(
        self, user: str, address: str, code: int, why: str, need: str = "", is_known: bool = True
    ) -> None:
        """Notes a refusal; `is_known`: whether the user is certain, not only claimed."""
        self._put_refusal("refused", user, address, code, why, need, is_known)

    def would_refuse(
        self, user: str, address: str, code: int, why: str, need: str = "", is_known: bool = True
    ) -> None:
        """Notes what was served in a dry run and will be refused after it."""
        self._put_refusal("would-refuse", user, address, code, why, need, is_known)

    def granted(self, user: str, address: str, code: int, need: str, by: str) -> None:
        self._put("granted", user, address, code=code, need=need, why=by)

    def changed(self, user: str, address: str, code: int, what: str) -> None:
        """Notes a change of users, policies or accounts; `what` names it, without a secret."""
        self._put("changed", user, address, code=code, what=what)

    def warned(self, what: str) -> None:
        """Notes something that weakens access control, such as a key on a white list."""
        self._put("warned", "", "", what=what)

    def _put_refusal(
        self, event: str, user: str, address: str, code: int, why: str, need: str, is_known: bool
    ) -> None:
        now = self._clock.monotonic()
        self._put_left_out(now)
        # By the address alone for unknown users: a sender that makes up names must not have lines for each.
        key = (user if is_known else "", network_of(address))
        if self._refusals.admits(key, (event, code, need), now):
            self._put(event, user, address, code=code, need=need, why=why)

    def _put_left_out(self, now: float) -> None:
        for user, network, count in self._refusals.ended(now):
            what = f"{count} refusals within {WINDOW_S:.0f} s have no line"
            self._put("left-out", user, network, what=what)

    def _put(self, event: str, user: str, address: str, **facts: Any) -> None:
        if not self._path:
            return
        if len(self._pending) >= MAX_PENDING:
            self.lost += 1
            return
        line: dict[str, Any] = {"time": self._clock.now_ms(), "event": event, "user": user[:MAX_TEXT]}
        line["address"] = address
        line |= {name: _short(fact) for name, fact in facts.items() if fact != ""}
        self._pending.append(line)
        self._wake.set()

    async def run(self) -> None:
        """Writes lines when there are some, until it is cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WINDOW_S if self._refusals else None):
                    await self._wake.wait()
            self._wake.clear()
            self._put_left_out(self._clock.monotonic())
            while self._pending:
                await self.write()

    async def write(self) -> None:
        """Writes lines that wait. Never raises OSError: the lines are counted as lost.

        A caller that is cancelled does not stop the write: the lines are out of the queue already.
        """
        await asyncio.shield(self._tasks.start(self._write(), name="write audit lines"))

    async def close(self) -> None:
        """Writes the lines that wait."""
        await self._tasks.wait()
        self._put_left_out(math.inf)
        while self._pending:
            await self.write()

    async def _write(self) -> None:
        count = min(len(self._pending), LINES_PER_TURN)
        lines = [self._pending.popleft() for _ in range(count)]
        lost = self.lost
        if lost != self._lost_before:
            what = f"{lost - self._lost_before} lines could not be written"
            lines.append({"time": self._clock.now_ms(), "event": "lost", "what": what})
        data = b"".join(msgspec.json.encode(_dated(line)) + b"\n" for line in lines)
        try:
            await self._run(self._append, data)
            self._lost_before = lost
        except OSError as error:
            self.lost += count
            now = self._clock.monotonic()
            text = "Cannot write the audit log %s; %d lines are lost so far: %s"
            self._failures.log(now, text, self._path, self.lost, error)

    def _append(self, data: bytes) -> None:
        if not self._disk.exists(self._path):
            self._disk.make_dirs(self._path.rpartition("/")[0] or ".")
            self._disk.write(self._path, b"", sync=False, private=True)
        file = self._disk.open_plain(self._path)
        try:
            size = file.size()
            if size + len(data) > MAX_FILE_BYTES and size:
                self._disk.rename(self._path, f"{self._path}.1")
                self._disk.write(self._path, data, sync=False, private=True)
            else:
                file.write_at(size, data)
        finally:
            file.close()


def _short(fact: Any) -> Any:
    return fact[:MAX_TEXT] if isinstance(fact, str) else fact


def _dated(line: dict[str, Any]) -> dict[str, Any]:
    moment = datetime.fromtimestamp(line["time"] / 1000, UTC)
    return {**line, "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
