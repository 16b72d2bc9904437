"""Holds tables of an Apache master until the log that they count has been copied. Pure.

In: tables, each with the end of the master's log at a moment after it was read, and how far the copy is. Out:
tables that count nothing which is not here. A master of ours needs none of this: it sends its tables between
the parts of its log.
"""

from collections.abc import Callable
from dataclasses import dataclass

Take = Callable[[str, bytes, int], None]
"""Called with name and contents of a table, and the end of the log that it counts at most."""


@dataclass(slots=True)
class _Held:
    """A table that waits. The first is kept beside the newest: a busy log must not starve it."""

    contents: bytes
    end: int
    newest: tuple[bytes, int] | None = None


class HeldTables:
    """Tables by name that wait for the copy of the log."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._held: dict[str, _Held] = {}

    def put(self, name: str, contents: bytes, end: int) -> None:
        """Takes a table that was read before the master's log reached `end`; `copied` hands it on."""
        held = self._held.get(name)
        if held is None:
            self._held[name] = _Held(contents, end)
        else:
            held.newest = contents, end

    def copied(self, end: int) -> None:
        """Hands on the tables that count no more of the log than what is here, up to `end`."""
        for name, held in list(self._held.items()):
            if held.end > end:
                continue
            del self._held[name]
            contents, counted = held.contents, held.end
            if held.newest is not None and held.newest[1] <= end:
                contents, counted = held.newest
            elif held.newest is not None:
                self.put(name, *held.newest)
            self._take(name, contents, counted)

    def clear(self) -> None:
        """Forgets what waits: the connection ended, and the master may come back with a shorter log."""
        self._held.clear()
