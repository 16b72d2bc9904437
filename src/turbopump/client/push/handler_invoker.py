"""Calls handlers, with the user's hooks around each call, on the loop or in a thread."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from turbopump.client.group.consume_status import ROLLED_BACK, UNCOMMITTED, DeliveryFailure
from turbopump.client.message import MessageExt
from turbopump.client.observe.hooks import ConsumeContext, ConsumeHook, run_after, run_before
from turbopump.client.push.handlers import Handler, Messages, TagHandlers

STATUSES = {
    False: ("CONSUME_SUCCESS", "RECONSUME_LATER"),
    True: ("SUCCESS", "SUSPEND_CURRENT_QUEUE_A_MOMENT"),
}
"""Whether the consumer is ordered → the status that Apache's hooks read after success, and after failure."""


class NoHandler(Exception):
    """Raised for a message whose topic or tag has no handler in this consumer, only in other members."""


async def _no_handler(message: MessageExt) -> None:
    raise NoHandler(
        f"this consumer has no handler for tag {message.tags} of topic {message.topic}: all members of a "
        "group must have the same subscriptions"
    )


NO_HANDLER = Handler(_no_handler)


@dataclass
class HandlerInvoker:
    """Finds the handlers of messages and calls them, with the user's hooks around each call."""

    group: str
    handlers: Mapping[str, Handler | TagHandlers]
    """Topic, as the user knows it → its handler."""
    hooks: Sequence[ConsumeHook] = ()
    ordered: bool = False
    namespace: str = ""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def handler(self, message: MessageExt) -> Handler:
        """Returns the handler of the topic a message was read from, else sent to; else one that fails."""
        found = self.handlers.get(message.queue.topic) or self.handlers.get(message.topic, NO_HANDLER)
        return found if isinstance(found, Handler) else found.of(message) or NO_HANDLER

    def handlers_of(self, messages: Messages) -> list[tuple[Handler, Messages]]:
        """Splits messages of one queue into runs of one handler, in order: one may occur several times."""
        only = self.handlers.get(messages[0].queue.topic)
        if isinstance(only, Handler):
            return [(only, messages)]
        return [(handler, list(own)) for handler, own in groupby(messages, self.handler)]

    def by_handler(self, messages: Messages) -> list[tuple[Handler, Messages]]:
        """Groups messages of one queue by handler, out of order, so that batches stay large."""
        only = self.handlers.get(messages[0].queue.topic)
        if isinstance(only, Handler):
            return [(only, messages)]
        groups: dict[int, tuple[Handler, Messages]] = {}
        for message in messages:
            handler = self.handler(message)
            groups.setdefault(id(handler), (handler, []))[1].append(message)
        return list(groups.values())

    deliver: Callable[[Handler, Messages], Coroutine[Any, Any, DeliveryFailure | None]] = field(init=False)
    """Calls an `async def` handler."""

    def __post_init__(self) -> None:
        # Most consumers have no hooks, and this runs for every message: no call in between.
        self.deliver = self._deliver if self.hooks else Handler.deliver

    def run(self, handler: Handler, messages: Messages) -> DeliveryFailure | None:
        """Calls a `def` handler and the hooks in the current thread; None: consumed. Raises nothing."""
        if not self.hooks:
            return handler.run(messages, self.loop)
        context = self._before(messages)
        return self._after(context, handler.run(messages, self.loop))

    async def _deliver(self, handler: Handler, messages: Messages) -> DeliveryFailure | None:
        context = self._before(messages)
        return self._after(context, await handler.deliver(messages))

    def _before(self, messages: Messages) -> ConsumeContext:
        context = ConsumeContext(self.group, tuple(messages), messages[0].queue, self.ordered, self.namespace)
        run_before(self.hooks, context)
        return context

    def _after(self, context: ConsumeContext, failure: DeliveryFailure | None) -> DeliveryFailure | None:
        context.success = failure is None or failure is UNCOMMITTED
        context.status = "ROLLBACK" if failure is ROLLED_BACK else STATUSES[self.ordered][not context.success]
        context.failure = failure.error if failure is not None else None
        run_after(self.hooks, context)
        return failure
