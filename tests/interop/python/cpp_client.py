"""Sends and push-consumes with PyPI's `rocketmq`, which is Apache's C++ client library behind ctypes.

Arguments: name server, topic, group, number of messages. Prints the bodies that arrived, one in a line. The
package is found through PYTHONPATH.
"""

import os
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]

WITHIN_S = 60.0


def main(namesrv: str, topic: str, group: str, count: int) -> None:
    producer = Producer(group + "-producer")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    for number in range(count):
        message = Message(topic)
        message.set_keys(f"k{number}")
        message.set_tags("a")
        message.set_body(f"m{number}")
        assert producer.send_sync(message).status == 0
    producer.shutdown()

    arrived: set[str] = set()
    complete = threading.Event()

    def take(message: object) -> None:
        arrived.add(message.body.decode())  # type: ignore[attr-defined]
        if len(arrived) == count:
            complete.set()

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, take)
    consumer.start()
    complete.wait(WITHIN_S)
    time.sleep(0.2)  # for one that comes twice, or too many
    for body in sorted(arrived):
        print(f"arrived {body}")
    print("finished", flush=True)
    os._exit(0)  # not through the library's own end, which can hang


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
