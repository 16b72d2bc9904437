"""The books that this broker keeps, of both kinds, as the ledger's requests and settlement read them.

In: a transactional id. Out: its book. The messages of a global transaction have an id of the ledger too
(`global/<group>/<gid>`); their book is a view of that transaction's decision.
"""

from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.book.changes import GlobalChange
from turbopump.broker.transactions.change_log import ChangeLog
from turbopump.broker.transactions.ledger.ledger import Change, LedgerBooks, entry_of
from turbopump.broker.transactions.ledger.stamps import LedgerStamp
from turbopump.protocol.errors import IllegalOperation
from turbopump.protocol.global_transactions import ledger_id, split_ledger_id
from turbopump.protocol.ledger import Book


class LocalBooks:
    """Finds the book of a transactional id among the ledger's and those of global transactions."""

    def __init__(
        self,
        ledger: LedgerBooks,
        ledger_log: ChangeLog[Change],
        globals: GlobalBook,
        global_log: ChangeLog[GlobalChange],
    ) -> None:
        self._ledger = ledger
        self._ledger_log = ledger_log
        self._globals = globals
        self._global_log = global_log

    def find(self, id: str) -> Book | None:
        """Returns the book of an id; None: this broker does not know it."""
        parts = split_ledger_id(id)
        if parts is None or not parts[1]:
            return self._ledger.books.get(id)
        group, gid = parts
        if not self.is_home(group):
            return None
        return self._globals.view(gid, group, self._ledger.broker_name)

    def is_home(self, group: str) -> bool:
        """Returns whether this broker keeps the global transactions of a group."""
        book = self._ledger.books.get(ledger_id(group))
        return book is not None and book.home == self._ledger.broker_name

    def check_unused(self, id: str) -> None:
        """Raises IllegalOperation for the home of a group that has open global transactions here."""
        parts = split_ledger_id(id)
        if parts is not None and self._globals.has_open(parts[0]):
            raise IllegalOperation(
                f"global transactions of group {parts[0]} have not ended: `turbopump transactions "
                "list` shows them"
            )

    async def safe(self, id: str) -> None:
        """Waits until what `find` has returned is on disk, and at slaves that are waited for."""
        parts = split_ledger_id(id)
        if parts is None or not parts[1]:
            await self._ledger_log.safe(id)
        else:
            await self._global_log.safe(parts[1])

    def check_open(self, stamp: LedgerStamp) -> None:
        """Raises IllegalOperation or Fenced when half messages with this stamp can never be committed."""
        parts = split_ledger_id(stamp.id)
        if parts is None or not parts[1]:
            book = self._ledger.book(stamp.id)
            self._ledger.check_run(book, stamp.id, stamp.run)
        else:
            group, gid = parts
            transaction = self._globals.known(gid, group)
            if transaction.gid != stamp.token:
                raise IllegalOperation(f"the token of messages of {gid} must be its gid, got {stamp.token}")
            book = self._globals.view(gid, group, self._ledger.broker_name)
        if entry_of(book, stamp.batch) is not None:
            raise IllegalOperation(f"batch {stamp.batch} of {stamp.id} is decided already")
