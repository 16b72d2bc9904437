"""Builds the part for transactions: half messages, their ends and checks, and the ledger."""

from dataclasses import dataclass

from turbopump.broker.delay.part import DelayPart
from turbopump.broker.part import Context, Part
from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.book.requests import GlobalTransactionHandler
from turbopump.broker.transactions.book.upkeep import GlobalUpkeep
from turbopump.broker.transactions.change_log import ChangeLog
from turbopump.broker.transactions.checks import TransactionChecks, TransactionProducers, check_rules
from turbopump.broker.transactions.half_kind import HalfMessages
from turbopump.broker.transactions.halves import CheckRules
from turbopump.broker.transactions.ledger.expiry import BookExpiry
from turbopump.broker.transactions.ledger.homes import BookHomes
from turbopump.broker.transactions.ledger.ledger import LedgerBooks
from turbopump.broker.transactions.ledger.local_books import LocalBooks
from turbopump.broker.transactions.ledger.requests import LedgerHandler
from turbopump.broker.transactions.ledger.send import LedgerSendHandler
from turbopump.broker.transactions.ledger.settlement import Settlement
from turbopump.broker.transactions.recovery import reopen
from turbopump.broker.transactions.requests import TransactionHandler
from turbopump.broker.transactions.transactions import OpenTransactions


@dataclass(kw_only=True)
class TransactionPart(Part):
    """The part for transactions, with the open transactions, which metrics and tools use."""

    open: OpenTransactions
    globals: GlobalTransactionHandler


async def build(context: Context) -> TransactionPart:
    """Builds the handlers, message kind and background tasks of transactions and of the ledger.

    Open transactions and the books of the ledger are known before requests are served.
    """
    store, tables, writer, clock = context.store, context.tables, context.writer, context.clock

    def rules() -> CheckRules:
        return check_rules(context.config())

    # A committed message can be of the kinds known so far. Half messages are added later, so never one.
    transactions = OpenTransactions(store, tables.topics, tables.offsets, context.kinds, writer, rules, clock)
    if not context.is_slave:
        await reopen(store, transactions)
    producers = TransactionProducers(tables.members, context.broker_name, context.may_decide)
    checks = TransactionChecks(transactions, store, writer.acknowledgement, producers, rules, clock)
    ends = TransactionHandler(transactions, store, writer.acknowledgement, rules, clock, context.permit)
    timers = context.part(DelayPart).intake
    books = await _books(context, transactions)
    part = TransactionPart(
        routes={**ends.routes(), **books.routes},
        kinds=(HalfMessages(store, transactions, timers, context.targets.rules),),
        open=transactions,
        globals=books.globals,
    )
    if not context.is_slave:  # the master checks and settles
        store.retention.guards.append(checks.rescue)
        part.tasks = [checks.run, checks.keep, *books.tasks]
        part.close = [transactions.save_progress]
    return part


@dataclass(kw_only=True)
class _Books(Part):
    globals: GlobalTransactionHandler


async def _books(context: Context, transactions: OpenTransactions) -> _Books:
    """Builds the ledger and the book of global transactions, which settle their messages together."""
    name, store, clock = context.broker_name, context.store, context.clock
    writer, timers = context.writer, context.part(DelayPart).intake
    books = LedgerBooks(name)
    written = ChangeLog(books, store, writer, clock)
    globals = GlobalBook()
    global_written = ChangeLog(globals, store, writer, clock)
    if not context.is_slave:
        for one in (written, global_written):
            await one.reopen()
            store.retention.guards.append(one.rescue)
    local = LocalBooks(books, written, globals, global_written)
    homes = BookHomes(local, name, context.client, context.config().name_servers.addresses, clock)
    settlement = Settlement(
        transactions, store, homes, lambda: check_rules(context.config()).interval_s, clock
    )
    expiry = BookExpiry(
        books, written, settlement, lambda: context.config().transactions.id_retention_hours, clock
    )
    requests = LedgerHandler(books, written, local, settlement, store, writer.acknowledgement)
    sends = LedgerSendHandler(local, name, transactions, context.targets, timers, writer, store, clock)
    upkeep = GlobalUpkeep(globals, global_written, settlement.soon, clock)
    global_requests = GlobalTransactionHandler(
        globals, global_written, local.is_home, settlement.soon, upkeep.notice, clock
    )
    return _Books(
        routes={**requests.routes(), **sends.routes(), **global_requests.routes()},
        tasks=[settlement.run, expiry.run, upkeep.run],
        globals=global_requests,
    )
