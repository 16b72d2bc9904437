"""The expected state: every sent message, its acknowledged position, and the guarantees given."""

from dataclasses import dataclass, field

from turbopump.protocol import properties as props
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.record import Record
from turbopump.protocol.sysflag import HOSTS_MASK, PREPARED, ROLLBACK, TRANSACTION_MASK


@dataclass(slots=True)
class SentMessage:
    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: bytes
    sys_flag: int
    delay_ms: int = -1
    on_disk: bool = False  # acknowledged as on disk
    count: int = 1  # messages in the record
    is_deleted: bool = False  # its topic was deleted: the record exists, but no queue entry

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def in_queue(self) -> bool:
        return self.sys_flag & TRANSACTION_MASK not in (PREPARED, ROLLBACK)

    @property
    def keys(self) -> list[str]:
        if self.sys_flag & TRANSACTION_MASK == ROLLBACK:
            return []
        found = [props.find(self.properties, props.UNIQUE_KEY) or ""]
        found += (props.find(self.properties, props.KEYS) or "").split(" ")
        return [key for key in found if key]

    def tags_code(self, store_timestamp: int) -> int:
        if self.delay_ms >= 0:
            return store_timestamp + self.delay_ms
        tag = props.find(self.properties, props.TAGS)
        return java_hash(tag) if tag else 0

    def differences(self, record: Record) -> list[str]:
        """Describes how the record differs from what was sent."""
        pairs = {
            "offset": (record.physical_offset, self.offset),
            "size": (record.size, self.size),
            "topic": (record.topic, self.topic),
            "queue id": (record.queue_id, self.queue_id),
            "queue offset": (record.queue_offset, self.queue_offset),
            "body": (record.body, self.body),
            "properties": (record.properties, self.properties),
            "sys flag": (record.sys_flag & ~HOSTS_MASK, self.sys_flag),
        }
        return [f"{name} {found!r} is not {sent!r}" for name, (found, sent) in pairs.items() if found != sent]


@dataclass(slots=True)
class Model:
    """Sent messages in log order. Those a recovery did not find are removed and must never come back."""

    sent: list[SentMessage] = field(default_factory=list)
    synced: int = 0  # everything below was acknowledged as on disk
    deleted_below: int = 0  # files before this were deleted; a crash may restore some of them
    disk_failures: int = 0
    deleted_topics: set[str] = field(default_factory=set)

    def end(self) -> int:
        return self.sent[-1].end if self.sent else 0

    def forget_queues(self, topic: str) -> None:
        self.deleted_topics.add(topic)
        for sent in self.sent:
            sent.is_deleted = sent.is_deleted or sent.topic == topic

    def forget_from(self, offset: int) -> None:
        while self.sent and self.sent[-1].offset >= offset:
            self.sent.pop()

    def forget_before(self, offset: int) -> None:
        self.sent = [sent for sent in self.sent if sent.offset >= offset]
