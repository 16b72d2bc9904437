"""What a handler of messages says of a delivery: consumed, or again later.

A handler that returns has consumed what it was given; one that raises gets it again later. `RetryLater` is
for those who want to choose when. Nothing a handler does ends its consumer.
"""

from dataclasses import dataclass
from enum import Enum

from turbopump.client.errors import ClientError, InvalidArgument

DEAD_LETTER = -1
LAST_LEVEL = 18


class ConsumeStatus(Enum):
    """What Java's listeners return. Handlers may return it too; they need not."""

    CONSUME_SUCCESS = "CR_SUCCESS"
    SUCCESS = "CR_SUCCESS"
    RECONSUME_LATER = "CR_LATER"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "CR_LATER"
    COMMIT = "CR_COMMIT"
    """Of ordered handlers with `auto_commit=False`: this and all before it is done."""
    ROLLBACK = "CR_ROLLBACK"
    """Of the same: all since the last commit comes again."""


class RetryLater(ClientError):
    """Raised by a handler: deliver this again.

    `delay_level` chooses when: 0 leaves it to the broker, which waits longer with each failure; 1 to 18 is
    that level of its `messageDelayLevel`; -1 is never, the message goes to the dead letters at once.
    `consumed` tells how many of the first messages of a batch are done all the same. In an ordered handler
    the queue waits `pause` seconds (0.01 to 30) and then delivers the same again; levels mean nothing there.

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
            raise InvalidArgument(f"delay_level must be between -1 and 18, not {delay_level}")
        super().__init__(reason)
        self.delay_level = delay_level
        self.consumed = consumed
        self.pause = pause


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """A delivery that was not consumed, or not all of it."""

    error: BaseException | None
    """None: the handler returned RECONSUME_LATER."""
    delay_level: int = 0
    consumed: int = 0
    """So many of the first messages are done."""
    pause_s: float | None = None
    is_rollback: bool = False
    """All since the last commit comes again, not only this."""


def failure_of(error: BaseException) -> DeliveryFailure:
    if isinstance(error, RetryLater):
        return DeliveryFailure(error, error.delay_level, max(error.consumed, 0), error.pause)
    return DeliveryFailure(error)


LATER = DeliveryFailure(None)
ROLLED_BACK = DeliveryFailure(None, is_rollback=True)
UNCOMMITTED = DeliveryFailure(None)
"""No failure at all: consumed, and to be committed with something that comes later."""
