"""Many messages in one request, and a handler that gets many at once."""

import queue

from turbopump import Consumer, Message, MessageExt, Producer

with Producer("shop") as producer:
    # All of one topic, without delay. Messages that do not fit into one request are sent in several.
    clicks = [Message("ClickTopic", b"click %d" % number) for number in range(500)]
    receipts = producer.send_batch(clicks)  # one receipt for each message, in their order
    print(f"sent: {len(receipts)} messages, the last at offset {receipts[-1].offset}")

consumer = Consumer("statistics")
sizes: queue.SimpleQueue[int] = queue.SimpleQueue()


@consumer.on("ClickTopic", batch=32)
def count(messages: list[MessageExt]) -> None:  # up to 32; an exception sends all of them back
    sizes.put(len(messages))


with consumer:
    calls: list[int] = []
    while sum(calls) < len(clicks):
        calls.append(sizes.get(timeout=30))
print(f"consumed: {sum(calls)} messages, at most {max(calls)} in a call")
