"""Delayed messages: consumers get them after the time of a level, 1 (one second) to 18 (two hours).

The levels are the broker's setting messageDelayLevel: 1s 5s 10s 30s 1m 2m … 10m 20m 30m 1h 2h.
"""

import queue
import time

from turbopump import Consumer, Message, MessageExt, Producer

with Producer("orders") as producer:
    began = time.monotonic()
    producer.send(Message("ReminderTopic", b"pay, or the order is cancelled", delay_level=1))
    producer.send(Message("ReminderTopic", b"thank you for your order"))

consumer = Consumer("mailer")
mails: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on("ReminderTopic")
def mail(message: MessageExt) -> None:
    mails.put(message.text)


with consumer:
    print("at once:", mails.get(timeout=30))
    print("later:  ", mails.get(timeout=30))
print("at least a second later:", time.monotonic() - began >= 1)
