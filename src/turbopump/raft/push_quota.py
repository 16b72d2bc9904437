"""How many bytes a leader may push to a follower that is far behind, as DLedger's quota: per second.

Without it a member that comes back after a day would take the bandwidth that the others need to acknowledge
new entries. Pure: the time is given.
"""

WINDOW_MS = 1000


class PushQuota:
    """Bytes pushed to one follower in the present second."""

    def __init__(self, far_bytes: int, bytes_per_s: int) -> None:
        """A follower is far behind when it lacks more than `far_bytes`."""
        self._far_bytes = far_bytes
        self._bytes_per_s = bytes_per_s
        self._window_ms = -WINDOW_MS
        self._pushed = 0

    def waits_until_ms(self, now_ms: int, behind: int) -> int | None:
        """Returns when a follower that lacks `behind` bytes may get the next push; None: now."""
        window_end_ms = self._window_ms + WINDOW_MS
        is_used_up = now_ms < window_end_ms and self._pushed >= self._bytes_per_s
        return window_end_ms if is_used_up and behind > self._far_bytes else None

    def pushed(self, now_ms: int, size: int) -> None:
        """Counts a push."""
        if now_ms >= self._window_ms + WINDOW_MS:
            self._window_ms, self._pushed = now_ms, 0
        self._pushed += size
