"""Formats a message as Apache's tools print it, and as a JSON document."""

import base64
from collections.abc import Mapping

from turbopump.admin.render import moment
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.protocol import body_text, ids, properties
from turbopump.protocol.body_text import printable
from turbopump.protocol.errors import BrokenBody, BrokenRecord
from turbopump.protocol.record import Record


def document(message: MessageExt) -> dict[str, object]:
    record = message.record
    return {
        "topic": record.topic,
        "brokerName": message.queue.broker or None,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "tags": message.tags,
        "keys": message.properties.get(properties.KEYS),
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "storeSize": record.size,
        "properties": dict(message.properties),
        **body_fields(message),
    }


def body_fields(message: MessageExt) -> dict[str, str]:
    """Returns `body` for text, else `bodyBase64`, as JSON fields from which the bytes can be restored."""
    try:
        body = message.body
    except BrokenBody as error:
        return {"bodyBase64": base64.b64encode(message.record.body).decode(), "bodyError": str(error)}
    return body_text.body_fields(body)


def detail_lines(message: MessageExt, with_offset_id: bool = True) -> list[str]:
    """Returns the lines about a message that `queryMsgById` and similar commands print."""
    record = message.record
    rows = {
        "OffsetID:": message.offset_message_id,
        "Topic:": record.topic,
        "Tags:": f"[{message.tags or 'null'}]",
        "Keys:": f"[{message.properties.get(properties.KEYS, 'null')}]",
        "Queue ID:": record.queue_id,
        "Queue Offset:": record.queue_offset,
        "CommitLog Offset:": record.physical_offset,
        "Reconsume Times:": record.reconsume_times,
        "Born Timestamp:": moment(record.born_timestamp),
        "Store Timestamp:": moment(record.store_timestamp),
        "Born Host:": host_text(record.born_host),
        "Store Host:": host_text(record.store_host),
        "System Flag:": record.sys_flag,
        "Properties:": map_text(message.properties),
    }
    if not with_offset_id:
        del rows["OffsetID:"]
    return [printable(f"{label:<20} {value}") for label, value in rows.items()]


def message_line(message: MessageExt, body: str) -> str:
    """Formats a message in one line, as `printMsg` does."""
    return printable(f"MSGID: {message.message_id} {message_text(message)} BODY: {body}")


def message_text(message: MessageExt) -> str:
    """Formats a message in one line, as Java's MessageExt.toString, with control bytes escaped."""
    record = message.record
    fields = {
        "brokerName": message.queue.broker or "null",
        "queueId": record.queue_id,
        "storeSize": record.size,
        "queueOffset": record.queue_offset,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": f"/{host_text(record.born_host)}",
        "storeTimestamp": record.store_timestamp,
        "storeHost": f"/{host_text(record.store_host)}",
        "msgId": message.offset_message_id,
        "commitLogOffset": record.physical_offset,
        "bodyCRC": record.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "toString()": _inner_text(message, record),
    }
    return printable(f"MessageExt [{', '.join(f'{name}={value}' for name, value in fields.items())}]")


def _inner_text(message: MessageExt, record: Record) -> str:
    signed = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in plain_body(message))
    return (
        f"Message{{topic='{record.topic}', flag={record.flag}, properties={map_text(message.properties)}, "
        f"body=[{signed}], transactionId='null'}}"
    )


def shown_body(message: MessageExt, charset: str = "utf-8") -> str:
    """Returns the body as one line of text for a terminal, decoded by `charset`."""
    return body_text.body_text(plain_body(message), charset)


def plain_body(message: MessageExt) -> bytes:
    """Returns the body as it was sent, or as it is stored when it cannot be decompressed."""
    try:
        return message.body
    except BrokenBody:
        return message.record.body


def queue_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.id}]"


def map_text(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}={values[name]}" for name in sorted(values)) + "}"


def host_text(host: bytes) -> str:
    try:
        return ids.host_text(host)
    except BrokenRecord:
        return "null"
