"""The smallest program: send a message, consume it."""

import queue

from turbopump import Consumer, Message, MessageExt, Producer

# Name servers come from NAMESRV_ADDR; Producer("orders", name_servers="127.0.0.1:9876") names them here.
with Producer("orders") as producer:
    receipt = producer.send(Message("OrderTopic", b"order A-1 is paid", tags="paid", keys="A-1"))
    print(f"sent: {receipt.status.name}, message {receipt.offset} of its queue")

consumer = Consumer("billing")
billed: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on("OrderTopic")
def bill(message: MessageExt) -> None:  # runs in a thread; raising an exception means "again later"
    billed.put(message.text)


with consumer:  # a program that does nothing else calls consumer.run() instead
    print("consumed:", billed.get(timeout=30))
