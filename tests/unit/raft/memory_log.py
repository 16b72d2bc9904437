"""A log in memory, as a node sees it and a driver changes it."""

from msgspec.structs import replace

from turbopump.raft.messages import NO_INDEX, NO_TERM, PushedEntry

SIZE = 100


class MemoryLog:
    """Entries of 100 bytes each, of which those up to `synced_index` survive a crash."""

    def __init__(self, terms: list[int] | None = None, first: int = 0) -> None:
        self.entries: list[PushedEntry] = []
        self.synced_index = NO_INDEX
        for n, term in enumerate(terms or []):
            self.entries.append(entry(first + n, term))
        self.synced_index = self.end_index

    @property
    def begin_index(self) -> int:
        return self.entries[0].index if self.entries else NO_INDEX

    @property
    def end_index(self) -> int:
        return self.entries[-1].index if self.entries else NO_INDEX

    @property
    def end_term(self) -> int:
        return self.entries[-1].term if self.entries else NO_TERM

    def term_of(self, index: int) -> int | None:
        held = self.at(index)
        return held.term if held else None

    def holds(self, wanted: PushedEntry) -> bool:
        return self.at(wanted.index) == wanted

    def size_of(self, first: int, last: int) -> int:
        return sum(held.size for held in self.slice(first, last))

    def at(self, index: int) -> PushedEntry | None:
        place = index - self.begin_index
        return self.entries[place] if self.entries and 0 <= place < len(self.entries) else None

    def slice(self, first: int, last: int) -> tuple[PushedEntry, ...]:
        found = self.entries[first - self.begin_index : last - self.begin_index + 1] if self.entries else []
        assert len(found) == last - first + 1, f"entries {first} to {last} must be in the log"
        return tuple(found)

    # what a driver does

    def append(self, new: PushedEntry) -> None:
        assert not self.entries or new.index == self.end_index + 1
        self.entries.append(new)

    def truncate(self, after_index: int, replacement: PushedEntry | None) -> None:
        if replacement is not None:
            self.entries, self.synced_index = [replacement], NO_INDEX
            return
        self.entries = [held for held in self.entries if held.index <= after_index]
        self.synced_index = min(self.synced_index, self.end_index)

    def sync(self) -> None:
        self.synced_index = self.end_index

    def crash(self) -> None:
        """Loses what was not synced."""
        self.entries = [held for held in self.entries if held.index <= self.synced_index]

    def expire(self, before: int) -> None:
        """Deletes old entries."""
        self.entries = [held for held in self.entries if held.index >= before]

    def __str__(self) -> str:
        """Terms and their indexes, such as `t1 0-4, t2 5`."""
        runs: list[tuple[int, int, int]] = []
        for held in self.entries:
            if runs and runs[-1][0] == held.term:
                runs[-1] = (held.term, runs[-1][1], held.index)
            else:
                runs.append((held.term, held.index, held.index))
        texts = [f"t{term} {first}" + (f"-{last}" if last > first else "") for term, first, last in runs]
        return ", ".join(texts) or "empty"


def entry(index: int, term: int, body: str = "") -> PushedEntry:
    """An entry whose body tells it from others with the same index and term."""
    return PushedEntry(index, term, index * SIZE, SIZE, 0, body)


def altered(original: PushedEntry, body: str) -> PushedEntry:
    """The same entry with another body."""
    return replace(original, body=body)
