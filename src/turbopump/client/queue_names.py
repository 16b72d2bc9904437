"""Names of queues and topics in a namespace, as brokers know them and as the user sees them. Pure."""

from dataclasses import dataclass

from turbopump.client.message import MessageQueue
from turbopump.client.namespace import unwrap, wrap


@dataclass(frozen=True, slots=True)
class QueueNames:
    """Converts topics and queues between wire names, with the namespace's prefix, and the user's names.

    >>> names = QueueNames("shop")
    >>> names.on_wire(MessageQueue("orders", "broker-a", 0)).topic
    'shop%orders'
    """

    namespace: str = ""

    def on_wire(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self.topic(queue.topic), queue.broker, queue.id) if self.namespace else queue

    def shown(self, queue: MessageQueue) -> MessageQueue:
        if not self.namespace:
            return queue
        return MessageQueue(self.shown_topic(queue.topic), queue.broker, queue.id)

    def topic(self, name: str) -> str:
        """Returns the wire name of a topic, or of a group."""
        return wrap(self.namespace, name)

    def shown_topic(self, name: str) -> str:
        return unwrap(self.namespace, name)

    def all_shown(self, queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
        return tuple(map(self.shown, queues)) if self.namespace else queues
