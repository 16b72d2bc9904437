"""Pull: the program decides when to read messages, and when they are done."""

from turbopump import Message, Producer, PullConsumer

with Producer("orders") as producer:
    for number in range(40):
        producer.send(Message("ExportTopic", b"order %d" % number))

# As a member of a group: queues are divided among its members, offsets are kept by the broker.
with PullConsumer("export", topics=["ExportTopic"], auto_commit=False) as consumer:
    exported = 0
    while messages := consumer.poll(timeout=2):
        exported += len(messages)  # … write them to a file …
        consumer.commit()  # and commit only then
    print("exported:", exported)

with PullConsumer("export", topics=["ExportTopic"]) as consumer:
    print("again:", len(consumer.poll(timeout=1)))  # the group continues where it committed

# Without a group: any queue, any offset; no committed offset changes.
with PullConsumer("look") as consumer:
    for queue in consumer.queues("ExportTopic"):
        pulled = consumer.pull(queue, consumer.min_offset(queue), 3)
        print(f"queue {queue.id}: {len(pulled.messages)} of {pulled.max_offset}, next {pulled.next_offset}")
