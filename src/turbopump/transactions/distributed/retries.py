"""When a call that failed is tried again: a policy without a clock."""

from dataclasses import dataclass

from turbopump.client.errors import InvalidArgument

MAX_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a participant is asked again after a failure, and after which pauses.

        Retry(attempts=5, first=0.5)  # pauses of 0.5, 1, 2 and 4 s
        Retry(attempts=None)          # for ever

    `Declined` is final always, `Later` is not counted.
    """

    attempts: int | None = 5
    """Calls in all; None: for ever."""
    first: float = 1.0
    """Seconds before the second call."""
    factor: float = 2.0
    """Each pause is so many times the one before."""
    longest: float = 300.0
    """No pause is longer, in seconds."""
    final: tuple[type[Exception], ...] = ()
    """Exceptions of the participant that mean No, as Declined does."""

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise InvalidArgument(f"attempts must be at least 1, or None for ever, got {self.attempts}")
        if self.first < 0 or self.factor < 1:
            raise InvalidArgument(
                f"first must be at least 0 and factor at least 1, got {self.first} and {self.factor}"
            )
        if not 0 <= self.longest <= MAX_PAUSE_S:
            raise InvalidArgument(f"longest must be 0 to {MAX_PAUSE_S:.0f} seconds, got {self.longest}")

    def pause(self, failures: int) -> float | None:
        """Returns the seconds to wait after this many failures, the first is 1; None: give up."""
        if self.attempts is not None and failures >= self.attempts:
            return None
        # Small exponents alone: 2.0 ** 1100 raises OverflowError.
        return min(self.longest, self.first * self.factor ** min(failures - 1, 64))


FOR_EVER = Retry(attempts=None)
"""Phase 2 of XA: a decision is carried out, however long it takes."""
STEP = Retry()
"""The steps of a saga, unless they are declared with another one."""
CONFIRM = Retry(attempts=20)
"""Confirm and Cancel of TCC: about an hour, then an operator is asked."""
