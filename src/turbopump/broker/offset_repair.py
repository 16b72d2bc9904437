"""Brings committed offsets beyond the end of their queue back to it, before a broker serves.

In: the tables and queues of a broker that starts, and how it stopped. Out: where the log ended after a crash
that may have cost messages. How an offset moves is decided in `groups/offsets.py`.
"""

from turbopump.broker.replicas.progress_files import RoleChange
from turbopump.broker.storage import Storage
from turbopump.broker.tables import Tables
from turbopump.runtime.clock import Clock
from turbopump.store.config_files import ConfigFiles


def repair_offsets(
    store: Storage,
    tables: Tables,
    files: ConfigFiles,
    role: RoleChange,
    clock: Clock,
    *,
    is_slave: bool,
    in_group: bool,
) -> int | None:
    """Moves committed offsets beyond the end of their queue back to it; returns `Context.recovered_end`.

    That is where the log ended after the first crash of the last minutes; None when there was none.

    A slave that becomes the master may lack the last messages of the old one: to consumers that is the
    same as a crash which has cost them. A crash of a slave costs nothing: its master has the messages. In
    a DLedger group consumers see only what is never lost.
    """
    is_promotion = not is_slave and role.is_promotion
    lost_from = None if is_slave else store.recovered_end
    if is_promotion:
        lost_from = role.lost_from(store.log.end)
    if in_group:
        lost_from = None
    if is_slave or is_promotion:
        tables.offsets.adopt_crashes(role.progress.state.crashes)
    # A member that was just started does not know yet what is committed, and dispatches only that.
    are_complete = not in_group or not is_slave
    recovered_end = tables.offsets.recover(store.queues, lost_from, clock.now_ms(), are_complete=are_complete)
    if lost_from is not None:  # before anything is appended where messages were lost
        files.save(tables.offsets.file_name, tables.offsets.dump())
    elif tables.offsets.is_dirty:  # changed before anybody listened: later commits would not be written
        tables.offsets.on_change()
    if is_promotion:
        role.promoted(store.log.end, is_elected=in_group)
    return recovered_end
