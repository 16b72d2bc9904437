"""The outcome of a delivery: consumed, or to be delivered again.

A handler that returns has consumed its messages; when it raises, they are delivered again later. `RetryLater`
chooses when. No failure of a handler ends its consumer.
"""

from dataclasses import dataclass
from enum import Enum

from turbopump.client.errors import ClientError, InvalidArgument

DEAD_LETTER = -1
LAST_LEVEL = 18


class ConsumeStatus(Enum):
    """What a handler may return, by the names of Java's listeners. Returning nothing means consumed."""

    CONSUME_SUCCESS = "CR_SUCCESS"
    SUCCESS = "CR_SUCCESS"
    RECONSUME_LATER = "CR_LATER"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "CR_LATER"
    COMMIT = "CR_COMMIT"
    """From ordered handlers with `auto_commit=False`: this message and all before it are done."""
    ROLLBACK = "CR_ROLLBACK"
    """From ordered handlers with `auto_commit=False`: deliver all since the last commit again."""


class RetryLater(ClientError):
    """Raised by a handler to have its message delivered again later.

    `delay_level` chooses when: 0 leaves it to the broker, which waits longer with each failure; 1 to 18 is
    that level of its `messageDelayLevel`; -1 is never, the message goes to the dead letters at once.
    `consumed` is how many of the first messages of a batch are done nevertheless. In an ordered handler the
    queue waits `pause` seconds (0.01 to 30) and then delivers the same again; levels have no meaning there.

    >>> raise RetryLater(delay_level=5)
    Traceback (most recent call last):
    turbopump.client.group.consume_status.RetryLater: again later
    """

    def __init__(
        self,
        delay_level: int = 0,
        *,
        consumed: int = 0,
        pause: float | None = None,
        reason: str = "again later",
    ) -> None:
        if not DEAD_LETTER <= delay_level <= LAST_LEVEL:
            raise InvalidArgument(f"delay_level must be between -1 and 18, got {delay_level}")
        super().__init__(reason)
        self.delay_level = delay_level
        self.consumed = consumed
        self.pause = pause


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """Why a delivery was not consumed completely, and how its messages are delivered again."""

    error: BaseException | None
    """None: the handler returned RECONSUME_LATER."""
    delay_level: int = 0
    consumed: int = 0
    """How many of the first messages are done."""
    pause_s: float | None = None
    is_rollback: bool = False
    """Whether everything since the last commit is delivered again, not only this."""


def failure_of(error: BaseException) -> DeliveryFailure:
    """Converts an exception of a handler to a `DeliveryFailure`; a `RetryLater` chooses delay and pause."""
    if isinstance(error, RetryLater):
        return DeliveryFailure(error, error.delay_level, max(error.consumed, 0), error.pause)
    return DeliveryFailure(error)


LATER = DeliveryFailure(None)
ROLLED_BACK = DeliveryFailure(None, is_rollback=True)
UNCOMMITTED = DeliveryFailure(None)
"""Not a failure: consumed, and to be committed together with a later message."""
