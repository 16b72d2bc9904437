"""Builds the part for transactions: half messages, their ends and checks, and the ledger."""

from dataclasses import dataclass

from turbopump.broker.delay.part import DelayPart
from turbopump.broker.part import Context, Part
from turbopump.broker.transactions.checks import TransactionChecks, TransactionProducers, check_rules
from turbopump.broker.transactions.half_kind import HalfMessages
from turbopump.broker.transactions.halves import CheckRules
from turbopump.broker.transactions.ledger.expiry import BookExpiry
from turbopump.broker.transactions.ledger.homes import BookHomes
from turbopump.broker.transactions.ledger.ledger import LedgerBooks
from turbopump.broker.transactions.ledger.ledger_log import LedgerLog
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
    ledger = await _ledger(context, transactions)
    part = TransactionPart(
        routes={**ends.routes(), **ledger.routes},
        kinds=(HalfMessages(store, transactions, timers, context.targets.rules),),
        open=transactions,
    )
    if not context.is_slave:  # the master checks and settles
        store.retention.guards.append(checks.rescue)
        part.tasks = [checks.run, checks.keep, *ledger.tasks]
        part.close = [transactions.save_progress]
    return part


async def _ledger(context: Context, transactions: OpenTransactions) -> Part:
    name, store, clock = context.broker_name, context.store, context.clock
    writer, timers = context.writer, context.part(DelayPart).intake
    books = LedgerBooks(name)
    written = LedgerLog(books, store, writer, clock)
    if not context.is_slave:
        await written.reopen()
        store.retention.guards.append(written.rescue)
    homes = BookHomes(books, name, context.client, context.config().name_servers.addresses, clock)
    settlement = Settlement(
        transactions, store, homes, lambda: check_rules(context.config()).interval_s, clock
    )
    expiry = BookExpiry(
        books, written, settlement, lambda: context.config().transactions.id_retention_hours, clock
    )
    requests = LedgerHandler(books, written, settlement, store, writer.acknowledgement)
    sends = LedgerSendHandler(books, name, transactions, context.targets, timers, writer, store, clock)
    return Part(routes={**requests.routes(), **sends.routes()}, tasks=[settlement.run, expiry.run])
