"""What a row must be: a record as servers and clients read it, one by one."""

from datetime import UTC, datetime, timedelta

from turbopump.protocol import record as codec
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.ids import host_text, offset_id
from turbopump.protocol.record import Record


def expected(one: Record, broker: str | None = None) -> dict:
    pairs = one.property_map()
    return {
        "topic": one.topic,
        "brokerName": broker,
        "queueId": one.queue_id,
        "queueOffset": one.queue_offset,
        "msgId": pairs.get("UNIQ_KEY") or offset_id(one.store_host, one.physical_offset),
        "tags": pairs.get("TAGS"),
        "keys": pairs.get("KEYS"),
        "body": body_of(one),
        "bornTimestamp": time_of(one.born_timestamp),
        "storeTimestamp": time_of(one.store_timestamp),
        "reconsumeTimes": one.reconsume_times,
        "flag": one.flag,
        "properties": list(pairs.items()),
        "sysFlag": one.sys_flag,
        "bornHost": host_text(one.born_host),
        "storeHost": host_text(one.store_host),
        "offsetMsgId": offset_id(one.store_host, one.physical_offset),
        "commitLogOffset": one.physical_offset,
        "storeSize": one.size,
    }


def expected_for_kafka(one: Record) -> dict:
    pairs = one.property_map()
    keys = [key for key in pairs.get("KEYS", "").split(" ") if key]
    return {
        "key": keys[0].encode() if keys else None,
        "value": body_of(one),
        "topic": one.topic,
        "partition": one.queue_id,
        "offset": one.queue_offset,
        "timestamp": time_of(one.store_timestamp),
        "timestampType": 1,
        "headers": [{"key": name, "value": value.encode()} for name, value in pairs.items()],
    }


def body_of(one: Record) -> bytes | None:
    try:
        return codec.body_of(one)
    except BrokenBody:
        return None


def time_of(in_ms: int) -> datetime | None:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=in_ms)
    except OverflowError:
        return None
