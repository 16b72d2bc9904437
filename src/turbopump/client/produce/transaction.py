"""Transactions of a producer: consumers see a message only when the local work has been done.

In: a message and the user's work. Out: a half message, which no consumer sees, and then its end: commit or
rollback. When a process dies in between, the broker asks a producer of the group later, whose `check` says
how the transaction ended. What a broker does with the answer is not known here.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.message import Message, MessageExt, MessageQueue, SendResult
from turbopump.client.produce.sender import Sender
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import BrokenRecord, refusal
from turbopump.protocol.headers.send import CheckTransactionStateRequest, EndTransactionRequest
from turbopump.protocol.ids import parse_offset_id
from turbopump.protocol.record import Record
from turbopump.protocol.sysflag import COMMIT, NOT_TRANSACTIONAL, ROLLBACK
from turbopump.remoting.connection import Connection
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

ONE_WAY = 2


class Decision(Enum):
    """How a transaction ends. UNKNOWN leaves it open: the broker asks again."""

    COMMIT = COMMIT
    ROLLBACK = ROLLBACK
    UNKNOWN = NOT_TRANSACTIONAL


Check: TypeAlias = Callable[[MessageExt], Decision | Awaitable[Decision | None] | None]
"""Returns how a transaction of the group ended, whichever process of the group began it."""

Execute: TypeAlias = Callable[[Message], Decision | Awaitable[Decision | None] | None]
"""Does the local work and returns how the transaction ends; None is UNKNOWN."""


class TransactionResult(msgspec.Struct, frozen=True):
    """The result of `send_in_transaction`: receipt of the half message, decision, failure of `execute`."""

    receipt: SendResult
    """The receipt of the half message."""
    decision: Decision
    failure: Exception | None = None
    """The exception that `execute` raised: then the decision is UNKNOWN."""


Prepare: TypeAlias = Callable[[Message, int | None], Awaitable[SendResult]]
"""Stores a half message."""

End: TypeAlias = Callable[[Message, SendResult, Decision], Awaitable[bool]]
"""Ends a transaction; False: the broker cannot be reached, and will ask. Raises Refused."""


class AsyncTransaction:
    """A half message and its end. Made by `producer.transaction(message)`:

        async with producer.transaction(Message("OrderTopic", b"paid", keys="A-1")) as transaction:
            await pay("A-1")

    The half message is stored at the beginning of the block. At its end the message is committed; when the
    block raises an exception, it is rolled back. A process that dies or is cancelled in the block leaves the
    transaction open: then the broker asks `check` of a producer of the group.
    """

    def __init__(self, prepare: Prepare, end: End, message: Message, check_after: int | None) -> None:
        self.message = message
        self._prepare = prepare
        self._end = end
        self._check_after = check_after
        self._receipt: SendResult | None = None
        self.decision: Decision | None = None
        """How it ended; None: it is still open."""
        self.is_confirmed = False
        """Whether the broker has confirmed the decision. If not, it will ask."""

    @property
    def receipt(self) -> SendResult:
        """The receipt of the half message. Raises NotRunning before the transaction has begun."""
        if self._receipt is None:
            raise NotRunning("the transaction has not begun: call `begin`, or enter its block")
        return self._receipt

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.decision is not None:
            return
        if error is None:
            await self.commit()
        elif isinstance(error, Exception):
            await self.rollback()

    async def begin(self) -> SendResult:
        """Stores the half message and returns its receipt. Raises what `send` raises, and NotPrepared."""
        if self._receipt is not None:
            raise InvalidArgument("the transaction was begun before: make a new one for each message")
        self._receipt = await self._prepare(self.message, self._check_after)
        return self._receipt

    async def commit(self) -> None:
        """Commits: consumers see the message. A broker not reached asks later. Refused if rolled back."""
        await self.end(Decision.COMMIT)

    async def rollback(self) -> None:
        """Rolls back: no consumer sees the message; a broker not reached asks later. Refused if committed."""
        await self.end(Decision.ROLLBACK)

    async def unknown(self) -> None:
        """Leaves the transaction open: the broker will ask a producer of the group how it ended."""
        await self.end(Decision.UNKNOWN)

    async def end(self, decision: Decision) -> None:
        """Tells the broker the decision; without a confirmation the broker will ask. Raises Refused."""
        self.is_confirmed = await self._end(self.message, self.receipt, decision)
        self.decision = decision


async def tell(sender: Sender, topic: str, receipt: SendResult, decision: Decision, timeout_s: float) -> bool:
    """Tells the broker how a transaction ends; True: confirmed, False: the broker will ask. Raises Refused.

    False means that the broker could not be reached, or that the decision is UNKNOWN.
    """
    broker = receipt.queue.broker
    request = end_request(sender.group, topic, receipt, decision)
    try:
        address = (await sender.route(topic, timeout_s)).master(broker)
        if address is None:
            raise ConnectionError(f"broker {broker} has no master")
        if decision is Decision.UNKNOWN:
            await sender.calls.send_oneway(address, request, timeout_s)
            return False
        answer = await sender.calls.call(address, request, timeout_s)
    except OSError as error:
        text = "Cannot tell broker %s that transaction %s ends by %s; the broker will ask: %s"
        log.warning(text, broker, receipt.message_id, decision.name, error)
        return False
    if answer.code:
        raise refusal(answer.code, answer.remark)
    return True


def end_request(group: str, topic: str, receipt: SendResult, decision: Decision) -> Command:
    """Returns the request by which a producer ends its transaction (37); one-way for UNKNOWN."""
    header = EndTransactionRequest(
        producerGroup=group,
        tranStateTableOffset=receipt.offset,
        commitLogOffset=parse_offset_id(receipt.offset_message_id)[2],
        commitOrRollback=decision.value,
        msgId=receipt.message_id,
        fromTransactionCheck=False,
        transactionId=receipt.message_id,
        topic=topic,
        bname=receipt.queue.broker,
    )
    return _request(header, decision is Decision.UNKNOWN)


def answer_request(
    group: str, asked: CheckTransactionStateRequest, half: Record, decision: Decision
) -> Command:
    """Returns the one-way request (37) that answers the check of a half message by its broker (39).

    It has the offsets of the copy that the broker asked about.
    """
    unique_key = properties.find(half.properties, properties.UNIQUE_KEY) or asked.msgId or ""
    header = EndTransactionRequest(
        producerGroup=group,
        tranStateTableOffset=asked.tranStateTableOffset,
        commitLogOffset=asked.commitLogOffset,
        commitOrRollback=decision.value,
        msgId=unique_key,
        fromTransactionCheck=True,
        transactionId=asked.transactionId,
        topic=half.topic,
        bname=asked.bname,
    )
    return _request(header, one_way=True)


def _request(header: EndTransactionRequest, one_way: bool) -> Command:
    flag = ONE_WAY if one_way else 0
    return Command(RequestCode.END_TRANSACTION, ext=header.to_ext(), flag=flag)


async def decided(function: Callable[..., Any], argument: object) -> Decision:
    """Calls the user's function (`async def` on the loop, `def` in a thread) and returns its decision."""
    if inspect.iscoroutinefunction(function):
        said = await function(argument)
    else:
        said = await asyncio.to_thread(function, argument)
        if inspect.isawaitable(said):
            said = await said
    return as_decision(said)


def as_decision(said: object) -> Decision:
    """Returns what a user's function returned as a Decision; None is UNKNOWN. Raises InvalidArgument."""
    if said is None:
        return Decision.UNKNOWN
    if not isinstance(said, Decision):
        raise InvalidArgument(
            f"the function must return a Decision, got {said!r}: return Decision.COMMIT or ROLLBACK"
        )
    return said


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A broker's question how a transaction ended, and the connection to answer on."""

    asked: CheckTransactionStateRequest
    half: Record
    connection: Connection


@dataclass
class CheckResponder:
    """Answers brokers' checks of a group's transactions by `check`; limits how many run and wait."""

    group: str
    check: Check | None
    max_concurrent: int
    max_waiting: int
    namespace: str = ""
    decompresses: bool = True
    on_answered: Callable[[MessageExt, CheckTransactionStateRequest, str, Decision], None] | None = None
    """Called after each answer, with the address of the broker that got it."""
    _tasks: Tasks = field(default_factory=lambda: Tasks(log))
    _turns: asyncio.Semaphore | None = None

    def answer(self, question: CheckRequest) -> None:
        """Starts to answer a check in the background; ignores it without `check` or if too many wait."""
        if self.check is None:
            log.warning(
                "A broker asks how a transaction of group %s ended, but this producer has no check=: %s",
                self.group,
                question.asked.msgId,
            )
        elif len(self._tasks) >= self.max_waiting:
            log.warning(
                "Too many transaction checks wait (%d): ignoring one, the broker will ask again",
                len(self._tasks),
            )
        else:
            self._tasks.start(self._answer(question, self.check), name="answer a transaction check")

    async def _answer(self, question: CheckRequest, check: Check) -> None:
        self._turns = self._turns or asyncio.Semaphore(self.max_concurrent)
        half = question.half
        queue = MessageQueue(half.topic, question.asked.bname or "", half.queue_id)
        message = MessageExt(half, queue, namespace=self.namespace, decompresses=self.decompresses)
        async with self._turns:
            try:
                decision = await decided(check, message)
            except Exception:
                log.exception("The check of transaction %s failed; it stays open", message.message_id)
                decision = Decision.UNKNOWN
        if not question.connection.is_closing:
            request = answer_request(self.group, question.asked, half, decision)
            question.connection.send_oneway(request)
            if self.on_answered is not None:
                host, port = question.connection.peer[:2]
                self.on_answered(message, question.asked, f"{host}:{port}", decision)

    async def close(self) -> None:
        """Cancels the checks that run, unanswered: brokers ask other producers of the group."""
        await self._tasks.close()


def group_of(half: Record) -> str:
    """Returns the producer group of a half message. Raises BrokenRecord when it names none."""
    group = properties.find(half.properties, properties.PRODUCER_GROUP)
    if group is None:
        raise BrokenRecord("the half message names no producer group")
    return group
