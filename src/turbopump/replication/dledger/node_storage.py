"""What a node wants done on disk: its vote, its entries, cuts of its log; and the report that they are safe.

A vote is saved by a worker, and the caller waits. Entries are written at once. With SYNC_FLUSH they are
reported when the flusher has them on the medium, otherwise right away. A cut waits for a sync under way; what
it copies and syncs is left to a worker, and the loop only changes the log in memory, as a whole.
"""

import asyncio
import logging
from collections.abc import Callable

from turbopump.protocol.dledger.entry import DLedgerEntry
from turbopump.raft import Save, SavedState, Truncate
from turbopump.raft.messages import PushedEntry
from turbopump.runtime.disk import Workers
from turbopump.store.commit_log import Syncable
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.state_files import EntryCheckpoint, Vote
from turbopump.store.flush import Durability, Flusher

log_line = logging.getLogger(__name__)

SYNC_RETRY_MS = 1000  # after a sync that failed


class NodeStorage:
    """Vote, checkpoint and log of one node."""

    def __init__(
        self, log: EntryLog, flusher: Flusher, workers: Workers, on_synced: Callable[[], None]
    ) -> None:
        self._log = log
        self._flusher = flusher
        self._workers = workers
        self._on_synced = on_synced
        self._is_waiting = False  # for a sync; one wait at a time covers all entries
        self._is_stopped = False
        self._noted: EntryCheckpoint | None = None
        self._cut_to_sync: list[Syncable] = []
        """What a cut has changed: nothing is appended before it is on the medium."""
        # A checkpoint that is being written must not replace the lower one of a cut.
        self._checkpoint_lock = asyncio.Lock()

    # term and vote

    def saved_state(self) -> SavedState:
        """Returns what a node is started with. Blocks. Raises UnusableStore, or OSError."""
        self._sync_cut()  # that of a node before may have failed on the way
        vote = self._log.state_files.load_vote()
        if vote is None:
            return SavedState(joined=False, committed_index=self._log.committed_index)
        return SavedState(vote.term, vote.leader or None, True, self._log.committed_index)

    async def save(self, state: Save) -> None:
        """Puts term and vote on disk. Raises OSError.

        A node that has not joined has no vote that it could forget, and learns its term again from the
        others: without a file it is known as one that has not joined after a restart, too.
        """
        if state.joined:
            vote = Vote(state.term, state.voted_for or "")
            await self._workers.urgent(self._log.state_files.save_vote, vote)

    # entries

    def append(self, entries: tuple[PushedEntry, ...]) -> None:
        """Appends entries of the leader. Raises MisplacedEntry, or OSError."""
        assert not self._cut_to_sync, "what was cut is not on the medium"
        self._log.append_entries([_entry(pushed) for pushed in entries])
        self.report_when_safe()

    async def truncate(self, cut: Truncate, leader: str | None) -> None:
        """Removes the entries behind an index, or the whole log. Raises MisplacedEntry, or OSError."""
        log = self._log
        async with self._checkpoint_lock:
            await self._flusher.wait_idle()
            first, last = max(cut.after_index + 1, log.begin_index), log.end_index
            if cut.replacement is None:
                kept = await self._cut_after(cut.after_index)
            else:
                first = log.begin_index
                kept = log.reset(cut.replacement.index, cut.replacement.pos)
                self._flusher.log_was_cut(log.end)
            self._noted = None
        if 0 <= first <= last:
            log_line.warning(
                "Cut entries %d to %d of DLedger's log, which leader %s does not have; kept as %s",
                *(first, last, leader, ", ".join(kept) or "nothing"),
            )
        if cut.replacement is not None:
            self.append((cut.replacement,))

    async def _cut_after(self, index: int) -> list[str]:
        """Removes the entries behind an index; returns the files that keep them."""
        log, workers = self._log, self._workers
        await workers.run(log.state_files.save_checkpoint, log.checkpoint_of_cut(index))
        copied = []
        if (tail := log.tail_after(index)) is not None:
            copied.append(await workers.run(log.files.keep, tail, log.set_aside_dir))
        await self._flusher.wait_idle()  # one may have begun meanwhile
        kept, self._cut_to_sync = log.cut_after(index, is_kept=True)
        self._flusher.log_was_cut(log.end)
        await workers.run(self._sync_cut)
        return [*kept, *copied]

    def _sync_cut(self) -> None:
        """Makes a cut durable. Blocks; raises OSError, and the next call tries again."""
        for part in self._cut_to_sync:
            part.sync()
        self._cut_to_sync = []

    def report_when_safe(self) -> None:
        """Calls `on_synced` when all entries that are in the log now are safe."""
        if not self._flusher.syncs_each:
            self._on_synced()
        elif not self._is_waiting and not self._is_stopped:
            self._is_waiting = True
            self._flusher.durable(self._log.end, self._flushed)

    def _flushed(self, durability: Durability) -> None:
        self._is_waiting = False
        if self._is_stopped:
            return
        if durability is Durability.DISK:
            self._on_synced()
        if durability is Durability.FAILED:
            asyncio.get_running_loop().call_later(SYNC_RETRY_MS / 1000, self.report_when_safe)
        elif self._log.synced < self._log.end:
            self.report_when_safe()

    # checkpoint

    async def save_checkpoint(self) -> None:
        """Notes how far the log is committed and on the medium, if it is another place than last noted."""
        async with self._checkpoint_lock:
            checkpoint = self._log.checkpoint()
            if checkpoint != self._noted:
                try:
                    await self._workers.run(self._log.state_files.save_checkpoint, checkpoint)
                except OSError as error:
                    log_line.warning("Cannot save the checkpoint of DLedger's log: %s", error)
                else:
                    self._noted = checkpoint

    def stop(self) -> None:
        """Reports nothing any longer."""
        self._is_stopped = True


def _entry(pushed: PushedEntry) -> DLedgerEntry:
    assert isinstance(pushed.body, DLedgerEntry)
    return pushed.body
