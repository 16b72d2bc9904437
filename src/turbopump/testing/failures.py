"""Exceptions of the message handlers of a cluster's consumers, so that a test can fail with them."""

from collections import deque
from dataclasses import dataclass, field

from turbopump.client.group.consume_status import RetryLater
from turbopump.client.observe.hooks import ConsumeContext

MAX_FAILURES = 1000  # of a handler that fails repeatedly the last ones are enough

Expected = type[BaseException] | tuple[type[BaseException], ...]
"""Exceptions that a test expects of its handlers; `Exception` for any, `()` for none."""


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """Record of one handler call that raised: group, topic, message id and exception."""

    group: str
    topic: str
    message_id: str
    error: BaseException


@dataclass
class HandlerFailures:
    """Hook of every consumer of a cluster that records exceptions. RetryLater is not a failure."""

    _kept: deque[HandlerFailure] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))

    def before(self, context: ConsumeContext) -> None:
        """Does nothing: failures are known after the call."""

    def after(self, context: ConsumeContext) -> None:
        error = context.failure
        if error is not None and not isinstance(error, RetryLater):
            first = context.messages[0]
            self._kept.append(HandlerFailure(context.group, first.topic, first.message_id, error))

    def check(self, group: str, topic: str, expected: Expected) -> None:
        """Raises the group's first recorded failure for the topic that is not `expected`; forgets it."""
        for failed in list(self._kept):
            if (failed.group, failed.topic) != (group, topic):
                continue
            self._kept.remove(failed)
            if not isinstance(failed.error, expected):
                raise _exception_of(failed)


def _exception_of(failed: HandlerFailure) -> Exception:
    """Returns the handler's exception; one that would end the test run, such as SystemExit, as a cause."""
    where = (
        f"raised by a handler of group {failed.group} for message {failed.message_id} of {failed.topic}; "
        "if the test expects it, call wait_until_consumed(..., expected=ThisError)"
    )
    if not isinstance(failed.error, Exception):
        error = AssertionError(f"{type(failed.error).__name__} was {where}")
        error.__cause__ = failed.error
        return error
    failed.error.add_note(where)
    return failed.error
