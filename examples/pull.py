"""Pull: the program decides when it wants messages, and when they are done."""

from turbopump import Message, Producer, PullConsumer

with Producer("orders") as producer:
    for number in range(40):
        producer.send(Message("ExportTopic", b"order %d" % number))

# As a member of a group: queues are divided among its members, offsets are kept by the broker.
with PullConsumer("export", topics=["ExportTopic"], auto_commit=False) as consumer:
    exported = 0
    while messages := consumer.poll(timeout=2):
        exported += len(messages)  # … write them to a file …
        consumer.commit()  # and only then tell the broker
    print("exported:", exported)

with PullConsumer("export", topics=["ExportTopic"]) as consumer:
    print("again:", len(consumer.poll(timeout=1)))  # the group goes on where it committed

# By hand: any queue, any offset, nobody's progress is changed.
with PullConsumer("look") as consumer:
    for queue in consumer.queues("ExportTopic"):
        pulled = consumer.pull(queue, consumer.min_offset(queue), 3)
        print(f"queue {queue.id}: {len(pulled.messages)} of {pulled.max_offset}, next {pulled.next_offset}")
