"""Drives one state machine: carries its actions out, in order, and feeds what came of them back.

In: a machine, a journal, a way to call participants, a clock. Out: how the transaction has ended here,
and the decision as soon as it is known. The one loop for XA, 3PC, TCC and SAGA; no rule of any of them
belongs here.

The driver keeps the lease of its transaction. When it is lost, it stops at once: another client goes on.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from turbopump.protocol.errors import Fenced, Refused
from turbopump.protocol.global_transactions import (
    MAX_APPEND_BYTES,
    MAX_TEXT_BYTES,
    GlobalDecision,
    GlobalRecord,
    GlobalState,
    GlobalTransaction,
)
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks
from turbopump.transactions.distributed.journal import LEASE_S, Journal
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Decide,
    Decided,
    DecisionUnknown,
    Due,
    Finish,
    GlobalOutcome,
    Keep,
    Machine,
    MachineAction,
    MachineEvent,
    RecordEvent,
    Wait,
)
from turbopump.transactions.errors import Contradicted, Declined, InDoubt, Later, NotTried, Parked

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 30.0
"""A participant that does not answer for so long has failed: it is asked again."""
RENEW_S = LEASE_S / 3
OWN_TURN_S = 2.0
"""How long after a pause no other client may claim the transaction: one that does counts tries from 0."""
MAX_DATA_BYTES = MAX_APPEND_BYTES - 1024
"""Of what a Try or a step returns: it must fit into one record of the book."""

_REASONS = (RecordEvent.PARKED, RecordEvent.REFUSED, RecordEvent.FAILED, RecordEvent.SPLIT)
_RENEW = Due("renew the lease")

CallParticipant = Callable[[CallBranch], Awaitable[BranchAnswered]]


class Drive:
    """One global transaction on its way: `run` returns when nothing more is to be done in this process."""

    def __init__(
        self,
        gid: str,
        machine: Machine,
        journal: Journal,
        call: CallParticipant,
        clock: Clock,
        *,
        known: GlobalTransaction | None = None,
        deadline_ms: int = 0,
        brokers: Callable[[], Sequence[str]] = tuple,
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """`known`: the transaction as the journal has it, if it is open there or was claimed.

        `call` answers, or raises what the participant raised. `brokers`: those that have messages of it when
        the decision is asked for.
        """
        self.gid = gid
        self.machine = machine
        self.known = known
        self.decision = known.decision if known is not None else GlobalDecision.NONE
        self.decided = asyncio.Event()
        """Set when the decision that counts is known, or `run` has ended."""
        self.failures: Counter[str] = Counter()
        """Failed calls by branch."""
        self._journal = journal
        self._participant = call
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._brokers = brokers
        self._call_timeout_s = call_timeout_s
        self._events: asyncio.Queue[MachineEvent] = asyncio.Queue()
        self._tasks = Tasks(log)
        self._kept_ms = clock.now_ms()
        self._next_try_ms = 0
        self._error = ""
        if self.decision is not GlobalDecision.NONE:
            self.decided.set()

    def post(self, event: MachineEvent) -> None:
        """Gives the machine an event from outside: the user's block was left, a branch was registered."""
        self._events.put_nowait(event)

    async def run(self) -> Finish:
        """Drives the machine to its end. Cancelled: calls are cancelled too, and recovery does the rest."""
        try:
            self._tasks.start(self._renew(), name=f"lease of {self.gid}")
            finish = await self._carry_out(self.machine.begin())
            while finish is None:
                event = await self._events.get()
                if event is _RENEW:
                    finish = await self._keep_lease(RENEW_S / 2)
                else:
                    finish = await self._carry_out(self.machine.step(event))
            self._tell(finish)
            return finish
        finally:
            self.decided.set()
            await self._tasks.close()

    # actions

    async def _carry_out(self, actions: Iterable[MachineAction]) -> Finish | None:
        """Carries actions out in order; returns the end, if it is reached."""
        left = deque(actions)
        while left:
            match left.popleft():
                case Keep() as keep:
                    if (finish := await self._keep(keep)) is not None:
                        return finish
                case Decide() as decide:
                    left.extend(self.machine.step(await self._decide(decide)))
                case CallBranch() as call:
                    # A process that was stopped for long asks before it acts.
                    if (finish := await self._keep_lease(LEASE_S * 2 / 3)) is not None:
                        return finish
                    self._tasks.start(self._call(call), name=f"{call.phase} {call.branch} of {self.gid}")
                case Wait(seconds, of):
                    self._tasks.start(self._wait(seconds, of), name=f"{of} of {self.gid}")
                case Finish() as finish:
                    return finish
        return None

    async def _keep(self, keep: Keep) -> Finish | None:
        """Stores records. Returns the end if that is not possible: nothing that needs them may be done."""
        assert self.known is not None, f"{self.gid} is not open in the journal"
        self._error = _cut(keep.error, MAX_TEXT_BYTES)
        now_ms = self._clock.now_ms()
        self._next_try_ms = now_ms + int(1000 * keep.next_try_s) if keep.next_try_s else 0
        try:
            await self._journal.append(
                self.known,
                [_fitting(one) for one in keep.records],
                keep.state or "",
                keep.outcome,
                self._next_try_ms + int(1000 * OWN_TURN_S) if self._next_try_ms else 0,
                self._error,
            )
        except Fenced as fenced:
            log.info("Transaction %s: another client goes on with it: %s", self.gid, fenced)
            return self._stopped(str(fenced))
        except (Refused, OSError) as error:
            log.warning("Transaction %s: the journal does not take a record: %s", self.gid, error)
            return self._stopped(str(error))
        self._kept_ms = now_ms
        if keep.state is not None:
            self.known.state = keep.state
        return None

    def _stopped(self, reason: str) -> Finish:
        """Returns the end here of a transaction with which this process cannot go on."""
        outcomes = {
            GlobalDecision.NONE: GlobalOutcome.IN_DOUBT,
            GlobalDecision.COMMIT: GlobalOutcome.COMMITTED,
            GlobalDecision.ABORT: GlobalOutcome.ABORTED,
        }
        return Finish(outcomes[self.decision], reason)

    async def _decide(self, decide: Decide) -> Decided | DecisionUnknown:
        try:
            found = await self._journal.decide(
                self.gid,
                self.machine.kind,
                decide.decision,
                decide.branches,
                self._brokers(),
                self._deadline_ms,
            )
        except (InDoubt, Refused, OSError) as error:
            return DecisionUnknown(str(error))
        self._adopt(found)
        log.debug("Transaction %s: %s, decided by %s", self.gid, found.decision, found.decided_by)
        return Decided(found.decision, found.decided_by)

    def _adopt(self, found: GlobalTransaction) -> None:
        """Takes what the journal says of the decision, but no lease that belongs to another client."""
        self.decision = found.decision
        self.decided.set()
        if self.known is None:
            self.known = found
            if found.owner != self._journal.owner:
                found.lease = 0  # so that it is fenced at the next record
        else:
            self.known.state = found.state
            self.known.decision, self.known.decided_by = found.decision, found.decided_by
        self._kept_ms = self._clock.now_ms()

    # participants

    async def _call(self, call: CallBranch) -> None:
        try:
            async with asyncio.timeout(self._call_timeout_s) as limit:
                answer = await self._participant(call)
        except Exception as error:
            answer = answer_of_error(call, error)
            if limit.expired():
                answer = _answer(call, BranchVerdict.FAILED, f"no answer in {self._call_timeout_s:g} s")
        if len(answer.data.encode()) > MAX_DATA_BYTES:
            reason = f"its result must have at most {MAX_DATA_BYTES} bytes, got {len(answer.data.encode())}"
            answer = _answer(call, BranchVerdict.FAILED, reason)
        self._note(answer)
        self._events.put_nowait(answer)

    def _note(self, answer: BranchAnswered) -> None:
        """Logs the first failure of a branch, and its end with their number."""
        branch, words = answer.branch, f"{answer.phase} of branch {answer.branch}"
        if answer.verdict is BranchVerdict.FAILED:
            self.failures[branch] += 1
            if self.failures[branch] == 1:
                log.warning("Transaction %s: %s failed: %s", self.gid, words, answer.reason)
        elif answer.verdict is BranchVerdict.DONE and self.failures[branch]:
            log.info("Transaction %s: %s done after %d failures", self.gid, words, self.failures[branch])

    # time

    async def _wait(self, seconds: float, of: str) -> None:
        await self._clock.sleep(seconds)
        self._events.put_nowait(Due(of))

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(RENEW_S)
            self._events.put_nowait(_RENEW)

    async def _keep_lease(self, age_s: float) -> Finish | None:
        """Renews the lease if its last renewal is so long ago. Returns the end if another client has it.

        During a pause no other client may claim the transaction, so that no renewal is needed.
        """
        now_ms = self._clock.now_ms()
        is_held = self.known is not None and self.known.state is not GlobalState.ENDED and self.known.lease
        if not is_held or now_ms < self._next_try_ms or now_ms - self._kept_ms < 1000 * age_s:
            return None
        return await self._keep(Keep(error=self._error))

    def _tell(self, finish: Finish) -> None:
        match finish.outcome:
            case GlobalOutcome.PARKED:
                log.error("Transaction %s waits for an operator: %s", self.gid, finish.error)
            case GlobalOutcome.IN_DOUBT:
                log.warning("Transaction %s is in doubt: %s", self.gid, finish.error)
            case _:
                log.debug("Transaction %s: %s %s", self.gid, finish.outcome, finish.error)


def answer_of_error(
    call: CallBranch, error: Exception, final: tuple[type[Exception], ...] = ()
) -> BranchAnswered:
    """Returns what an exception of a participant means. `final`: more exceptions that mean No."""
    reason = str(error) or type(error).__name__
    if isinstance(error, Later):
        return BranchAnswered(
            call.branch, call.phase, BranchVerdict.LATER, reason=reason, after_s=error.seconds
        )
    if isinstance(error, Declined) or (final and isinstance(error, final)):
        return _answer(call, BranchVerdict.REFUSED, reason)
    if isinstance(error, (Parked, NotTried, Contradicted)):
        return _answer(call, BranchVerdict.PARK, reason)
    log.debug("%s of branch %s failed", call.phase, call.branch, exc_info=error)
    return _answer(call, BranchVerdict.FAILED, f"{type(error).__name__}: {reason}")


async def drive(
    gid: str,
    machine: Machine,
    journal: Journal,
    call: CallParticipant,
    clock: Clock,
    known: GlobalTransaction | None = None,
) -> Finish:
    """Drives a machine that needs nothing from outside, such as one resumed after a claim."""
    return await Drive(gid, machine, journal, call, clock, known=known).run()


def _answer(call: CallBranch, verdict: BranchVerdict, reason: str) -> BranchAnswered:
    return BranchAnswered(call.branch, call.phase, verdict, reason=reason)


def _fitting(record: GlobalRecord) -> GlobalRecord:
    """Returns the record, with the reason of a failure cut to what is shown of it."""
    if record.event not in _REASONS:
        return record
    return GlobalRecord(record.event, record.branch, _cut(record.data, MAX_TEXT_BYTES))


def _cut(text: str, size: int) -> str:
    """Returns the beginning of a text that has at most so many bytes."""
    encoded = text.encode()
    return text if len(encoded) <= size else encoded[:size].decode(errors="ignore")
