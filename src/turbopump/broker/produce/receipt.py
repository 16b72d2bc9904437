"""Makes the fields of the answer to a send, with its receipt: how safely the message was stored by then.

Apache's clients read `msgId`, `queueId`, `queueOffset` and the region fields; `durability`, `replicas`,
`replicasOnDisk` and `delayLevel` (the level that is applied) are ours, and other clients ignore them.
`replicas` is how many brokers have the message, `replicasOnDisk` how many of them have it on disk, where
slaves were waited for. `durability` is about this broker's own copy:

    buffer   in this process's memory only (transient store pool): lost when the process dies
    memory   in the operating system's page cache: survives the process, lost with the power
    disk     synced to the medium
    quorum   a majority of a DLedger group has it; `term` and `index` name the entry, that of the last message
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from turbopump.broker.acknowledgement import Safety
from turbopump.protocol.codes import VERSION
from turbopump.protocol.ids import offset_id
from turbopump.store.append import Appended

INDEX_HERE = "index of the entry"
"""Stands in the constant pieces of an answer where the index goes."""


@dataclass(frozen=True, slots=True)
class Receipts:
    """Makes the fields of answers to sends, for one broker address and region."""

    store_host: bytes
    region: str
    trace_on: bool
    index_of: Callable[[int], int] = lambda offset: -1
    """Returns the index of the entry with the record at a log offset, in a DLedger group."""

    def refused(self) -> dict[str, str]:
        """Returns the fields of an answer to a refused send: TRACE_ON and MSG_REGION, as Apache's broker."""
        return {"TRACE_ON": _flag(self.trace_on), "MSG_REGION": self.region}

    def fields(
        self, queue_id: int, appended: Sequence[Appended], unique_key: str | None, safety: Safety
    ) -> dict[str, str]:
        """Returns the answer fields of a stored send, in the order of `template`.

        So both ways give the same bytes. `appended` has one entry for each message of a batch; the queue
        offset is that of the first.
        """
        ids = ",".join(offset_id(self.store_host, offset) for offset, _, _ in appended)
        fields = self.fields_with(queue_id, ids, appended[0][1], unique_key, safety)
        if safety.term is not None:
            fields |= {"term": str(safety.term), "index": str(self.index_of(appended[-1][0]))}
        return fields

    def fields_with(
        self, queue_id: int, ids: str, queue_offset: int, unique_key: str | None, safety: Safety
    ) -> dict[str, str]:
        """Returns the answer fields of a stored send, for message ids `ids` joined by commas."""
        fields = {"queueId": str(queue_id)}
        if unique_key is not None:
            fields["transactionId"] = unique_key
        fields["msgId"] = ids
        fields |= self.refused()
        fields["queueOffset"] = str(queue_offset)
        fields["durability"] = safety.durability
        fields["replicas"] = str(safety.replicas)
        if safety.replicas_on_disk is not None:
            fields["replicasOnDisk"] = str(safety.replicas_on_disk)
        return fields

    def parts(self, safety: Safety) -> tuple[bytes, ...]:
        """Returns the six constant pieces of an answer's JSON header, between which five values go.

        The values: queue id, unique key, log offset, queue offset and opaque.
        """
        region = msgspec.json.encode(self.region).decode()
        stored = f'","durability":"{safety.durability}","replicas":"{safety.replicas}"'
        if safety.replicas_on_disk is not None:
            stored += f',"replicasOnDisk":"{safety.replicas_on_disk}"'
        if safety.term is not None:
            stored += f',"term":"{safety.term}","index":"{INDEX_HERE}"'
        remark = f',"remark":{msgspec.json.encode(safety.remark).decode()}' if safety.remark else ""
        return (
            b'{"code":%d,"extFields":{"queueId":"' % safety.code,
            b'","transactionId":"',
            f'","msgId":"{self.store_host.hex().upper()}'.encode(),
            f'","TRACE_ON":"{_flag(self.trace_on)}","MSG_REGION":{region},"queueOffset":"'.encode(),
            f'{stored}}},"flag":1,"language":"PYTHON","opaque":'.encode(),
            f'{remark},"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'.encode(),
        )

    def template(self, safety: Safety) -> bytes:
        """Returns an answer's JSON header as a bytes `%` template for five values.

        The values: queue id, unique key, log offset, queue offset and opaque; in a DLedger group the index of
        the entry before the last.
        """
        marks = (b"%d", b"%b", b"%016X", b"%d", b"%d", b"")
        parts = (part.replace(b"%", b"%%") for part in self.parts(safety))
        made = b"".join(part + mark for part, mark in zip(parts, marks, strict=True))
        return made.replace(INDEX_HERE.encode(), b"%d")


def _flag(value: bool) -> str:
    return "true" if value else "false"
