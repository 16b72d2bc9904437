"""Log lines that peers or a lasting failure can cause at will, limited to a few per interval and counted."""

import logging


class RateLimitedLog:
    """Writes at most `lines` log lines per interval; the next line says how many were left out.

    Time comes with each call, so that one object serves callers of any clock.
    """

    __slots__ = ("_began", "_interval_s", "_level", "_lines", "_log", "_withheld", "_written")

    def __init__(
        self, log: logging.Logger, interval_s: float, level: int = logging.WARNING, lines: int = 1
    ) -> None:
        self._log = log
        self._interval_s = interval_s
        self._level = level
        self._lines = lines
        self._began: float | None = None
        self._written = 0
        self._withheld = 0

    def log(self, now: float, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Writes the line, or counts it if the interval has `lines` already. `now`: seconds of any clock."""
        if self._began is None or now - self._began >= self._interval_s:
            self._began = now
            self._written = 0
        if self._written >= self._lines:
            self._withheld += 1
            return
        if self._withheld:
            text += f" (and {self._withheld} more since the last such line)"
        self._written += 1
        self._withheld = 0
        self._log.log(self._level, text, *args, exc_info=exc_info)
