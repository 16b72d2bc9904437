"""Order by key: the messages of one key arrive in order, those of different keys in parallel."""

import queue
from collections import defaultdict

from turbopump import Consumer, Message, MessageExt, Producer

STEPS = ("created", "paid", "sent", "received")

with Producer("orders") as producer:
    for step in STEPS:
        for order in ("A-1", "B-2", "C-3"):
            # `by`: same key, same queue. Within a queue messages keep their order.
            producer.send(Message("StepTopic", step.encode(), keys=order), by=order)

consumer = Consumer("tracking")
seen: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()


@consumer.on("StepTopic", ordered=True)  # one message of a queue at a time; a failure holds the queue
def follow(message: MessageExt) -> None:
    seen.put((message.keys[0], message.text))


with consumer:
    history = defaultdict(list)
    for _ in range(3 * len(STEPS)):
        order, step = seen.get(timeout=30)
        history[order].append(step)
for order, steps in sorted(history.items()):
    print(order, "→".join(steps))
