"""Message ids of this process. A child that was forked makes its own: its pid is part of them."""

import os
from collections.abc import Callable

from turbopump.protocol.ids import UniqueIds
from turbopump.runtime.chance import Chance

_this = os.getpid()


def process_id() -> int:
    """As os.getpid, which asks the system and so takes its time: this is asked for every message."""
    return _this


def _forked() -> None:
    global _this
    _this = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class ProcessIds:
    """Safe between threads and over forks."""

    def __init__(
        self, ip: str, clock_ms: Callable[[], int], chance: Chance, pid: Callable[[], int] = process_id
    ) -> None:
        self._ip = ip
        self._clock_ms = clock_ms
        self._chance = chance
        self._pid = pid
        self._begin(pid())

    def next(self) -> str:
        if (pid := self._pid()) != self._began_in:
            self._begin(pid)
        return self._ids.next()

    def _begin(self, pid: int) -> None:
        self._began_in = pid
        self._ids = UniqueIds(self._ip, pid, self._clock_ms, self._chance.getrandbits(32))
