"""The answer to a send, with its receipt: where the message was when we answered.

Apache's clients read `msgId`, `queueId`, `queueOffset` and the region fields; `durability`, `replicas`
and `delayLevel` (the level that is applied) are ours and ignored by everyone else. `durability` is one of

    buffer   in this process's memory only (transient store pool): lost when the process dies
    memory   in the operating system's page cache: survives the process, lost with the power
    disk     synced to the medium
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from turbopump.protocol.codes import VERSION, ResponseCode
from turbopump.protocol.ids import offset_id
from turbopump.store.append import Appended
from turbopump.store.flush import Durability

CODES = {
    Durability.BUFFER: ResponseCode.SUCCESS,
    Durability.MEMORY: ResponseCode.SUCCESS,
    Durability.DISK: ResponseCode.SUCCESS,
    Durability.TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    Durability.FAILED: ResponseCode.FLUSH_DISK_TIMEOUT,
}
NAMES = {Durability.TIMEOUT: "memory", Durability.FAILED: "memory"}


@dataclass(frozen=True, slots=True)
class Receipts:
    """Makes answers. Knows the broker's address and region, and what the replication role promises."""

    store_host: bytes
    region: str
    trace_on: bool
    lacks_slave: bool = False  # SYNC_MASTER: stored, but nobody else has it

    def code(self, durability: Durability, waits: bool) -> ResponseCode:
        """`waits`: whether the producer asked for flush and replica to be awaited (WAIT is not false)."""
        if self.lacks_slave and waits:
            return ResponseCode.SLAVE_NOT_AVAILABLE
        return CODES[durability]

    def refused(self) -> dict[str, str]:
        """The fields that Apache's broker sends with every refused send."""
        return {"TRACE_ON": _flag(self.trace_on), "MSG_REGION": self.region}

    def fields(
        self, queue_id: int, appended: Sequence[Appended], unique_key: str | None, durability: Durability
    ) -> dict[str, str]:
        """In the order of `template`, so that both ways of answering give the same bytes."""
        ids = ",".join(offset_id(self.store_host, offset) for offset, _, _ in appended)
        return self.fields_with(queue_id, ids, appended[0][1], unique_key, durability)

    def fields_with(
        self, queue_id: int, ids: str, queue_offset: int, unique_key: str | None, durability: Durability
    ) -> dict[str, str]:
        """The same for who has the ids of the messages, with commas between."""
        fields = {"queueId": str(queue_id)}
        if unique_key is not None:
            fields["transactionId"] = unique_key
        fields["msgId"] = ids
        fields |= self.refused()
        fields["queueOffset"] = str(queue_offset)
        fields["durability"] = NAMES.get(durability, durability.value)
        fields["replicas"] = "1"
        return fields

    def parts(self, code: ResponseCode, durability: Durability) -> tuple[bytes, ...]:
        """A JSON header around queue id, unique key, log offset, queue offset and opaque."""
        region = msgspec.json.encode(self.region).decode()
        name = NAMES.get(durability, durability.value)
        return (
            b'{"code":%d,"extFields":{"queueId":"' % code,
            b'","transactionId":"',
            f'","msgId":"{self.store_host.hex().upper()}'.encode(),
            f'","TRACE_ON":"{_flag(self.trace_on)}","MSG_REGION":{region},"queueOffset":"'.encode(),
            f'","durability":"{name}","replicas":"1"}},"flag":1,"language":"PYTHON","opaque":'.encode(),
            b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION,
        )

    def template(self, code: ResponseCode, durability: Durability) -> bytes:
        """The same, to be filled by `%`."""
        marks = (b"%d", b"%b", b"%016X", b"%d", b"%d", b"")
        parts = (part.replace(b"%", b"%%") for part in self.parts(code, durability))
        return b"".join(part + mark for part, mark in zip(parts, marks, strict=True))


def _flag(value: bool) -> str:
    return "true" if value else "false"
