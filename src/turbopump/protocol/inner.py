"""Inner batches: the messages of one batch send, kept and handed out as one record.

Topics with the attribute queue.type=BatchCQ keep them so. The record's body is that of the send (`batch.py`),
two bits of its flag say so, and properties tell how many messages there are and the offset of the first; the
others have the next ones. Whoever reads the record takes it apart.

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
    """Whether the body is a batch that a reader takes apart."""
    return sys_flag & FLAGS == FLAGS


def count(properties: bytes) -> int:
    """How many messages a stored record has by its properties; 1 when they do not say."""
    if MARK not in properties:
        return 1
    number = props.number(props.find(properties, props.INNER_NUM) or "")
    return number if number is not None and 0 < number <= MAX_MESSAGES else 1


def unwrapped(body: bytes, properties: bytes, queue_offset: int) -> Iterator[tuple[int, Message]]:
    """The messages with their offsets. Raises BrokenBody."""
    base = props.find(properties, props.INNER_BASE) or ""
    first = int(base) if base.isascii() and base.isdigit() else queue_offset
    for number, message in enumerate(batch.split(body)):
        yield first + number, message


def messages_of(record: Record) -> list[Record]:
    """Each message of an inner batch as a record of its own; another record is its only message. So is one
    whose body is no batch: the reader gets what there is.
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
    """The messages of what a sender calls an inner batch. Raises BrokenBody."""
    messages = batch.split(body)
    said = props.number(properties.get(props.INNER_NUM, ""))
    if said != len(messages) or not 0 < len(messages) <= MAX_MESSAGES:
        raise BrokenBody(f"{len(messages)} messages where INNER_NUM says {said}")
    return messages
