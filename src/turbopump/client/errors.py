"""The exceptions of the client, whose texts say what to do.

Three kinds: the call is not valid (`InvalidArgument`, `NotRunning`), the servers refused it (`Refused` of
`protocol.errors` and its classes, by wire code), or no server answered in time (an OSError: `Unreachable`,
`RequestTimedOut`). A send that was tried several times ends in `SendFailed`, an OSError that lists each try.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbopump.protocol.errors import AccessRefused, BrokenBody, Refused, TopicNotFound

__all__ = [
    "AccessRefused",
    "BrokenBody",
    "ClientError",
    "EventLoopBlocked",
    "InsideEventLoop",
    "InvalidArgument",
    "NoNameServer",
    "NotPrepared",
    "NotRunning",
    "Refused",
    "RequestTimedOut",
    "SendFailed",
    "SendRefused",
    "SendTimedOut",
    "TopicNotFound",
    "TopicUnknown",
    "Try",
    "Unreachable",
    "UnreadableMessage",
]


class ClientError(Exception):
    """The base of all exceptions that the client itself raises."""


class InvalidArgument(ClientError, ValueError):
    """An argument or a setting is not valid; the text of the error says what would be valid."""


class NotRunning(ClientError, RuntimeError):
    """The client was not started yet, or is closed already."""


class InsideEventLoop(ClientError, RuntimeError):
    """A blocking method was called in a thread whose event loop it would block: use `turbopump.aio`."""


class EventLoopBlocked(ClientError, TimeoutError):
    """The event loop of the blocking clients is blocked, by an `async def` handler of the user."""


class Unreachable(ClientError, ConnectionError):
    """No server could be reached at the known addresses."""


class NoNameServer(ClientError, ConnectionError):
    """No name server is known or answers, or the server at the given address is of another kind."""


class RequestTimedOut(ClientError, TimeoutError):
    """The message of a `request` was stored, but no reply of a consumer arrived in time."""


class NotPrepared(ClientError, OSError):
    """The half message of a transaction was stored less safely than asked, so it was rolled back."""


class UnreadableMessage(ClientError, ValueError):
    """The body of a message cannot be decoded as the wanted type; the text names the wrong field."""


@dataclass(frozen=True, slots=True)
class Try:
    """One failed try of a send: the broker, the seconds that it took, and the failure."""

    broker: str
    seconds: float
    failure: Exception


class SendFailed(ClientError, OSError):
    """A send failed in all its tries: no broker has confirmed the message.

    `tries` lists them. `code` is Apache's: the broker's, or 10001 for no connection, 10002 for no answer,
    10003 for an unknown broker.
    """

    def __init__(self, topic: str, tries: Sequence[Try], code: int, advice: str) -> None:
        told = "; ".join(_told(tries)) or "no try"
        super().__init__(f"a message for {topic} was not sent after {len(tries)} tries [{told}]. {advice}")
        self.topic = topic
        self.tries = tuple(tries)
        self.code = code


def _told(tries: Sequence[Try]) -> list[str]:
    """Returns one text for each distinct failure of a broker, with total seconds and the number of tries."""
    same: dict[tuple[str, str], list[float]] = {}
    for one in tries:
        same.setdefault((one.broker, str(one.failure)), []).append(one.seconds)
    return [
        f"{broker} ({sum(spent):.3f} s{f', {len(spent)} times' if len(spent) > 1 else ''}): {failure}"
        for (broker, failure), spent in same.items()
    ]


class SendTimedOut(SendFailed, TimeoutError):
    """A send got no confirmation within its timeout. A broker whose answer was late may have the message."""


class SendRefused(SendFailed, AccessRefused):
    """Access control of every broker that was tried refused the message; the text says what to do."""

    def __init__(self, topic: str, tries: Sequence[Try], refused: AccessRefused) -> None:
        SendFailed.__init__(self, topic, tries, refused.code, f"What to do: {refused.advice}.")
        self.remark = refused.remark
        self.reason = refused.reason
        self.advice = refused.advice
        self.fields = None

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        refused = AccessRefused(self.code, self.remark, self.reason, self.advice)
        return SendRefused, (self.topic, self.tries, refused)


class TopicUnknown(SendFailed, TopicNotFound):
    """No broker accepts messages for the topic, and none would create it."""

    def __init__(self, topic: str, tries: Sequence[Try] = ()) -> None:
        advice = (
            f"No broker accepts messages for topic {topic}: create it (`turbopump admin updateTopic`, or "
            "Admin.topics), or let brokers create topics (autoCreateTopicEnable)."
        )
        SendFailed.__init__(self, topic, tries, 10005, advice)
        self.remark = advice
