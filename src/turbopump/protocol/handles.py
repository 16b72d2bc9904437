"""Recall handles, by which a producer cancels a timed message: base64 of five words.

v1 TOPIC BROKER TIME-OF-DELIVERY-IN-MS UNIQUE-KEY
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

VERSION = "v1"
WORDS = 5


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """Names one timed message: topic, broker, time of delivery and unique key."""

    topic: str
    broker: str
    due_ms: str
    """Kept as text, because a broker refuses a handle whose time is not a number with another remark."""
    unique_key: str

    def pack(self) -> str:
        words = (VERSION, self.topic, self.broker, self.due_ms, self.unique_key)
        return urlsafe_b64encode(" ".join(words).encode()).decode()


def read_handle(text: str) -> RecallHandle | None:
    """Decodes a handle; returns None for invalid base64, another version or fewer than five words."""
    try:
        words = urlsafe_b64decode(text.encode()).decode().split(" ")
    except ValueError:
        return None
    if len(words) < WORDS or words[0] != VERSION:
        return None
    return RecallHandle(*words[1:WORDS])
