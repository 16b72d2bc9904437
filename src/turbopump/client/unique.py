"""Message ids of this process. A child that was forked makes its own: its pid is part of them."""

import os
from collections.abc import Callable

from turbopump.protocol.ids import UniqueIds
from turbopump.runtime.chance import Chance


class ProcessIds:
    """Safe between threads and over forks."""

    def __init__(
        self, ip: str, clock_ms: Callable[[], int], chance: Chance, pid: Callable[[], int] = os.getpid
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
