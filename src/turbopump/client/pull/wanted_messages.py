"""Turns what a pull brought into the messages that a consumer wants, with the names that the user knows."""

from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.observe.hooks import Filter, let_through
from turbopump.client.pull.puller import PullResult
from turbopump.client.queue_names import QueueNames


@dataclass(frozen=True, slots=True)
class WantedMessages:
    """Picks the wanted messages of pulls: by tag, then by the filters of the user."""

    names: QueueNames
    filters: Sequence[Filter] = ()
    decompresses: bool = True

    def of(self, result: PullResult, queue: MessageQueue, subscription: Subscription) -> list[MessageExt]:
        """Returns the wanted messages of a pull from this queue, which has its name on the wire."""
        names = self.names
        messages = result.messages(names.shown(queue), subscription, names.namespace, self.decompresses)
        return let_through(self.filters, messages) if self.filters else messages
