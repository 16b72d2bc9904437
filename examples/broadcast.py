"""Broadcast: each consumer of the group gets every message, for caches and configuration.

Each consumer keeps its offsets in a file, and a message that fails is not delivered again.
"""

import queue
import tempfile

from turbopump import ConsumeFromWhere, Consumer, Message, Producer

with Producer("settings") as producer:
    producer.send(Message("SettingTopic", b"discount=10"))
    producer.send(Message("SettingTopic", b"discount=20"))

heard: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()


def server(name: str) -> Consumer:
    """Each would be on a machine of its own and keep its offsets in ~/.rocketmq_offsets."""
    consumer = Consumer(
        "web-servers",
        instance_name=name,
        local_offset_store_dir=tempfile.mkdtemp(),
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("SettingTopic", lambda message: heard.put((name, message.text)), broadcast=True)
    return consumer


with server("web-1"), server("web-2"):
    for name, setting in sorted(heard.get(timeout=30) for _ in range(4)):
        print(name, setting)
