"""The handle by which a producer recalls a message that waits for its time: base64 of five words.

v1 TOPIC BROKER TIME-OF-DELIVERY-IN-MS UNIQUE-KEY
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

VERSION = "v1"
WORDS = 5


@dataclass(frozen=True, slots=True)
class Handle:
    topic: str
    broker: str
    due_ms: str
    """As it was written: brokers tell apart a time that is none."""
    unique_key: str

    def pack(self) -> str:
        words = (VERSION, self.topic, self.broker, self.due_ms, self.unique_key)
        return urlsafe_b64encode(" ".join(words).encode()).decode()


def read_handle(text: str) -> Handle | None:
    """None: it is no such handle."""
    try:
        words = urlsafe_b64decode(text.encode()).decode().split(" ")
    except ValueError:
        return None
    if len(words) < WORDS or words[0] != VERSION:
        return None
    return Handle(*words[1:WORDS])
