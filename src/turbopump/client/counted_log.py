"""Rate-limited log lines for failures that repeat as long as a server is away."""

import asyncio
import logging
from collections.abc import Hashable

from turbopump.runtime.rate_limited_log import RateLimitedLog

INTERVAL_S = 30.0
MAX_KEYS = 1000  # with more, all counts begin again


class CountedLog:
    """Writes one log line per key and interval; the next line of the key says how many were left out."""

    def __init__(
        self, log: logging.Logger, level: int = logging.WARNING, interval_s: float = INTERVAL_S
    ) -> None:
        self._log = log
        self._level = level
        self._interval_s = interval_s
        self._by_key: dict[Hashable, RateLimitedLog] = {}

    def log(self, key: Hashable, text: str, *args: object) -> None:
        """Writes the line, or only counts it if `key` already had a line in this interval."""
        known = self._by_key.get(key)
        if known is None:
            if len(self._by_key) >= MAX_KEYS:
                self._by_key.clear()
            known = self._by_key[key] = RateLimitedLog(self._log, self._interval_s, self._level)
        known.log(asyncio.get_running_loop().time(), text, *args)
