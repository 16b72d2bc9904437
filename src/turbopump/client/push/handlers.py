"""A user's function as the consumer calls it: `def` or `async def`, one message or a list, decoded or not.

What a parameter gets follows from its annotation: nothing or `MessageExt` is the message, `bytes` its body,
`str` its body as UTF-8, anything else (a dataclass, a msgspec struct, a pydantic model, `dict`) the body read
as JSON of that type. A function may have one parameter for the message and one for the body.
"""

import asyncio
import functools
import inspect
import logging
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turbopump.client.errors import InvalidArgument, UnreadableMessage
from turbopump.client.group.consume_status import (
    LATER,
    ROLLED_BACK,
    UNCOMMITTED,
    ConsumeStatus,
    DeliveryFailure,
    failure_of,
)
from turbopump.client.message import MessageExt

log = logging.getLogger(__name__)

Messages = list[MessageExt]
Read = Callable[[MessageExt], Any]
"""Makes the argument of a parameter from a message."""

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
LISTS = (list, Sequence, typing.Sequence, typing.Iterable, tuple)
FITS = "write def handle(message), def handle(order: Order) or def handle(message: MessageExt, order: Order)"


@dataclass(frozen=True, slots=True)
class Handler:
    """The user's function that handles the messages of a topic, and how it is called.

    `batch` is how many messages it gets at once; None: one, and not in a list. With `commits` a message is
    done when the handler returns, without it when the handler says so.
    """

    function: Callable[..., Any]
    batch: int | None = None
    commits: bool = True
    call: Callable[[Messages], Any] = field(init=False, repr=False)
    """Calls the function with the messages of one delivery. Returns an awaitable when `is_async`."""
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument(f"a handler must be a function, got {self.function!r}")
        object.__setattr__(self, "is_async", _is_async(self.function))
        reads = [_read_for(name, kind) for name, kind in _parameters(self.function, self.batch is not None)]
        prepared = _called(self.function, reads, self.batch is not None)
        object.__setattr__(self, "call", prepared)

    @property
    def size(self) -> int:
        return self.batch or 1

    def run(self, messages: Messages, loop: asyncio.AbstractEventLoop) -> DeliveryFailure | None:
        """Calls a `def` function in this thread; None: consumed. Raises nothing, not even SystemExit."""
        try:
            result = self.call(messages)
            if isinstance(result, types.CoroutineType):  # an `async def` behind a decorator
                result = asyncio.run_coroutine_threadsafe(result, loop).result()
            return None if result is None and self.commits else self._outcome(result)
        except BaseException as error:
            return failure_of(error)

    async def deliver(self, messages: Messages) -> DeliveryFailure | None:
        """Calls an `async def` function; None: consumed. Raises nothing: a cancellation is a failure too."""
        try:
            result = await self.call(messages)
            return None if result is None and self.commits else self._outcome(result)
        except BaseException as error:
            return failure_of(error)

    def _outcome(self, result: object) -> DeliveryFailure | None:
        """Returns what a function's return value means for its messages; None: consumed, may be committed."""
        if result is ConsumeStatus.RECONSUME_LATER:
            return LATER
        if self.commits:
            if result is ConsumeStatus.ROLLBACK or result is ConsumeStatus.COMMIT:
                log.warning(
                    "%s is for ordered handlers with auto_commit=False; the message counts as consumed",
                    result,
                )
            return None
        if result is ConsumeStatus.ROLLBACK:
            return ROLLED_BACK
        return None if result is ConsumeStatus.COMMIT else UNCOMMITTED


@dataclass(frozen=True, slots=True)
class TagHandlers:
    """The handlers of one topic, each for tags that no other has."""

    by_tag: Mapping[str, Handler]

    def of(self, message: MessageExt) -> Handler | None:
        return self.by_tag.get(message.tags or "")


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _called(function: Callable[..., Any], reads: Sequence[Read | None], is_batch: bool) -> Callable[..., Any]:
    """Returns a function that calls the handler with the arguments that `reads` make from its messages."""
    if reads == [None]:
        return function if is_batch else lambda messages: function(messages[0])
    readers: list[Read] = [read or _itself for read in reads]
    if is_batch:
        return lambda messages: function(*([read(one) for one in messages] for read in readers))
    return lambda messages: function(*(read(messages[0]) for read in readers))


def _itself(message: MessageExt) -> MessageExt:
    return message


def _parameters(function: Callable[..., Any], is_batch: bool) -> list[tuple[str, Any]]:
    """Returns names and annotations of the required parameters; of a batch, annotations of the items."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return [("message", inspect.Parameter.empty)]
    needed = [
        one for one in signature.parameters.values() if one.kind in POSITIONAL and one.default is one.empty
    ]
    if not needed and any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values()):
        return [("message", inspect.Parameter.empty)]
    if not 1 <= len(needed) <= 2:
        raise InvalidArgument(
            f"a handler must take 1 or 2 arguments, got {len(needed)} of {_name(function)}; {FITS}"
        )
    written = {one.name: one.annotation for one in needed}
    if any(isinstance(kind, str) for kind in written.values()):  # by `from __future__ import annotations`
        written |= _annotations(function)
    found = [(one.name, written[one.name]) for one in needed]
    if is_batch:
        found = [(name, _item(kind)) for name, kind in found]
    if len(found) == 2 and sum(_is_message(kind) for _, kind in found) != 1:
        raise InvalidArgument(f"one of the two arguments of {_name(function)} must be the message; {FITS}")
    return found


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, types.FunctionType | types.MethodType | type):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise InvalidArgument(
            f"cannot resolve an annotation of {_name(function)} ({error}); define the type at the top of its "
            "module, or leave the annotation out and use message.json(Type)"
        ) from None


def _item(kind: Any) -> Any:
    """Returns the annotation of a batch's items: Order for list[Order]."""
    origin = typing.get_origin(kind)
    inner = typing.get_args(kind)
    return inner[0] if inner and (origin in LISTS or origin is not None) else inspect.Parameter.empty


def _is_message(kind: Any) -> bool:
    return kind in (inspect.Parameter.empty, Any, MessageExt)


def _read_for(name: str, kind: Any) -> Read | None:
    """Returns a function that makes the argument of a parameter from a message; None: the message itself."""
    if _is_message(kind):
        return None
    if kind is bytes:
        return lambda message: message.body
    if kind is str:
        return _text
    return lambda message: message.json(kind)


def _text(message: MessageExt) -> str:
    try:
        return message.text
    except UnicodeDecodeError as error:
        raise UnreadableMessage(f"the body must be UTF-8: {error}") from None


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
