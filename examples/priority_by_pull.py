"""Priority, third pattern: strict. B is read only when A is empty, C only when B is empty too.

Three topics and pulls: the program asks for one message after the other, the most important topic first.
"""

from contextlib import ExitStack

from turbopump import Message, Producer, PullConsumer

TOPICS = ("PriorityA", "PriorityB", "PriorityC")

with Producer("work") as producer:
    for topic in reversed(TOPICS):  # the least important work comes first
        for number in range(3):
            producer.send(Message(topic, f"{topic[-1]}{number}".encode()), by=topic)

with ExitStack() as stack:
    # Small steps: fetched messages of C are not returned when one arrives in A.
    consumers = [
        stack.enter_context(PullConsumer(f"workers-{topic[-1]}", topics=[topic], pull_batch_size=1))
        for topic in TOPICS
    ]
    first = consumers[0].poll(timeout=10)  # wait until the queues of A are assigned; the others are too then
    done = [message.text for message in first]
    while len(done) < 9:
        for consumer in consumers:
            if found := consumer.poll(timeout=0.2):
                done += [message.text for message in found]
                break  # back to the most important one
print("done in the order:", *done)
