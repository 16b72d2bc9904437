"""Request and reply: a call over messages. The sender waits for the reply of the consumer that gets it."""

from turbopump import Consumer, Message, MessageExt, Producer
from turbopump.errors import RequestTimedOut

TOPIC = "PriceTopic"
asking = Producer("askers")
answering = Producer("answerers")
consumer = Consumer("price-list", rebalance_wait_interval=1)


@consumer.on(TOPIC)
def price(message: MessageExt) -> None:
    answering.reply(message, {"tea": b"3.50", "coffee": b"4.20"}[message.text])


with asking, answering, consumer:
    # The first request creates the topic, and the consumer needs a moment to find it: hence the long timeout.
    answer = asking.request(Message(TOPIC, b"coffee"), timeout=40)
    print("coffee:", answer.text)
    print("tea:", asking.request(Message(TOPIC, b"tea")).text)
    try:
        asking.request(Message(TOPIC, b"cocoa"), timeout=1)  # the handler fails, so no reply comes
    except RequestTimedOut:
        print("cocoa: no answer")
