"""Priority, first pattern: a kind of message that is frequent or slow gets a separate topic.

In one topic, a campaign of newsletters would delay the order confirmations. In two topics each
kind has its own queues and its own workers, and neither waits for the other.
"""

import queue
import time

from turbopump import Consumer, Message, MessageExt, Producer

with Producer("mail") as producer:
    producer.send_batch([Message("NewsletterTopic", b"news %d" % number) for number in range(300)])
    producer.send(Message("ConfirmationTopic", b"order A-1"))

consumer = Consumer("mailers", consume_thread_min=4, consume_thread_max=4)
newsletters: queue.SimpleQueue[str] = queue.SimpleQueue()
confirmations: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on("NewsletterTopic")
def newsletter(message: MessageExt) -> None:
    time.sleep(0.1)
    newsletters.put(message.text)


urgent = Consumer("confirmers")  # its own workers too


@urgent.on("ConfirmationTopic")
def confirm(message: MessageExt) -> None:
    confirmations.put(message.text)


with consumer, urgent:
    print("confirmed:", confirmations.get(timeout=30))
    print("while newsletters were still waiting:", newsletters.qsize() < 300)
