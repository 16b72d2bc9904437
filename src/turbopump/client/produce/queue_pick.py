"""Turns the argument `by`, `queue` or `select` of a send into the function that picks its queue."""

from collections.abc import Sequence

from turbopump.client import rules
from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, MessageQueue
from turbopump.client.produce.selectors import Selector, by_hash
from turbopump.client.produce.sender import Pick
from turbopump.client.queue_names import QueueNames


def pick_for(
    names: QueueNames, message: Message, by: object, queue: MessageQueue | None, select: Selector | None
) -> Pick | None:
    """Returns the function that picks the queue of a send; None: any queue will do. Raises InvalidArgument.

    A pick gets queues with their wire names, a selector with the names that the user knows.
    """
    if (by is not None) + (queue is not None) + (select is not None) > 1:
        raise InvalidArgument("only one of by=, queue= and select= may be given: each chooses the queue")
    if queue is not None:
        rules.check_queue(queue, message)
        wire_queue = names.on_wire(queue)
        return lambda queues: wire_queue
    selector = by_hash(by) if by is not None else select
    if selector is None:
        return None

    def pick(queues: Sequence[MessageQueue]) -> MessageQueue:
        chosen = selector(names.all_shown(tuple(queues)), message)
        if not isinstance(chosen, MessageQueue):
            raise InvalidArgument(f"select= must return one of the queues it gets, got {chosen!r}")
        rules.check_queue(chosen, message)
        return names.on_wire(chosen)

    return pick
