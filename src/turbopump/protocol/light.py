"""Light queues (LMQ): one record that is read from many queues, which are named in the record.

A sender names them in a property, separated by commas; the broker adds the offset of the message in each.
They are consume queues like all others (queue 0 of a "topic" that begins with %LMQ%), but no record has such
a topic: everything about them is derived from these two properties.

    INNER_MULTI_DISPATCH      %LMQ%a,%LMQ%b
    INNER_MULTI_QUEUE_OFFSET  17,4
"""

from turbopump.protocol import properties as props
from turbopump.protocol.names import (
    CHECK_MAX_TIME_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    LIGHT_PREFIX,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIX,
)

SEPARATOR = ","
QUEUE_ID = 0
MAX_NAME = 255  # bytes: it is the name of a directory
MAX_DIGITS = 18  # of an offset
NAMES_MARK = props.INNER_MULTI_DISPATCH.encode() + b"\x01"
OFFSETS_MARK = props.INNER_MULTI_QUEUE_OFFSET.encode() + b"\x01"
EXCLUDED_TOPICS = frozenset((SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC))
EXCLUDED_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_PREFIX, LIGHT_PREFIX)


def takes_part(topic: str) -> bool:
    """Tells whether messages of this topic can be in light queues; delayed, half and retried ones cannot."""
    return topic not in EXCLUDED_TOPICS and not topic.startswith(EXCLUDED_PREFIXES)


def named(text: str) -> list[str]:
    """Splits the property INNER_MULTI_DISPATCH into names of light queues, each once."""
    return [name for name in dict.fromkeys(text.split(SEPARATOR)) if name]


def is_good(name: str) -> bool:
    """Returns whether a light queue can have this name: it begins with %LMQ% and can name a directory."""
    if not name.startswith(LIGHT_PREFIX) or "/" in name or "\0" in name:
        return False
    return len(LIGHT_PREFIX) < len(name.encode("utf-8", "replace")) <= MAX_NAME


def offsets_size(names: list[str]) -> int:
    """Returns the greatest number of bytes of the property with the offsets in these queues."""
    return len(OFFSETS_MARK) + (MAX_DIGITS + 1) * len(names)


def places(properties: bytes) -> list[tuple[str, int]]:
    """Returns name and offset of each light queue of a stored message; [] if their counts differ."""
    names = (props.find(properties, props.INNER_MULTI_DISPATCH) or "").split(SEPARATOR)
    offsets = (props.find(properties, props.INNER_MULTI_QUEUE_OFFSET) or "").split(SEPARATOR)
    while names and not names[-1]:  # as Java splits
        names.pop()
    if len(names) != len(offsets):
        return []
    found: dict[str, int] = {}
    for name, offset in zip(names, offsets, strict=True):
        is_number = offset.isascii() and offset.isdigit() and len(offset) <= MAX_DIGITS
        if is_good(name) and is_number:
            found.setdefault(name, int(offset))
    return list(found.items())


def with_places(properties: bytes, found: list[tuple[str, int]]) -> bytes:
    """Returns the property string changed so that the message is in exactly these light queues."""
    for mark in (OFFSETS_MARK, NAMES_MARK):
        properties = props.without(properties, mark)
    text = properties.decode("utf-8", "replace")
    if found:
        text = props.append(text, props.INNER_MULTI_DISPATCH, SEPARATOR.join(name for name, _ in found))
        offsets = SEPARATOR.join(str(offset) for _, offset in found)
        text = props.append(text, props.INNER_MULTI_QUEUE_OFFSET, offsets)
    return text.encode()
