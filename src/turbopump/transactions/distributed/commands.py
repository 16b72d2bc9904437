"""Participants in other services, reached by messages: commands to a topic, answers by `reply`.

In: a call of a branch. Out: its answer, from the consumer that has a `participant`. Neither a command nor an
answer has to be durable: a lost one is asked again, and the fence of the participant gives the stored result.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from turbopump.client.errors import RequestTimedOut, SendFailed
from turbopump.client.message import Message, MessageExt
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.transactions.distributed.machine import BranchAnswered, BranchVerdict, Phase
from turbopump.transactions.distributed.participants import BranchCall

T = TypeVar("T")
log = logging.getLogger(__name__)

TRIES = 3
"""Requests for one answer; what is unknown then is asked again by the rules of the transaction."""


class BranchCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a command: what a participant is asked to do with its branch."""

    gid: str
    branch: str
    participant: str
    phase: Phase
    input: str = ""
    result: str = ""

    def call(self) -> BranchCall:
        return BranchCall(self.gid, self.branch, self.phase, self.input, self.result)


class BranchReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of the answer to a command."""

    gid: str
    branch: str
    phase: Phase
    verdict: BranchVerdict
    data: str = ""
    reason: str = ""
    after_s: float | None = None

    def answer(self) -> BranchAnswered:
        return BranchAnswered(self.branch, self.phase, self.verdict, self.data, self.reason, self.after_s)


class Requests(Protocol):
    """What sends a request message and waits for its reply: an async producer."""

    async def request(
        self,
        message: Message,
        *,
        timeout: float,  # noqa: ASYNC109 - as the producer has it
    ) -> MessageExt: ...


Answer = Callable[[BranchCommand], Awaitable[BranchAnswered]]


class RemoteParticipants:
    """Asks participants of other services, again while no answer comes."""

    def __init__(self, producer: Callable[[], Awaitable[Requests]]) -> None:
        self._producer = producer

    async def ask(self, topic: str, participant: str, call: BranchCall, timeout_s: float) -> BranchAnswered:
        """Sends a command and returns its answer; FAILED when there is none: it may have been done or not."""
        command = BranchCommand(call.gid, call.branch, participant, call.phase, call.input, call.result)
        message = Message(topic, msgspec.json.encode(command), tags=participant, keys=call.gid)
        failure: Exception | None = None
        for _ in range(TRIES):
            try:
                producer = await self._producer()
                reply = read_reply(await producer.request(message, timeout=timeout_s))
            except (OSError, RequestTimedOut, SendFailed, Refused, BrokenBody) as error:
                log.info("No answer to %s of branch %s of %s: %s", call.phase, call.branch, call.gid, error)
                failure = error
                continue
            if (reply.gid, reply.branch, reply.phase) == (call.gid, call.branch, call.phase):
                return reply.answer()
            failure = BrokenBody(f"an answer about {reply.phase} of {reply.branch} of {reply.gid} came")
        reason = f"no answer from {participant} by topic {topic}: {failure}"
        return BranchAnswered(call.branch, call.phase, BranchVerdict.FAILED, reason=reason)


def read_command(message: MessageExt) -> BranchCommand:
    """Returns the command of a message. Raises BrokenBody."""
    return _read(message, _COMMAND)


def read_reply(message: MessageExt) -> BranchReply:
    """Returns the answer of a message. Raises BrokenBody."""
    return _read(message, _REPLY)


def reply_body(command: BranchCommand, answer: BranchAnswered) -> bytes:
    """Returns the body of the answer to a command."""
    reply = BranchReply(
        command.gid,
        command.branch,
        command.phase,
        answer.verdict,
        answer.data,
        answer.reason,
        answer.after_s,
    )
    return msgspec.json.encode(reply)


_COMMAND = msgspec.json.Decoder(BranchCommand)
_REPLY = msgspec.json.Decoder(BranchReply)


def _read(message: MessageExt, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(message.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BrokenBody(f"message {message.message_id} is not of a global transaction: {error}") from None
