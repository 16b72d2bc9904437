"""The tables of a master that its slaves keep too, with the log offset up to which their progress is true.

In: tables and files of the broker. Out: name, contents and offset for `Master`, all of them for a slave that
connects, and each one again when it was saved. How they travel is not known here.
"""

import asyncio
from collections.abc import Callable

from turbopump.broker.access.part import USERS_FILE
from turbopump.broker.consume.filters import FILE as FILTER_FILE
from turbopump.broker.delay.levels import FILE as DELAY_FILE
from turbopump.broker.groups.request_modes import FILE as REQUEST_MODES_FILE
from turbopump.broker.log import Log
from turbopump.broker.replicas.progress_files import TRANSACTION_FILE, transaction_progress
from turbopump.broker.tables import GROUPS_FILE, TOPICS_FILE, Tables
from turbopump.guard.users import UserTable
from turbopump.replication.master import Master, Table
from turbopump.store.config_files import ConfigFiles


class PushedTables:
    """Gives slaves the tables of their master: all when one connects, each one again when it was saved."""

    def __init__(self, tables: Tables, files: ConfigFiles, log: Log, users: UserTable | None) -> None:
        self._tables = tables
        self._files = files
        self._log = log
        self._users = users
        offsets = tables.offsets.file_name
        self._pushed = (TOPICS_FILE, GROUPS_FILE, offsets, FILTER_FILE, REQUEST_MODES_FILE)

    def all(self) -> list[Table]:
        """Returns the tables for a slave that connects, with the progress of delays and transactions."""
        tables, files = self._tables, self._files
        live: list[Table] = [
            (TOPICS_FILE, tables.topics.dump(), 0),
            (GROUPS_FILE, tables.groups.dump(), 0),
            (tables.offsets.file_name, b"".join(tables.offsets.slices(is_saved=False)), 0),
            (FILTER_FILE, tables.filters.dump(), 0),
            (REQUEST_MODES_FILE, tables.request_modes.dump(), 0),
        ]
        progress = ((DELAY_FILE, files.load(DELAY_FILE)), (TRANSACTION_FILE, self._transactions()))
        end = self._log.end
        if self._users is not None:
            live.append((USERS_FILE, self._users.contents(), 0))
        return [*live, *((name, data, end) for name, data in progress if data is not None)]

    def start(self, master: Master, offsets_pushed: Callable[[], None]) -> None:
        """Sends each table that is saved from now on to all slaves of `master`.

        `offsets_pushed` is called behind the whole table of committed offsets.
        """
        loop = asyncio.get_running_loop()

        def saved(name: str, contents: bytes) -> None:  # in the thread of a worker
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._push, master, name, contents, offsets_pushed)

        async def publish_users(contents: bytes) -> None:
            master.push_table(USERS_FILE, contents)

        self._files.on_saved = saved
        if self._users is not None:
            self._users.publish = publish_users

    def stop(self) -> None:
        self._files.on_saved = None
        if self._users is not None:
            self._users.publish = None

    def _push(self, master: Master, name: str, contents: bytes, offsets_pushed: Callable[[], None]) -> None:
        """Sends a saved table; tables of progress follow the log up to its present end."""
        if name == DELAY_FILE:
            master.push_table(name, contents, self._log.end)
        elif name in self._pushed:
            master.push_table(name, contents)
        if name != self._tables.offsets.file_name:
            return
        offsets_pushed()
        if (reached := self._transactions()) is not None:
            master.push_table(TRANSACTION_FILE, reached, self._log.end)

    def _transactions(self) -> bytes | None:
        return transaction_progress(self._tables.offsets, self._log.end)
