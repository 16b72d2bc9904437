"""Peak shaving: a burst is stored as fast as it comes and processed at the pace of the backend."""

import queue
import threading
import time

from turbopump import Consumer, Message, MessageExt, Producer

BURST, WORKERS = 400, 4

with Producer("sale") as producer:
    began = time.monotonic()
    producer.send_batch([Message("SaleTopic", b"order %d" % number) for number in range(BURST)])
    print(f"the sale: {BURST} orders accepted")

# The backend can process four orders at a time: four workers, and few prefetched messages.
consumer = Consumer(
    "backend",
    consume_thread_min=WORKERS,
    consume_thread_max=WORKERS,
    pull_threshold_for_queue=32,
)
at_work = most_at_work = 0
counting = threading.Lock()
finished: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on("SaleTopic")
def process(message: MessageExt) -> None:
    global at_work, most_at_work
    with counting:
        at_work += 1
        most_at_work = max(most_at_work, at_work)
    time.sleep(0.002)
    with counting:
        at_work -= 1
    finished.put(message.text)


with consumer:
    for _ in range(BURST):
        finished.get(timeout=30)
print(f"the backend: all done, never more than {WORKERS} at a time: {most_at_work <= WORKERS}")
