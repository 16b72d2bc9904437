"""Inner batches: the messages of one batch send, stored and delivered as one record.

Topics with the attribute queue.type=BatchCQ store batches in this form. The record's body is that of the send
(`batch.py`), two bits of its flag mark it, and properties hold the number of messages and the offset of the
first; the others have the following offsets. The reader splits the record.

    INNER_NUM   3
    INNER_BASE  17
"""

from collections.abc import Iterator

from msgspec.structs import replace

from turbopump.protocol import batch
from turbopump.protocol import properties as props
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.record import Record
from turbopump.protocol.sysflag import INNER_BATCH, NEED_UNWRAP

QUEUE_TYPE = "queue.type"
OF_BATCHES = "BatchCQ"
FLAGS = INNER_BATCH | NEED_UNWRAP
MAX_MESSAGES = 32_767  # a 16-bit number
MARK = props.INNER_NUM.encode() + b"\x01"

Message = tuple[int, bytes, bytes]
"""Flag, body, properties."""


def is_wrapped(sys_flag: int) -> bool:
    """Returns whether the sys flag marks a record whose body is a batch that a reader has to split."""
    return sys_flag & FLAGS == FLAGS


def count(properties: bytes) -> int:
    """Returns the number of messages in a stored record by its properties; 1 without the property."""
    if MARK not in properties:
        return 1
    number = props.number(props.find(properties, props.INNER_NUM) or "")
    return number if number is not None and 0 < number <= MAX_MESSAGES else 1


def unwrapped(body: bytes, properties: bytes, queue_offset: int) -> Iterator[tuple[int, Message]]:
    """Yields queue offset and (flag, body, properties) of each message of a batch. Raises BrokenBody."""
    base = props.find(properties, props.INNER_BASE) or ""
    first = int(base) if base.isascii() and base.isdigit() else queue_offset
    for number, message in enumerate(batch.split(body)):
        yield first + number, message


def messages_of(record: Record) -> list[Record]:
    """Splits an inner batch into one record per message; any other record is returned alone.

    A record whose body is not a valid batch is returned alone too, so that a reader gets what is stored.
    """
    if not is_wrapped(record.sys_flag):
        return [record]
    try:
        messages = list(unwrapped(record.body, record.properties, record.queue_offset))
    except BrokenBody:
        return [record]
    sys_flag = record.sys_flag & ~FLAGS
    return [
        replace(record, queue_offset=at, flag=flag, sys_flag=sys_flag, body=body, properties=properties)
        for at, (flag, body, properties) in messages
    ]


def checked(body: bytes, properties: dict[str, str]) -> list[Message]:
    """Splits the body of an inner batch; raises BrokenBody unless INNER_NUM is its number of messages."""
    messages = batch.split(body)
    said = props.number(properties.get(props.INNER_NUM, ""))
    if said != len(messages) or not 0 < len(messages) <= MAX_MESSAGES:
        raise BrokenBody(f"INNER_NUM must be the number of messages, {len(messages)}, got {said}")
    return messages
