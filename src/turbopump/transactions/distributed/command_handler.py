"""The other side of a command: a consumer's handler that calls a participant and answers.

In: command messages. Out: replies. Every delivery of a command is answered, also a repeated one: from the
fence, with what was done the first time.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol, TypeVar, overload

from turbopump.client.errors import ClientError, InvalidArgument
from turbopump.client.message import MessageExt
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.transactions.distributed.commands import BranchCommand, read_command, reply_body
from turbopump.transactions.distributed.driver import answer_of_error
from turbopump.transactions.distributed.fenced_calls import FencedCalls
from turbopump.transactions.distributed.machine import BranchAnswered, BranchVerdict, CallBranch, Phase
from turbopump.transactions.distributed.participants import (
    BranchFunctions,
    Connect,
    DeclaredStep,
    Tcc,
    check_function,
    checked_participant,
)
from turbopump.transactions.fence import TABLE, Fence

__all__ = ["CommandHandler", "DecoratedParticipant", "participant"]

log = logging.getLogger(__name__)

R = TypeVar("R")

MAX_THREADS = 32
"""For functions that block, of all participants of a process."""


class Replies(Protocol):
    """What answers a request message: a producer, blocking or async."""

    def reply(self, to: MessageExt, body: bytes) -> Any: ...


class CommandHandler:
    """A handler of command messages, for one participant. Made by `participant`."""

    def __init__(
        self,
        name: str,
        producer: Replies,
        functions: Callable[[], BranchFunctions],
        threads: Executor | None = None,
    ) -> None:
        self.name = checked_participant(name)
        self._producer = producer
        self._functions = functions
        self._calls = FencedCalls(threads or _threads())
        self._unanswered = 0

    async def __call__(self, message: MessageExt) -> None:
        """Carries out a command and replies. A message that is no command of this participant fails."""
        command = read_command(message)
        if command.participant != self.name:
            raise BrokenBody(f"the command must be for participant {self.name}, got {command.participant!r}")
        body = reply_body(command, await self.answer(command))
        try:
            if inspect.iscoroutinefunction(self._producer.reply):
                await self._producer.reply(message, body)
            else:
                await asyncio.to_thread(self._producer.reply, message, body)
        except (OSError, ClientError, Refused) as error:
            # The asker asks again, and the fence has the answer.
            self._unanswered += 1
            log.warning(
                "Cannot answer %s of branch %s of %s (%d so far): %s",
                command.phase,
                command.branch,
                command.gid,
                self._unanswered,
                error,
            )

    async def answer(self, command: BranchCommand) -> BranchAnswered:
        """Calls the function of a command, and returns the answer. Raises nothing: a failure is an answer."""
        call = CallBranch(command.branch, command.phase)
        try:
            result = await self._calls.perform(self._functions(), command.call())
        except Exception as error:
            answer = answer_of_error(call, error)
            if answer.verdict in (BranchVerdict.FAILED, BranchVerdict.PARK):
                log.warning(
                    "%s of branch %s of %s failed", call.phase, call.branch, command.gid, exc_info=error
                )
            return answer
        return BranchAnswered(call.branch, call.phase, BranchVerdict.DONE, result)


class DecoratedParticipant(CommandHandler):
    """A handler of commands whose functions are decorated one by one. Made by `participant`.

    The function that `participant` decorates is the Try of a TCC transaction, and the work of a step of a
    saga.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], producer: Replies, connect: Connect | None, table: str
    ) -> None:
        self._work: dict[Phase, Callable[..., Any]] = {}
        fence = Fence(table)
        for phase in (Phase.TRY, Phase.DO):
            self._add(phase, function)
        super().__init__(name, producer, lambda: BranchFunctions(name, connect, fence, self._work))

    def confirm(self, function: Callable[..., R]) -> Callable[..., R]:
        """Registers the Confirm of a TCC participant, and returns it."""
        return self._add(Phase.CONFIRM, function)

    def cancel(self, function: Callable[..., R]) -> Callable[..., R]:
        """Registers the Cancel of a TCC participant, and returns it."""
        return self._add(Phase.CANCEL, function)

    def undo(self, function: Callable[..., R]) -> Callable[..., R]:
        """Registers the compensation of a step of a saga, and returns it."""
        return self._add(Phase.UNDO, function)

    def _add(self, phase: Phase, function: Callable[..., R]) -> Callable[..., R]:
        check_function("a participant", phase, function)
        self._work[phase] = function
        return function


@overload
def participant(who: Tcc[Any] | DeclaredStep[Any], *, producer: Replies) -> CommandHandler: ...
@overload
def participant(
    who: str, *, producer: Replies, connect: Connect | None = None, table: str = TABLE
) -> Callable[[Callable[..., Any]], DecoratedParticipant]: ...
def participant(
    who: Tcc[Any] | DeclaredStep[Any] | str,
    *,
    producer: Replies,
    connect: Connect | None = None,
    table: str = TABLE,
) -> CommandHandler | Callable[[Callable[..., Any]], DecoratedParticipant]:
    """Returns what makes a consumer take part in transactions of other services, for `consumer.on(topic)`:

        @consumer.on("CreditCommands", tags="credit")
        @participant("credit", connect=ccb_connect, producer=producer)
        def give(connection: Connection, order: Transfer) -> None: ...

        @give.undo
        def take_back(connection: Connection, order: Transfer) -> None: ...

    The function is the work of a step, or the Try of a TCC transaction, which has `confirm` and `cancel` too.
    With a Tcc or a step of a saga in place of the name it is the handler itself:
    `consumer.on(topic)(participant(credit, producer=producer))`. `producer` sends the answers, blocking or
    async. Commands have the participant's name as tag, so that several can share a topic.
    """
    if isinstance(who, Tcc | DeclaredStep):
        return CommandHandler(who.name, producer, who.branch_functions)
    if not isinstance(who, str):
        raise InvalidArgument(f"a participant must be a name, a Tcc or a step of a saga, got {who!r}")
    name = checked_participant(who)
    return lambda function: DecoratedParticipant(name, function, producer, connect, table)


@cache
def _threads() -> Executor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="turbopump-participant")
