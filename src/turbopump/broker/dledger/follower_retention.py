"""Keeps the beginning of a follower's log until its leader has deleted it.

Messages that wait in an expired file are rewritten by a leader of ours before it deletes the file, and where
its log begins is in every table that it writes. A follower that deleted by its own clock would lack waiting
messages once it leads. Apache's leaders rewrite nothing: then a follower deletes by its own clock as well.
"""

import logging
from collections.abc import Callable

from turbopump.broker.dledger.table_copies import TableCopies

log = logging.getLogger(__name__)


class FollowerRetention:
    """Answers whether a follower may delete the beginning of its log."""

    def __init__(
        self, copies: TableCopies, is_leader_apache: Callable[[], bool], is_disk_full: Callable[[], bool]
    ) -> None:
        self._copies = copies
        self._is_leader_apache = is_leader_apache
        self._is_disk_full = is_disk_full
        self._kept = -1

    async def may_delete(self, below: int) -> bool:
        """Returns whether the log below an offset may go: the leader has deleted it, or the disk is full."""
        if below <= self._copies.begin or self._is_leader_apache():
            return True
        if self._is_disk_full():
            log.warning(
                "The disk is full: deleting the log before %d, with messages that may still wait there. The "
                "leader's log begins at %d. Should this member lead before the leader has deleted that part, "
                "these messages are delivered by another member only",
                *(below, self._copies.begin),
            )
            return True
        if self._kept != below:
            self._kept = below
            words = "Keeping the expired log before %d: that of the leader begins at %d"
            log.info(words, below, self._copies.begin)
        return False
