"""Makes the unique message ids of this process. They contain the process id: a forked child makes its own."""

import os
from collections.abc import Callable

from turbopump.protocol.ids import UniqueIds
from turbopump.runtime.chance import Chance

_this = os.getpid()


def process_id() -> int:
    """Returns the id of this process, also after a fork, without the system call of os.getpid."""
    return _this


def _forked() -> None:
    global _this
    _this = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class ProcessIds:
    """Makes unique message ids of this process; safe between threads, and in a forked child."""

    def __init__(
        self, ip: str, clock_ms: Callable[[], int], chance: Chance, pid: Callable[[], int] = process_id
    ) -> None:
        self._ip = ip
        self._clock_ms = clock_ms
        self._chance = chance
        self._pid = pid
        self._restart(pid())

    def next(self) -> str:
        if (pid := self._pid()) != self._owner_pid:
            self._restart(pid)
        return self._ids.next()

    def _restart(self, pid: int) -> None:
        self._owner_pid = pid
        self._ids = UniqueIds(self._ip, pid, self._clock_ms, self._chance.getrandbits(32))
