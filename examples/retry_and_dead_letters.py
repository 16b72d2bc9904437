"""A message that fails is delivered again after growing pauses; in the end it becomes a dead letter.

The default is 16 times within 4 hours 46 minutes: 10 s, 30 s, 1 min … 2 h. Here it is less.
"""

import queue

from turbopump import Consumer, Message, MessageExt, Producer, PullConsumer, RetryLater

TOPIC, GROUP = "PaymentTopic", "payments"

with Producer("checkout") as producer:
    producer.send(Message(TOPIC, b"card 1234"))
    producer.send(Message(TOPIC, b"no card at all"))

consumer = Consumer(GROUP, max_reconsume_times=2)
told: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on(TOPIC)
def pay(message: MessageExt) -> None:
    told.put(f"try {message.reconsume_times + 1} of {message.text}")
    if message.reconsume_times == 0:
        raise RetryLater(
            delay_level=1
        )  # any exception retries; this one also sets the pause: level 1 is a second
    if message.body.startswith(b"no card"):
        raise RetryLater(-1)  # never again: a dead letter at once
    told.put(f"paid with {message.text}")


with consumer:
    for line in sorted(told.get(timeout=30) for _ in range(5)):
        print(line)

with PullConsumer("undertakers", topics=[f"%DLQ%{GROUP}"]) as reader:  # dead letters are a topic too
    print("dead letter:", *(letter.text for letter in reader.poll(timeout=10)))
