"""What the tests of golden stores share with others."""

from turbopump.protocol import record as codec
from turbopump.protocol.hashing import java_hash
from turbopump.store.append import Draft
from turbopump.store.store import Store


def draft_of(record: codec.Record, ours: Store, apache: Store) -> Draft:
    queue = ours.queues.queue(record.topic, record.queue_id)
    code = java_hash(record.tags) if record.tags else 0
    delay_ms = -1
    if record.topic == "SCHEDULE_TOPIC_XXXX":
        theirs = apache.queues.queue(record.topic, record.queue_id)
        delay_ms = theirs.tags_code(theirs.entry(record.queue_offset)[2]) - record.store_timestamp
    return Draft(
        queue, record.body, record.properties, record.flag, record.sys_flag, record.born_timestamp,
        record.born_host, code, record.unique_key or "", record.keys or "", record.reconsume_times,
        record.prepared_transaction_offset, delay_ms=delay_ms,
    )  # fmt: skip
