"""Calls a handler with one message when a tool asks for it, without effect on any offset."""

import asyncio

from turbopump.client.group.consume_status import (
    ROLLED_BACK,
    UNCOMMITTED,
    ConsumeStatus,
    DeliveryFailure,
    RetryLater,
)
from turbopump.client.message import MessageExt
from turbopump.client.push.handler_invoker import HandlerInvoker
from turbopump.protocol import bodies
from turbopump.runtime.clock import Clock


async def consume_directly(
    invoker: HandlerInvoker, message: MessageExt, clock: Clock
) -> bodies.ConsumeMessageDirectlyResult:
    """Calls the handler of the message and returns its result for the tool."""
    began_s = clock.monotonic()
    handler = invoker.handler(message)
    if handler.is_async:
        failure = await invoker.deliver(handler, [message])
    else:
        failure = await asyncio.to_thread(invoker.run, handler, [message])
    result = bodies.ConsumeMessageDirectlyResult(order=invoker.ordered)
    result.consumeResult, result.remark = _told(failure)
    result.spentTimeMills = round((clock.monotonic() - began_s) * 1000)
    return result


def _told(failure: DeliveryFailure | None) -> tuple[str, str | None]:
    if failure is ROLLED_BACK:
        return ConsumeStatus.ROLLBACK.value, None
    if failure is None or failure is UNCOMMITTED:
        return ConsumeStatus.CONSUME_SUCCESS.value, None
    if failure.error is None or isinstance(failure.error, RetryLater):
        return ConsumeStatus.RECONSUME_LATER.value, None
    return "CR_THROW_EXCEPTION", f"{type(failure.error).__name__}: {failure.error}"
