"""What handlers of a cluster's consumers raised, so that a test can fail with it."""

from collections import deque
from dataclasses import dataclass, field

from turbopump.client.group.consume_status import RetryLater
from turbopump.client.observe.hooks import ConsumeContext

MAX_KEPT = 1000  # of a handler that fails again and again the last ones are enough

Expected = type[BaseException] | tuple[type[BaseException], ...]
"""What a test expects its handlers to raise; `Exception` for anything, `()` for nothing."""


@dataclass(frozen=True, slots=True)
class Failed:
    """One call of a handler that raised."""

    group: str
    topic: str
    message_id: str
    error: BaseException


@dataclass
class HandlerFailures:
    """A hook of every consumer that a cluster makes. A wish for another delivery (RetryLater) is none."""

    _kept: deque[Failed] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))

    def before(self, context: ConsumeContext) -> None:
        """Nothing is known yet."""

    def after(self, context: ConsumeContext) -> None:
        error = context.failure
        if error is not None and not isinstance(error, RetryLater):
            first = context.messages[0]
            self._kept.append(Failed(context.group, first.topic, first.message_id, error))

    def check(self, group: str, topic: str, expected: Expected) -> None:
        """Raises the first failure of the group with the topic that is not expected, once."""
        for failed in list(self._kept):
            if (failed.group, failed.topic) != (group, topic):
                continue
            self._kept.remove(failed)
            if not isinstance(failed.error, expected):
                raise _told(failed)


def _told(failed: Failed) -> Exception:
    """The handler's exception. What would end the test run, such as SystemExit, is the cause of another."""
    where = (
        f"raised by a handler of group {failed.group} for message {failed.message_id} of {failed.topic}; "
        "a test that expects it says wait_until_consumed(..., expected=ThisError)"
    )
    if not isinstance(failed.error, Exception):
        error = AssertionError(f"{type(failed.error).__name__} was {where}")
        error.__cause__ = failed.error
        return error
    failed.error.add_note(where)
    return failed.error
