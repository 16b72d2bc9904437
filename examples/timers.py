"""Messages that are delivered at a given time, and one that is recalled before its time.

Brokers of 5.x keep them: ours to the millisecond and ten years ahead, Apache's to the second and three days.
"""

import queue
import time
from datetime import UTC, datetime, timedelta

from turbopump import Consumer, Message, MessageExt, Producer

with Producer("calendar") as producer:
    began = time.time()
    producer.send(Message("AlarmTopic", b"in a second and a half", delay=1.5))
    at = datetime.now(UTC) + timedelta(seconds=1)
    producer.send(Message("AlarmTopic", b"at a moment", deliver_at=at))
    receipt = producer.send(Message("AlarmTopic", b"never", delay=timedelta(seconds=2)))
    assert receipt.recall_handle is not None
    recalled = producer.recall("AlarmTopic", receipt.recall_handle)
    print("taken back:", recalled == receipt.message_id)

consumer = Consumer("sleeper")
alarms: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()


@consumer.on("AlarmTopic")
def ring(message: MessageExt) -> None:
    alarms.put((message.text, time.time()))


with consumer:
    for least in (1.0, 1.5):
        text, moment = alarms.get(timeout=30)
        print(f"{text}: not before its time: {moment - began >= least}")
    time.sleep(1)
    print("nothing else came:", alarms.empty())
