"""Ends the commit log of a store that is switched over to DLedger, at the boundary of a file.

In: a log without entries whose files in `commitlog/` were recovered by the rules of a commit log, and the end
of their last record. Out: the *divided offset*, the end of the last of these files, where DLedger's first
entry goes. As in Apache, a blank record fills the last file.

Each step leaves a store that is recovered as before the switch-over and switched over again: the blank is
what the commit log itself would write, and no entry is written before it is on the medium.
"""

import logging

from turbopump.protocol.record import BLANK
from turbopump.store.commit_log import BLANK_HEAD, BLANK_SIZE
from turbopump.store.segment import LogFiles

log_line = logging.getLogger("turbopump.store")


def end_older_files(files: LogFiles, end: int) -> int:
    """Ends the files of a commit log, whose records end at `end`; returns the divided offset. Blocks.

    A last file without a record is removed, if a file before it keeps the offset.
    """
    size = files.file_size
    if not files.has(end - end % size):
        return end  # the records fill the files, or there are none
    start = end - end % size
    if start == end and (len(files.starts) > 1 or start == 0):
        files.remove(start)
        return start
    buffer = (mapped := files.mapped(start)).buffer
    assert size - (end - start) >= BLANK_SIZE, "a record leaves space for a blank"
    BLANK_HEAD.pack_into(buffer, end - start, start + size - end, BLANK)
    mapped.sync()
    log_line.warning(
        "The commit log was switched over to DLedger: records end at %d, entries begin at %d. All members of "
        "the group need the same commitlog/",
        end,
        start + size,
    )
    return start + size
