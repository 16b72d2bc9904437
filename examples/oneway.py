"""Sends without an answer: for logs and metrics, where speed matters more than a single message."""

from turbopump import Message, Producer, PullConsumer

with Producer("loggers") as producer:
    for number in range(1000):
        producer.send_oneway(Message("LogTopic", b"line %d" % number))  # does not wait for the broker
    print("sent: 1000 messages; whether they are stored is not known")

with PullConsumer("log-readers", topics=["LogTopic"]) as consumer:
    stored = 0
    while found := consumer.poll(timeout=2):
        stored += len(found)
print("stored:", stored)
