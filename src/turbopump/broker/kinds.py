"""The kinds of message that are not delivered as they come: delay levels, timers, transactions, the ledger.

Builds their parts, lets them read what is open before anybody is served, and gives retention their guards, so
that nothing is deleted while it waits. In: the ground they all stand on. Out: the parts.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from turbopump.broker.config import BrokerConfig
from turbopump.broker.delay.level_records import DelaySchedule
from turbopump.broker.delay.levels import FILE as DELAY_FILE
from turbopump.broker.delay.levels import DelayedMessages
from turbopump.broker.delay.timer_intake import TimerIntake
from turbopump.broker.delay.timers import FILE as TIMER_FILE
from turbopump.broker.delay.timers import TimedMessages
from turbopump.broker.produce.send import SendHandler
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.running import keep_running
from turbopump.broker.storage import Storage
from turbopump.broker.tables import Tables, load
from turbopump.broker.transactions.checks import TransactionChecks, TransactionProducers, check_rules
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
from turbopump.remoting.client import Client
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Workers
from turbopump.store.config_files import ConfigFiles


@dataclass(frozen=True)
class Ground:
    config: Callable[[], BrokerConfig]  # as it is now
    store: Storage
    tables: Tables
    sending: SendHandler
    writer: MessageWriter
    schedule: DelaySchedule
    timing: TimerIntake
    files: ConfigFiles
    clock: Clock
    disk: Disk
    workers: Workers
    stack: AsyncExitStack

    def rules(self) -> CheckRules:
        return check_rules(self.config())


def delays(on: Ground) -> DelayedMessages:
    delays = DelayedMessages(on.store, on.tables.topics, on.writer, on.files.save, on.workers, on.clock)
    load(on.files, DELAY_FILE, delays.load)
    delays.open()
    on.stack.push_async_callback(delays.close)
    on.schedule.on_postponed = delays.postponed
    on.store.retention.guards.append(delays.rescue)
    return delays


async def transactions(on: Ground) -> tuple[OpenTransactions, TransactionHandler]:
    """Those that are open are known before anybody is served."""
    tables = on.tables
    transactions = OpenTransactions(
        on.store,
        tables.topics,
        tables.offsets,
        on.schedule,
        on.writer,
        on.rules,
        on.clock,
        on.timing,
    )
    await reopen(on.store, transactions)
    on.sending.on_half = transactions.prepared
    on.stack.push_async_callback(transactions.save_progress)
    producers = TransactionProducers(tables.members, on.config().identity.broker_name)
    checks = TransactionChecks(
        transactions, on.store, on.writer.acknowledgement, producers, on.rules, on.clock
    )
    on.store.retention.guards.append(checks.rescue)
    keep_running(checks.run(), on.stack)
    keep_running(checks.keep(), on.stack)
    return transactions, TransactionHandler(
        transactions, on.store, on.writer.acknowledgement, on.rules, on.clock
    )


async def ledger(
    on: Ground, transactions: OpenTransactions, client: Client
) -> tuple[LedgerHandler, LedgerSendHandler]:
    """Decisions about many messages at once. All books are known before anybody is served."""
    name, store, clock = on.config().identity.broker_name, on.store, on.clock
    ledger = LedgerBooks(name)
    written = LedgerLog(ledger, store, on.writer, clock)
    await written.reopen()
    store.retention.guards.append(written.rescue)
    homes = BookHomes(ledger, name, client, on.config().name_servers.addresses, clock)
    settling = Settlement(transactions, store, homes, lambda: on.rules().interval_s, clock)
    keep_running(settling.run(), on.stack)
    hours = lambda: on.config().transactions.id_retention_hours  # noqa: E731
    keep_running(BookExpiry(ledger, written, settling, hours, clock).run(), on.stack)
    return (
        LedgerHandler(ledger, written, settling, store, on.writer.acknowledgement),
        LedgerSendHandler(ledger, name, transactions, on.sending, on.timing, on.writer, store, clock),
    )


def timers(on: Ground) -> TimedMessages:
    rules = on.config().timers
    timers = TimedMessages(
        on.store, on.tables.topics, on.writer, on.files.save, on.workers, on.clock, on.disk, rules
    )
    load(on.files, TIMER_FILE, timers.load)
    timers.open()
    if rules.enabled:
        on.stack.push_async_callback(timers.close)
        on.timing.on_postponed = timers.postponed
        on.store.retention.guards.append(timers.rescue)
    return timers
