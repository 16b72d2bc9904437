"""Decides which old files are deleted, and when the disk is too full to write; the store carries it out.

`decide` is a pure function of the files, the time and the usage of the disks. `Retention` calls it every ten
seconds and acts on the result. Files are deleted oldest first, never the last one, a few at a time; consume
queues and index follow the new beginning of the log. Nothing here knows the contents of a file.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Usage
from turbopump.store.commit_log import LogFile
from turbopump.store.config import StoreConfig

log = logging.getLogger(__name__)

FIRST_AFTER_S = 60.0
MANUAL_RUNS = 20  # rounds for which an operator's request to delete is valid
_HOUR_MS = 3_600_000


Guard = Callable[[int], Awaitable[bool]]
"""Asked before the log below an offset is deleted; returns False to keep it for now."""


class Retained(Protocol):
    """Protocol: what retention needs of the store: log files to delete, and a flag for a full disk."""

    def log_files(self) -> Sequence[LogFile]:
        """Returns the files of the log, oldest first."""

    def delete_first_log_file(self) -> None: ...
    async def sync_removals(self) -> None:
        """Makes deletions durable."""

    def min_offset_changed(self) -> None:
        """Starts removing queue and index files that point only into deleted log files."""

    def set_disk_full(self, full: bool, ratio: float) -> None: ...


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """Decision of one round: number of oldest log files to delete, whether the disk is too full."""

    delete: int  # files, from the oldest on
    disk_full: bool
    ratio: float


def decide(
    files: Sequence[LogFile],
    now_ms: int,
    hour: int,
    usages: Sequence[Usage],
    config: StoreConfig,
    asked: bool = False,
) -> RetentionDecision:
    """Decides how many files to delete, and whether the disk is too full to write.

    `hour` is that of the local day, `usages` are those of the disks of log and queues; `asked`: an operator
    requested a deletion.
    """
    percent = max(map(used_percent, usages))
    is_due = (
        asked or hour in hours(config.delete_when) or percent > _within(config.disk_max_used_ratio, 10, 95)
    )
    is_forced = config.clean_forcibly and percent > _within(config.disk_force_clean_ratio, 30, 85)
    expired_before = now_ms - config.file_reserved_hours * _HOUR_MS
    delete = 0
    if is_due or is_forced:
        for file in files[:-1][: config.delete_files_at_once]:
            if not is_forced and file.modified_ms > expired_before:
                break
            delete += 1
    return RetentionDecision(delete, percent > _within(config.disk_warning_ratio, 35, 90), percent / 100)


def used_percent(usage: Usage) -> int:
    """Returns the used part of a disk in percent, rounded up as Apache does."""
    if usage.total <= 0:
        return 0
    return -(-100 * (usage.total - usage.free) // usage.total)


def hours(delete_when: str) -> set[int]:
    """Parses the setting `deleteWhen`, such as `02;04;23`, into hours; ignores what is not a number."""
    words = (word.strip() for word in delete_when.split(";"))
    return {int(word) for word in words if word.isdecimal()}


def _within(percent: int, lowest: int, highest: int) -> int:
    return max(lowest, min(percent, highest))


class Retention:
    """Deletes log files that expired, or for space; tells the store whether the disk is too full to write."""

    def __init__(self, store: Retained, config: StoreConfig, disk: Disk, clock: Clock) -> None:
        self._store = store
        self._config = config
        self._disk = disk
        self._clock = clock
        self._is_full = self._is_deleting = False
        self._asked = 0
        self.guards: list[Guard] = []
        """Called before each file is deleted: parts of the broker may still need messages in it."""

    def configure(self, config: StoreConfig) -> None:
        self._config = config

    def follow_log(self) -> None:
        """Starts removing what points before the log, which begins elsewhere without a deletion of files."""
        self._store.min_offset_changed()

    def ask(self) -> None:
        """Lets the next 20 rounds delete expired files at any hour: an operator's request (code 329)."""
        self._asked = MANUAL_RUNS

    async def run(self) -> None:
        """Runs a round every `clean_interval_ms` until cancelled; deletes nothing in the first minute.

        The usage of the disk counts at once.
        """
        started = self._clock.monotonic()
        while True:
            may_delete = self._clock.monotonic() - started >= FIRST_AFTER_S
            try:
                await self.round(may_delete)
            except OSError as error:
                log.error("Cannot delete old files; retrying: %s", error)
            except Exception:  # a bug here or in a guard: the disk must not fill up because of it
                log.exception("Cannot delete old files; retrying")
            await self._clock.sleep(self._config.clean_interval_ms / 1000)

    async def round(self, may_delete: bool = True) -> int:
        """Checks the disks, deletes log files that are due, returns how many; 0 while another round runs."""
        if self._is_deleting:
            return 0
        self._is_deleting = True
        try:
            return await self._look(may_delete)
        finally:
            self._is_deleting = False

    async def _look(self, may_delete: bool) -> int:
        files = self._store.log_files()
        now_ms = self._clock.now_ms()
        hour = time.localtime(now_ms // 1000).tm_hour
        usages = [self._disk.usage(path) for path in (self._config.log_dir, self._config.root_dir)]
        decision = decide(files, now_ms, hour, usages, self._config, self._asked > 0)
        self._note_fullness(decision)
        if not may_delete:
            return 0
        self._asked = max(0, self._asked - 1)
        deleted = 0
        try:
            for file in files[: decision.delete]:
                if deleted:
                    await self._clock.sleep(self._config.delete_file_pause_ms / 1000)
                if not await self._may_go(file.end):
                    break
                self._store.delete_first_log_file()
                deleted += 1
                # Before the next one: the files that survive a crash must have no gap.
                await self._store.sync_removals()
                log.info(
                    "Deleted %s, last written %d h ago", file.path, (now_ms - file.modified_ms) // _HOUR_MS
                )
        finally:
            if deleted:
                self._store.min_offset_changed()
        return deleted

    async def _may_go(self, below: int) -> bool:
        asked = list(self.guards)
        for guard in asked:
            if not await guard(below):
                return False
        return asked == self.guards  # otherwise others have to be asked by now

    def _note_fullness(self, decision: RetentionDecision) -> None:
        if decision.disk_full and not self._is_full:
            log.error(
                "The disk is %.0f %% full; refusing messages until space is freed", 100 * decision.ratio
            )
        if self._is_full and not decision.disk_full:
            log.warning("The disk has space again (%.0f %% used); accepting messages", 100 * decision.ratio)
        self._is_full = decision.disk_full
        self._store.set_disk_full(decision.disk_full, decision.ratio)
