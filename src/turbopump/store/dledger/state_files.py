"""DLedger's small files: `currterm`, term and vote of this node, and `checkpoint`, extent of its log.

Both are properties text with the contents before the last change in `.bak`, as Apache writes and reads them,
and both are replaced as a whole: after a crash the old or the new contents are there.
"""

from dataclasses import dataclass

from turbopump.protocol.conf import ConfigError, pack_properties, parse_properties
from turbopump.runtime.disk import Disk
from turbopump.store.config_files import ConfigFiles
from turbopump.store.errors import UnusableStore

TERM_FILE = "currterm"
CHECKPOINT_FILE = "checkpoint"
NONE = -1


@dataclass(frozen=True, slots=True)
class Vote:
    """The term of a node and the member it voted for in it; empty: none yet."""

    term: int
    leader: str = ""


@dataclass(frozen=True, slots=True)
class EntryCheckpoint:
    """The last committed entry, and the last entry that is known to be on the medium; -1: none."""

    committed: int = NONE
    end: int = NONE

    def within(self, begin: int, end: int) -> "EntryCheckpoint":
        """Returns the checkpoint for a log that has the entries `begin` to `end`.

        A log may be shorter than it was noted, and what was deleted at its front was committed.
        """
        low = begin - 1
        return EntryCheckpoint(max(low, min(self.committed, end)), max(low, min(self.end, end)))


class StateFiles:
    """Loads and saves `currterm` and `checkpoint` in a directory `dledger-<id>`."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._files = ConfigFiles(directory, disk)

    def load_vote(self) -> Vote | None:
        """Returns term and vote; None when this node never had any. Raises UnusableStore.

        A node that forgot its vote could give two in one term. So `.bak` counts only where a save was
        interrupted between its two renames, and a damaged file is not taken for none.
        """
        path = f"{self._directory}/{TERM_FILE}"
        if self._disk.exists(path) and _vote_of(self._disk.read(path)) is None:
            raise UnusableStore(
                f"{path} is damaged: this node no longer knows whom it voted for. Remove {self._directory}, "
                f"and the node copies the log of its group again"
            )
        data = self._files.load(TERM_FILE, lambda found: _vote_of(found) is not None)
        return None if data is None else _vote_of(data)

    def peek_vote(self) -> Vote | None:
        """Returns term and vote without changing anything, for tools; None when they cannot be read."""
        path = f"{self._directory}/{TERM_FILE}"
        return _vote_of(self._disk.read(path)) if self._disk.exists(path) else None

    def save_vote(self, vote: Vote) -> None:
        """Replaces term and vote, durably. Blocks: the vote counts only when this returned."""
        self._files.save(TERM_FILE, pack_properties({"voteLeader": vote.leader, "currTerm": str(vote.term)}))

    def load_checkpoint(self) -> EntryCheckpoint:
        """Returns the checkpoint; that of an empty log without a file that can be read."""
        data = self._files.load(CHECKPOINT_FILE, lambda found: _checkpoint_of(found) is not None)
        return (None if data is None else _checkpoint_of(data)) or EntryCheckpoint()

    def peek_checkpoint(self) -> EntryCheckpoint:
        """Returns the checkpoint without changing anything, for tools; empty when it cannot be read."""
        path = f"{self._directory}/{CHECKPOINT_FILE}"
        found = _checkpoint_of(self._disk.read(path)) if self._disk.exists(path) else None
        return found or EntryCheckpoint()

    def save_checkpoint(self, checkpoint: EntryCheckpoint) -> None:
        """Replaces the checkpoint, durably. Its `end` must be on the medium already."""
        values = {"committedIndex": str(checkpoint.committed), "endIndex": str(checkpoint.end)}
        self._files.save(CHECKPOINT_FILE, pack_properties(values))


def _vote_of(data: bytes) -> Vote | None:
    values = _values(data)
    term = _number(values.get("currTerm", ""))
    return None if term is None or term < 0 else Vote(term, values.get("voteLeader", ""))


def _checkpoint_of(data: bytes) -> EntryCheckpoint | None:
    values = _values(data)
    committed, end = _number(values.get("committedIndex", "")), _number(values.get("endIndex", ""))
    if committed is None or end is None:
        return None
    return EntryCheckpoint(max(NONE, committed), max(NONE, end))


def _values(data: bytes) -> dict[str, str]:
    try:
        return {entry.key: entry.value for entry in parse_properties(data)}
    except ConfigError:
        return {}


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
