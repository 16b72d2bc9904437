"""Handles commit or rollback of a transaction (37), and the resumption of an expired one (323).

In: a decision about a half message. Out: the decision carried out and answered, or a refusal. The first
decision counts. The same one again is answered with success and nothing is stored; the other one is refused,
with the decision in the remark. Apache accepts both, and then has the message twice, or after a rollback.

Whether a transaction that is not open has been decided, and how, is looked up: among the latest decisions,
in the index of op records, and for stores that Apache wrote, or without an index, in the op queue itself.
"""

import asyncio
from collections.abc import Awaitable, Callable

from turbopump.broker.acknowledgement import Acknowledgement, Safety
from turbopump.broker.storage import Storage
from turbopump.broker.transactions import records as forms
from turbopump.broker.transactions.halves import CheckRules, HalfDecision, OpenHalf, immunity_ms
from turbopump.broker.transactions.ledger.stamps import stamp_of
from turbopump.broker.transactions.recovery import records
from turbopump.broker.transactions.transactions import OpenTransactions
from turbopump.guard.link import Permit, permit_all
from turbopump.protocol import properties, record
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import NOT_SET, Command, reply
from turbopump.protocol.errors import IllegalOperation, SystemFailure
from turbopump.protocol.headers.send import EndTransactionRequest, ResumeCheckHalfMessageRequest
from turbopump.protocol.ids import parse_offset_id
from turbopump.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from turbopump.protocol.record import Record
from turbopump.protocol.sysflag import COMMIT, NOT_TRANSACTIONAL, ROLLBACK
from turbopump.remoting.router import Answer, Request, Result, Route, Routes
from turbopump.runtime.clock import Clock

DECISIONS = {COMMIT: HalfDecision.COMMIT, ROLLBACK: HalfDecision.ROLLBACK}
MAX_RECORDS_PER_KEY = 32
POLL_S, MAX_POLLS = 0.05, 60  # for a record that is not committed yet
MAX_SEARCHES = 4  # concurrent long searches


class TransactionHandler:
    """Handles commits and rollbacks by producers, and requests to resume expired transactions."""

    def __init__(
        self,
        transactions: OpenTransactions,
        store: Storage,
        acknowledgement: Acknowledgement,
        rules: Callable[[], CheckRules],
        clock: Clock,
        permit: Permit = permit_all,
    ) -> None:
        """`permit` is asked about half messages that requests name."""
        self._transactions = transactions
        self._store = store
        self._acknowledgement = acknowledgement
        self._rules = rules
        self._clock = clock
        self._permit = permit
        self._searching = asyncio.Semaphore(MAX_SEARCHES)

    def routes(self) -> Routes:
        return {
            RequestCode.END_TRANSACTION: Route(EndTransactionRequest, self.end),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: Route(ResumeCheckHalfMessageRequest, self.resume),
        }

    def end(self, request: Request[EndTransactionRequest]) -> Result | Awaitable[Result]:
        said = request.header.commitOrRollback
        if said == NOT_TRANSACTIONAL:
            return None  # unknown: no answer, as in Apache; the producer will be asked
        decision = DECISIONS.get(said)
        if decision is None:
            raise SystemFailure(f"commitOrRollback field wrong: {said}")
        if self._store.log.committed <= request.header.commitLogOffset < self._store.log.end:
            return self._end_when_readable(request, decision)
        return self._end(request, decision)

    def _end(
        self, request: Request[EndTransactionRequest], decision: HalfDecision
    ) -> Result | Awaitable[Result]:
        half_record = self._quoted(request.header)
        self._permit(request, half_record)
        half = self._transactions.halves.find(forms.root(half_record))
        if half is not None:
            return self._settle(request, half_record, half, decision)
        known = self._transactions.decision(forms.root(half_record))
        if known is not None:
            return _again(request.command, known, decision)
        return self._search_and_end(request, half_record, decision)

    async def _end_when_readable(
        self, request: Request[EndTransactionRequest], decision: HalfDecision
    ) -> Result:
        """Waits until the half record is readable, at most 3 s, then ends its transaction.

        With a transient pool it becomes readable shortly after the send.
        """
        for _ in range(MAX_POLLS):
            if request.header.commitLogOffset < self._store.log.committed:
                break
            await self._clock.sleep(POLL_S)
        ended = self._end(request, decision)
        return await ended if isinstance(ended, Awaitable) else ended

    def _quoted(self, header: EndTransactionRequest) -> Record:
        """Returns the half record that a request names, or raises, by Apache's checks in their order.

        Raises SystemFailure, or IllegalOperation when the producer may not decide.
        """
        found = self._store.log.look_up(header.commitLogOffset)
        if found is None or found.topic != HALF_TOPIC:
            raise SystemFailure("Find prepared transaction message failed")
        if stamp_of(found.properties) is not None:
            raise IllegalOperation("a ledger decides about this half message, with all of its batch")
        self._refuse_late(header, found)
        if properties.find(found.properties, properties.PRODUCER_GROUP) != header.producerGroup:
            raise SystemFailure("The producer group wrong")
        if found.queue_offset != header.tranStateTableOffset:
            raise SystemFailure("The transaction state table offset wrong")
        return found

    def _refuse_late(self, header: EndTransactionRequest, found: Record) -> None:
        wish = properties.find(found.properties, properties.CHECK_IMMUNITY_TIME_IN_SECONDS)
        if header.fromTransactionCheck or not wish:
            return
        if self._clock.now_ms() - found.born_timestamp > immunity_ms(wish, self._rules().timeout_ms):
            raise IllegalOperation("the time of the half message is up: its producer will be asked")

    def _settle(
        self,
        request: Request[EndTransactionRequest],
        quoted: Record,
        half: OpenHalf | None,
        decision: HalfDecision,
    ) -> Command | None:
        """Commits or rolls back a transaction in the log and answers; None: answered when that is safe.

        `quoted` may be an older copy than the open record `half`; without `half` the transaction had expired.
        """
        current = quoted
        if half is not None and half.at != quoted.physical_offset:
            newer = self._store.log.look_up(half.at)
            if newer is None:
                raise SystemFailure("Find prepared transaction message failed")
            current = newer
        at, _, size = self._transactions.settle(current, half, decision)
        command = request.command
        if command.is_oneway:
            return _done(command, decision)

        def answer(safety: Safety) -> Command:
            return _done(command, decision) if safety.is_safe else reply(command, safety.code)

        return self._acknowledgement.answer(request, at + size, len(command.body), answer)

    async def _search_and_end(
        self, request: Request[EndTransactionRequest], quoted: Record, decision: HalfDecision
    ) -> Command | None:
        """Ends a transaction that is not open if it had expired; if decided before, answers by that decision.

        The decision is searched in the log. If there is none, the transaction is ended now.
        """
        roots = self._roots(quoted)
        async with self._searching:
            found = await self._search(quoted, roots, decision)
        known = next(filter(None, map(self._transactions.decision, roots)), found)
        if known is not None:
            return _again(request.command, known, decision)
        half = next(filter(None, map(self._transactions.halves.find, roots)), None)
        return self._settle(request, quoted, half, decision)

    def _roots(self, quoted: Record) -> list[int]:
        """Returns the roots that the transaction of a half record may have, its own first.

        Apache's copies name none, but have its unique key and born time.
        """
        copies = (record.decode(one) for one in self._by_key(HALF_TOPIC, quoted.unique_key or ""))
        same = (copy for copy in copies if copy.born_timestamp == quoted.born_timestamp)
        return list(dict.fromkeys([forms.root(quoted), *map(forms.root, same)]))

    async def _search(self, quoted: Record, roots: list[int], asked: HalfDecision) -> HalfDecision | None:
        keys = [forms.op_key(root) for root in roots]
        ops = [record.decode(one) for key in keys for one in self._by_key(OP_HALF_TOPIC, key)]
        if ops:
            return _final(ops)
        queue = self._store.queues.find(OP_HALF_TOPIC, quoted.queue_id)
        if queue is None:
            return None
        places = {quoted.queue_offset, *roots} if quoted.topic == HALF_TOPIC else set()
        async for op in records(self._store, queue, queue.first_at_or_after(quoted.physical_offset)):
            said = forms.decision_of(op)
            if said is None and not places.isdisjoint(forms.named_by(op)):
                return self._of_apache(quoted, asked)
            if said is not None and said.is_final and op.keys in keys:
                return said
        return None

    def _of_apache(self, quoted: Record, asked: HalfDecision) -> HalfDecision:
        """Returns how Apache's broker ended a transaction, by whether its message exists; `asked` if unknown.

        Returns `asked` when that cannot be found out.
        """
        place, key = self._transactions.target(quoted), quoted.unique_key
        if self._store.index is None or place is None or key is None:
            return asked  # it has ended, but not known how
        copies = [record.decode(one) for one in self._by_key(place[0], key)]
        was_committed = any(forms.is_commit_of(quoted, copy) for copy in copies)
        return HalfDecision.COMMIT if was_committed else HalfDecision.ROLLBACK

    def _by_key(self, topic: str, key: str) -> list[bytes]:
        return (
            self._store.queries.query(topic, key, 0, self._clock.now_ms() + 1, MAX_RECORDS_PER_KEY).records
            if key
            else []
        )

    async def resume(self, request: Request[ResumeCheckHalfMessageRequest]) -> Answer:
        """Resumes the checks of an expired transaction, by its offset id; refuses one open or decided."""
        _, _, at = parse_offset_id(request.header.msgId or "")
        expired = self._store.log.look_up(at)
        if expired is None or expired.topic != CHECK_MAX_TIME_TOPIC:
            raise SystemFailure(f"no expired half message at {at}")
        self._permit(request, expired)
        root = forms.named_root(expired)
        if root is not None:  # otherwise Apache wrote it, and only its producer can know
            async with self._searching:
                found = await self._search(expired, [root], HalfDecision.COMMIT)
            if self._transactions.halves.find(root) is not None:
                raise IllegalOperation("the transaction is open: its producers will be asked")
            decided = self._transactions.decision(root) or found
            if decided is not None:
                raise IllegalOperation(f"the transaction has ended before, by {decided.value}")
        self._transactions.resume(expired)
        return Answer()


def _final(ops: list[Record]) -> HalfDecision | None:
    said = (forms.decision_of(op) for op in ops)
    return next((one for one in said if one is not None and one.is_final), None)


def _again(request: Command, known: HalfDecision, asked: HalfDecision) -> Command:
    if known is not asked:
        raise IllegalOperation(f"the transaction has ended before, by {known.value}")
    return _done(request, asked)


def _done(request: Command, decision: HalfDecision) -> Command:
    return reply(request, remark=NOT_SET if decision is HalfDecision.ROLLBACK else None)
