"""Transactions of the blocking producer, written by hand: the local work runs in the caller's thread.

A database connection may be bound to its thread, so the work must not move to another one. Storing the half
message and ending the transaction block, as everything here does.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from turbopump.client.blocking.face import Face
from turbopump.client.message import Message, SendResult
from turbopump.client.produce.producer import Producer
from turbopump.client.produce.transaction import AsyncTransaction, Decision, TransactionResult, as_decision


class ProducerFace(Face[Producer]):
    """Base of the blocking producer with its methods for transactions."""

    def transaction(self, message: Message, *, check_after: int | None = None) -> "Transaction":
        """Returns a transaction: the end of its `with` block commits the message, an exception rolls it back:

            with producer.transaction(Message("OrderTopic", b"paid", keys="A-1")):
                pay("A-1")

        The transaction's own `commit`, `rollback` and `unknown` end it earlier, and `receipt` names the place
        of the half message. When the process dies in the block, brokers ask producers of the group how it
        ended: the function given as `Producer(…, check=…)` looks it up and returns a Decision.

        `check_after`: seconds before the broker asks, when the work takes longer than its
        `transactionTimeOut` (6 s). A message with a delay level cannot be sent in a transaction.
        """
        return Transaction(self, self._call(lambda core: core.transaction(message, check_after=check_after)))

    def send_in_transaction(
        self,
        message: Message,
        execute: Callable[[Message], Decision | None],
        *,
        check_after: int | None = None,
    ) -> TransactionResult:
        """Stores the half message, calls `execute(message)` in this thread, and ends the transaction.

        `execute` does the local work and returns a Decision. None and an exception count as UNKNOWN: the
        broker will ask `check`.
        """
        transaction = self.transaction(message, check_after=check_after)
        receipt = transaction.begin()
        failure: Exception | None = None
        try:
            decision = as_decision(execute(message))
        except Exception as error:
            decision, failure = Decision.UNKNOWN, error
        transaction.end(decision)
        return TransactionResult(receipt, decision, failure)


class Transaction:
    """One transaction of a blocking producer. Made by `producer.transaction(message)`."""

    def __init__(self, producer: ProducerFace, core: AsyncTransaction) -> None:
        self._producer = producer
        self._core = core

    @property
    def message(self) -> Message:
        return self._core.message

    @property
    def receipt(self) -> SendResult:
        """The receipt of the stored half message. Raises NotRunning before `begin`."""
        return self._core.receipt

    @property
    def decision(self) -> Decision | None:
        """The last decision given to `end`, also UNKNOWN, unless the broker refused it; None: none yet."""
        return self._core.decision

    @property
    def is_confirmed(self) -> bool:
        """Whether the broker has confirmed the decision; if not, the broker will ask `check`."""
        return self._core.is_confirmed

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer._run(lambda _: self._core.__aexit__(kind, error, trace))

    def begin(self) -> SendResult:
        """Stores the half message and returns its receipt. Raises what `send` raises, and NotPrepared."""
        return self._producer._run(lambda _: self._core.begin())

    def commit(self) -> None:
        """Commits: consumers see the message. A broker not reached asks later. Refused if rolled back."""
        self.end(Decision.COMMIT)

    def rollback(self) -> None:
        """Rolls back: no consumer sees the message; a broker not reached asks later. Refused if committed."""
        self.end(Decision.ROLLBACK)

    def unknown(self) -> None:
        """Leaves the transaction open: the broker will ask a producer of the group how it ended."""
        self.end(Decision.UNKNOWN)

    def end(self, decision: Decision) -> None:
        """Tells the broker the decision; without a confirmation the broker will ask. Raises Refused."""
        self._producer._run(lambda _: self._core.end(decision))
