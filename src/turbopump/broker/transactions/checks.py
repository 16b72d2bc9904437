"""Checks open transactions in rounds: asks their producers for commit or rollback, until they expire.

In: the time, and the open half messages. Out: renewed copies and check requests about them (39), expired
transactions, and the saved progress. A request names the renewed copy, so each leaves one more half record
behind, as Apache's do. When no producer of the group is connected, no request is sent and none is counted.

A round goes in short turns between other work. A failure with one transaction stops neither the others nor
the progress.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from turbopump.broker.acknowledgement import Acknowledgement
from turbopump.broker.config import BrokerConfig
from turbopump.broker.groups.members import Members
from turbopump.broker.storage import Storage
from turbopump.broker.transactions import records as forms
from turbopump.broker.transactions.halves import NEVER_MS, CheckRules, CheckStep, OpenHalf, step
from turbopump.broker.transactions.transactions import OpenTransactions
from turbopump.protocol import properties, record
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import MessageIllegal, Refused
from turbopump.protocol.headers.send import CheckTransactionStateRequest
from turbopump.protocol.ids import offset_id
from turbopump.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from turbopump.protocol.record import Record
from turbopump.remoting.connection import Connection
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

FIRST_ROUND_S = 10.0  # after the start: producers reconnect first
HALVES_PER_TURN = 64  # about 2 ms
FAR_BEHIND_BYTES = 256 << 20  # of the log that a start has to read because of the oldest half message
SAVE_INTERVAL_S = 5.0  # of the progress
HOUR_MS = 3_600_000
TROUBLE_LINES_PER_MINUTE = 5


def check_rules(config: BrokerConfig) -> CheckRules:
    """Returns the rules of transaction checks (timeouts, maximum, interval) from the configuration."""
    kept = config.transactions
    lifetime_ms = config.store.file_reserved_hours * HOUR_MS
    return CheckRules(kept.timeout_ms, kept.check_most, lifetime_ms, kept.check_interval_ms / 1000)


class Deciders(Protocol):
    """Interface to the producers that are asked whether a transaction commits or rolls back."""

    def can_ask(self, half: Record) -> bool:
        """Returns whether a producer of the half message's group is connected and can be asked."""

    def ask(self, half: Record) -> None:
        """Sends a producer a check request (39) about a renewed half message; does not wait for an answer."""


class TransactionChecks:
    """Asks producers about open transactions, expires those asked about too often, rewrites old halves."""

    def __init__(
        self,
        transactions: OpenTransactions,
        store: Storage,
        acknowledgement: Acknowledgement,
        deciders: Deciders,
        rules: Callable[[], CheckRules],
        clock: Clock,
    ) -> None:
        self._transactions = transactions
        self._halves = transactions.halves
        self._store = store
        self._acknowledgement = acknowledgement
        self._deciders = deciders
        self._rules = rules
        self._clock = clock
        self._trouble = RateLimitedLog(log, 60.0, logging.ERROR, TROUBLE_LINES_PER_MINUTE)

    async def run(self) -> None:
        """Runs a round of checks every transactionCheckInterval, until cancelled."""
        # By the loop, as delays and timers do: users wait for checks, and a clock may stretch short sleeps
        # (`testing.servers.StretchedClock`).
        await asyncio.sleep(min(FIRST_ROUND_S, self._rules().interval_s))
        while True:
            await self.round()
            await asyncio.sleep(self._rules().interval_s)

    async def keep(self) -> None:
        """Saves the progress of transactions every `SAVE_INTERVAL_S`, until cancelled."""
        while True:
            await self._clock.sleep(SAVE_INTERVAL_S)
            try:
                await self._transactions.save_progress()
            except Exception as error:
                self._log("Cannot save the progress of transactions; retrying", error)

    async def round(self) -> None:
        """Checks each transaction that is open now once: asks a producer, renews, expires or leaves it.

        One that is decided meanwhile is left alone. Ends early when the store refuses messages.
        """
        left = iter(self._halves.all())
        while some := list(islice(left, HALVES_PER_TURN)):
            await self._warm(some)
            for half in some:
                try:
                    self._check(half)
                except MessageIllegal as refused:
                    self._log(f"Cannot renew the half message {half.offset}: {refused.remark}")
                except Refused as refused:
                    self._log(f"Cannot check transactions; retrying in the next round: {refused.remark}")
                    return
                except Exception as error:  # a defect: the others must not wait behind it
                    self._log(
                        f"Cannot check the half message {half.offset}; retrying in the next round", error
                    )
            await asyncio.sleep(0)

    def _check(self, half: OpenHalf) -> None:
        if not self._halves.is_open(half) or half.at >= self._store.log.committed:
            return
        is_far = self._store.log.end - half.at > FAR_BEHIND_BYTES
        if half.due_ms == NEVER_MS and not is_far:
            return  # a ledger decides: it is not even read, there may be a million of them
        found = self._store.log.look_up(half.at)
        if found is None:
            self._log(f"Cannot read the half message {half.offset}; skipping it")
            self._transactions.expire(half, None)
            return
        asked = forms.asked(found)
        what = step(asked, found.born_timestamp, half.due_ms, is_far, self._clock.now_ms(), self._rules())
        if what is CheckStep.ASK and not self._deciders.can_ask(found):
            what = CheckStep.MOVE if is_far else CheckStep.WAIT
        self._do(what, half, found, asked)

    def _do(self, what: CheckStep, half: OpenHalf, found: Record, asked: int) -> None:
        if what is CheckStep.EXPIRE:
            self._transactions.expire(half, found)
            log.error(given_up(found, asked))
        elif what is CheckStep.MOVE:
            self._transactions.renew(half, found, asked)
        elif what is CheckStep.ASK:
            _, copy = self._transactions.renew(half, found, asked + 1)
            self._deciders.ask(copy)

    async def rescue(self, below: int) -> bool:
        """Rewrites open half messages below physical offset `below`. True: none is left there.

        Called before the log deletes the file up to that offset. False, also when the copies are not on disk:
        the log must keep the file.
        """
        try:
            for half in self._halves.below(below):
                await self._warm([half])
                if self._halves.is_open(half):
                    self._rewrite(half)
        except Refused as refused:
            words = "Cannot rewrite open transactions; keeping their file of the log"
            self._log(f"{words}: {refused.remark}")
            return False
        return await self._acknowledgement.on_disk(self._store.log.end)

    def _rewrite(self, half: OpenHalf) -> None:
        found = self._store.log.look_up(half.at)
        try:
            if found is None:
                raise MessageIllegal("it cannot be read")
            self._transactions.rewrite(half, found)
        except MessageIllegal as refused:
            self._log(f"The half message {half.offset} is lost with its file: {refused.remark}")
            self._transactions.expire(half, None)

    async def _warm(self, halves: list[OpenHalf]) -> None:
        """Reads the records of half messages into memory in a thread, so that the loop is not blocked."""
        entries = (self._transactions.half_queue.entry(half.offset) for half in halves)
        await self._store.reader.bring(entry[:2] for entry in entries if entry is not None)

    def _log(self, words: str, error: BaseException | None = None) -> None:
        self._trouble.log(self._clock.monotonic(), "%s", words, exc_info=error)


def given_up(half: Record, asked: int) -> str:
    """Returns the log line about a transaction that expired after `asked` checks."""
    pairs = half.property_map()
    topic, group, unique_key = (
        _printable(pairs.get(name, ""))
        for name in (properties.REAL_TOPIC, properties.PRODUCER_GROUP, properties.UNIQUE_KEY)
    )
    message_id = unique_key or offset_id(half.store_host, half.physical_offset)
    return (
        f"Transaction given up after {asked} checks, its message is not delivered: topic {topic}, message id "
        f"{message_id}, producer group {group}. It is kept in {CHECK_MAX_TIME_TOPIC}; "
        f"`turbopump transactions resume --id {message_id}` asks the group again"
    )


def _printable(text: str) -> str:
    """Returns `text` as it is if printable, else its `repr`, so that it cannot fake a line of the log."""
    return text if text.isprintable() else repr(text)


class TransactionProducers:
    """`Deciders` that asks the connected producers of a half message's group in turn, if they may decide."""

    def __init__(
        self,
        members: Members[Connection],
        broker_name: str,
        may_decide: Callable[[Connection, Record], bool],
    ) -> None:
        self._members = members
        self._broker_name = broker_name
        self._may_decide = may_decide
        self._turn = 0

    def can_ask(self, half: Record) -> bool:
        return self._next(half) is not None

    def ask(self, half: Record) -> None:
        connection = self._next(half)
        if connection is not None:
            self._turn += 1
            connection.send_oneway(question(half, self._broker_name))

    def _next(self, half: Record) -> Connection | None:
        group = properties.find(half.properties, properties.PRODUCER_GROUP) or ""
        there = [member.connection for member in self._members.producer_group(group)]
        able = [one for one in there if not (one.is_closing or one.saturated) and self._may_decide(one, half)]
        return able[self._turn % len(able)] if able else None


def question(half: Record, broker_name: str) -> Command:
    """Returns the check request (39) that asks a producer how the transaction of a half message ends."""
    pairs = half.property_map()
    unique_key = pairs.get(properties.UNIQUE_KEY)
    queue_id = forms.number(pairs.get(properties.REAL_QUEUE_ID)) or 0
    shown = forms.in_check(half, pairs.get(properties.REAL_TOPIC, ""), queue_id)
    header = CheckTransactionStateRequest(
        tranStateTableOffset=half.queue_offset,
        commitLogOffset=half.physical_offset,
        topic=HALF_TOPIC,
        msgId=unique_key,
        transactionId=pairs.get(properties.TRANSACTION_ID, unique_key),
        offsetMsgId=offset_id(half.store_host, half.physical_offset),
        bname=broker_name,
    )
    return Command(RequestCode.CHECK_TRANSACTION_STATE, ext=header.to_ext(), body=record.encode(shown))
