"""What can go wrong for a user of the client, as exceptions that say what to do.

Three kinds: the caller asked for something that cannot be (`InvalidArgument`, `NotRunning`), the servers
refused it (`Refused` of `protocol.errors` and its classes, by wire code), or nobody answered in time (an
OSError: `Unreachable`, `TimedOut`). A send that was tried several times ends in `SendFailed`, which is one of
them too: it names each try.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.protocol.errors import BrokenBody, Refused, TopicNotFound

__all__ = [
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
    "SendTimedOut",
    "TopicNotFound",
    "TopicUnknown",
    "Try",
    "Unreachable",
    "UnreadableMessage",
]


class ClientError(Exception):
    """Base of what the client itself raises."""


class InvalidArgument(ClientError, ValueError):
    """The call cannot be right; the text says what would be."""


class NotRunning(ClientError, RuntimeError):
    """The client was not started yet, or is closed already."""


class InsideEventLoop(ClientError, RuntimeError):
    """A blocking call in a thread whose event loop it would stop: `turbopump.aio` has the same names."""


class EventLoopBlocked(ClientError, TimeoutError):
    """The event loop behind the blocking clients does not go on: an `async def` of the user's blocks it."""


class Unreachable(ClientError, ConnectionError):
    """No server could be reached under the addresses that are known."""


class NoNameServer(ClientError, ConnectionError):
    """No address of a name server was given anywhere, or none of them answers."""


class RequestTimedOut(ClientError, TimeoutError):
    """The request was stored, and nobody answered it in time."""


class NotPrepared(ClientError, OSError):
    """The half message of a transaction was stored, but not as safely as was asked: it was rolled back."""


class UnreadableMessage(ClientError, ValueError):
    """A body that does not fit what the handler asks for. Names the field that is wrong."""


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a send."""

    broker: str
    seconds: float
    failure: Exception


class SendFailed(ClientError, OSError):
    """No broker stored the message, as far as is known. `code` is Apache's: the broker's, or 10001 for no
    connection, 10002 for no answer, 10003 for an unknown broker.
    """

    def __init__(self, topic: str, tries: Sequence[Try], code: int, advice: str) -> None:
        told = "; ".join(_told(tries)) or "no try"
        super().__init__(f"a message for {topic} was not sent after {len(tries)} tries [{told}]. {advice}")
        self.topic = topic
        self.tries = tuple(tries)
        self.code = code


def _told(tries: Sequence[Try]) -> list[str]:
    """What came of the tries; equal failures of a broker are counted."""
    same: dict[tuple[str, str], list[float]] = {}
    for one in tries:
        same.setdefault((one.broker, str(one.failure)), []).append(one.seconds)
    return [
        f"{broker} ({sum(spent):.3f} s{f', {len(spent)} times' if len(spent) > 1 else ''}): {failure}"
        for (broker, failure), spent in same.items()
    ]


class SendTimedOut(SendFailed, TimeoutError):
    """The time for the send is over. The message may have been stored by a broker whose answer was late."""


class TopicUnknown(SendFailed, TopicNotFound):
    """No broker takes messages for the topic, and none would create it."""

    def __init__(self, topic: str, tries: Sequence[Try] = ()) -> None:
        advice = (
            f"No broker takes messages for topic {topic}: create it (`turbopump admin updateTopic`, or "
            "Admin.topics), or let brokers create topics (autoCreateTopicEnable)."
        )
        SendFailed.__init__(self, topic, tries, 10005, advice)
        self.remark = advice
