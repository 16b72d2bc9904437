"""Handles requests to the ledger: open a run (9701), read a book (9703), decide (9704) or end a batch (9705).

And those of operators: list the books (9706), forget one (9707).

In: requests. Out: answers that hold after any crash: they are sent when the change is on disk (of several
calls that end half messages, the last one waits for it). Half messages arrive by `send.py`, and end in
`settlement.py`.
"""

import logging
from heapq import nsmallest

from msgspec.structs import replace

from turbopump.broker.acknowledgement import Acknowledgement
from turbopump.broker.storage import Storage
from turbopump.broker.transactions.change_log import ChangeLog
from turbopump.broker.transactions.ledger.ledger import Change, LedgerBooks, entry_of, owed, state_of
from turbopump.broker.transactions.ledger.local_books import LocalBooks
from turbopump.broker.transactions.ledger.settlement import Settlement
from turbopump.protocol import ledger as wire
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import IllegalOperation, InvalidParameter, QueryNotFound
from turbopump.protocol.global_transactions import split_ledger_id
from turbopump.protocol.headers.ledger import (
    LedgerDecideRequest,
    LedgerEndRequest,
    LedgerEndResponse,
    LedgerForgetRequest,
    LedgerListRequest,
    LedgerOpenRequest,
    LedgerReadRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes

log = logging.getLogger(__name__)

MAX_LISTED = 1000  # books in one answer
MAX_READ = 64  # batches in one request
MAX_ENDED = 16_384  # half messages in one call: about half a second


class LedgerHandler:
    """Handles all requests to the ledger except those that send half messages."""

    def __init__(
        self,
        ledger: LedgerBooks,
        log: ChangeLog[Change],
        books: LocalBooks,
        settlement: Settlement,
        store: Storage,
        acknowledgement: Acknowledgement,
    ) -> None:
        self._ledger = ledger
        self._log = log
        self._books = books
        self._settlement = settlement
        self._store = store
        self._acknowledgement = acknowledgement

    def routes(self) -> Routes:
        return {
            RequestCode.LEDGER_OPEN: Route(LedgerOpenRequest, self.open),
            RequestCode.LEDGER_READ: Route(LedgerReadRequest, self.read),
            RequestCode.LEDGER_DECIDE: Route(LedgerDecideRequest, self.decide),
            RequestCode.LEDGER_END: Route(LedgerEndRequest, self.end),
            RequestCode.LEDGER_LIST: Route(LedgerListRequest, self.list),
            RequestCode.LEDGER_FORGET: Route(LedgerForgetRequest, self.forget),
        }

    async def open(self, request: Request[LedgerOpenRequest]) -> Answer:
        header = request.header
        change = self._ledger.open(header.id, header.run, header.home)
        old = self._ledger.books.get(header.id)
        if change is not None and old is not None and old.expired_ms:
            log.warning(
                "Transactional id %s is in use again; it continues after batch %d", header.id, old.highest
            )
        if change is not None:
            self._log.write(change)
            self._settlement.soon(header.id)
        await self._log.safe(header.id)
        return Answer()

    async def read(self, request: Request[LedgerReadRequest]) -> Answer:
        id, batches = request.header.id, wire.read_batches(request.body)
        if len(batches) > MAX_READ:
            raise InvalidParameter(f"a request must name at most {MAX_READ} batches, got {len(batches)}")
        if self._books.find(id) is None:
            raise QueryNotFound(f"transactional id {id} is not known here")
        await self._books.safe(id)
        book = self._books.find(id)
        assert book is not None  # an id is forgotten only on request, and not while half messages are open
        asked = {batch: entry for batch in batches if (entry := entry_of(book, batch)) is not None}
        return Answer(body=wire.encode(replace(book, decided=asked, owed=owed(book))))

    async def decide(self, request: Request[LedgerDecideRequest]) -> Answer:
        header = request.header
        change = self._ledger.decide(header.id, header.batch, header.run, wire.read_entry(request.body))
        if change is not None:
            self._log.write(change)
            self._settlement.soon(header.id)
        await self._log.safe(header.id)
        entry = entry_of(self._ledger.books[header.id], header.batch)
        assert entry is not None
        return Answer(body=wire.encode(entry))

    async def list(self, request: Request[LedgerListRequest]) -> Answer:
        count = min(request.header.count, MAX_LISTED)
        ids = nsmallest(count, (id for id in self._ledger.books if id > request.header.after))
        return Answer(body=wire.encode([self._summary(id) for id in ids]))

    def _summary(self, id: str) -> wire.BookSummary:
        book = self._ledger.books[id]
        state, halves = state_of(book, self._ledger.broker_name), self._settlement.count(id)
        return wire.BookSummary(id, book.home, state, book.run, book.highest, book.used_ms, halves)

    async def forget(self, request: Request[LedgerForgetRequest]) -> Answer:
        id = request.header.id
        change = self._ledger.forget(id)
        self._books.check_unused(id)
        if count := self._settlement.count(id):
            raise IllegalOperation(f"{count} half messages of {id} are open here: they would wait for ever")
        highest = self._ledger.books[id].highest
        self._log.write(change)
        await self._acknowledgement.require_on_disk(self._store.log.end, "the entry of the ledger")
        log.warning("Forgot transactional id %s on request; its batches were decided up to %d", id, highest)
        return Answer()

    async def end(self, request: Request[LedgerEndRequest]) -> Answer:
        """Ends at most `MAX_ENDED` half messages of decided batches; the answer says how many are left.

        A caller with some left asks again. The last answer means that all of them are on disk.
        """
        header = request.header
        counts = await self._settlement.settle(header.id, header.batch, MAX_ENDED)
        left = self._settlement.left(header.id, header.batch)
        is_last = not left or not counts.total
        if is_last:
            await self._acknowledgement.require_on_disk(self._store.log.end, "the end of the half messages")
        if header.settled and not left and split_ledger_id(header.id) is None:
            self._ledger.settled(header.id, header.batch)
        return Answer(LedgerEndResponse(counts.committed, counts.rolled_back, left))
