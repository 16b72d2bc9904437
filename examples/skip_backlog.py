"""Skipping a backlog: after a long stop, old messages are worthless, and the newest should come soon.

`message.behind` is the number of messages after this one in its queue. (`mqadmin resetOffsetByTime` and
`admin.offsets` move a whole group.)
"""

import queue

from turbopump import Consumer, Message, MessageExt, Producer

TOO_OLD = 100

with Producer("prices") as producer:
    for number in range(1000):
        producer.send_oneway(Message("PriceTickTopic", b"%d" % number), by="the only queue")
    producer.send(Message("PriceTickTopic", b"the newest"), by="the only queue")

consumer = Consumer("ticker")
shown: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on("PriceTickTopic", ordered=True)
def show(message: MessageExt) -> None:
    if message.behind > TOO_OLD:
        return  # counts as consumed
    shown.put(message.text)


with consumer:
    prices = [shown.get(timeout=30)]
    while prices[-1] != "the newest":
        prices.append(shown.get(timeout=30))
print(f"skipped the old ones: {len(prices) < 500}, ended with: {prices[-1]}")
