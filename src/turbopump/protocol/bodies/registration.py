"""The registration of a broker, plain and in its own compressed form.

Compressed input may be hostile: a few KB on the wire can claim millions of topics. So counts and sizes are
limited here, before anything is parsed.
"""

import struct
import zlib
from typing import Any, Self

import msgspec

from turbopump.protocol.bodies.base import Body, decode, empty_list, new, to_json
from turbopump.protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from turbopump.protocol.codes import V5_0_0, VERSION
from turbopump.protocol.compression import expand_zlib
from turbopump.protocol.errors import BrokenBody

MAX_EXPANDED = 16 * 1024 * 1024  # bytes: the size of the largest frame without compression
MAX_TOPICS = 100_000  # about what fits into a frame of plain JSON; a quarter of a second to read
MAX_MAPPINGS = 10_000  # static topics are few
MAX_MAPPING_BYTES = 2 * 1024 * 1024  # together; their integer keys make them slow to read
MAX_JSON_BYTES = 64 * 1024  # data version, filter servers

_I32 = struct.Struct(">i")
_WORDS = 5  # of a topic
_MIN_I32, _MAX_I32 = -(1 << 31), (1 << 31) - 1


class RegisterBrokerBody(Body):
    filterServerList: list[str] = empty_list()
    topicConfigSerializeWrapper: TopicConfigSerializeWrapper = new(TopicConfigSerializeWrapper)

    @classmethod
    def decode_compressed(cls, data: bytes, version: int = VERSION) -> Self:
        """Decodes the body of a registration with `compressed=true`. Raises BrokenBody.

        Brokers before 5.0 send no mappings at its end.
        """
        reader = _Reader(expand_zlib(data, MAX_EXPANDED))
        wrapper = TopicConfigSerializeWrapper(dataVersion=DataVersion.decode(reader.block(MAX_JSON_BYTES)))
        for _ in range(reader.count(MAX_TOPICS)):
            topic = _topic_of_text(reader.block())
            wrapper.topicConfigTable[topic.topicName] = topic
        servers = reader.block(MAX_JSON_BYTES)
        body = cls(decode(list[str], servers) if servers else [], wrapper)
        if version >= V5_0_0 and reader.left:
            if reader.left > MAX_MAPPING_BYTES:
                raise BrokenBody(f"{reader.left} bytes of mappings in a compressed registration")
            mappings = [decode(dict[str, Any], reader.block()) for _ in range(reader.count(MAX_MAPPINGS))]
            wrapper.topicQueueMappingInfoMap = {str(mapping.get("topic")): mapping for mapping in mappings}
        return body

    def encode_compressed(self, version: int = VERSION) -> bytes:
        """Encodes as zlib of: DataVersion, count and topics as text, filter servers, then (5.0) mappings."""
        wrapper = self.topicConfigSerializeWrapper
        topics = wrapper.topicConfigTable.values()
        out = [_block(wrapper.dataVersion.encode()), _I32.pack(len(topics))]
        out += [_block(_text_of_topic(topic)) for topic in topics]
        out.append(_block(to_json(self.filterServerList)))
        if version >= V5_0_0:
            mappings = (wrapper.topicQueueMappingInfoMap or {}).values()
            out.append(_I32.pack(len(mappings)))
            out += [_block(to_json(mapping)) for mapping in mappings]
        return zlib.compress(b"".join(out), 9)


class _Reader:
    """Reads blocks with an i32 length before each."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def count(self, most: int) -> int:
        """Reads a number of blocks; raises BrokenBody if it exceeds `most` or what the rest can hold."""
        number = self._number()
        if not 0 <= number <= min(most, self.left // _I32.size):
            raise BrokenBody(f"a count of {number} in a compressed registration")
        return number

    def block(self, most: int = MAX_EXPANDED) -> bytes:
        length = self._number()
        start, after = self._at, self._at + length
        if not 0 <= length <= most or after > len(self._data):
            raise BrokenBody(f"a block of {length} bytes in a compressed registration")
        self._at = after
        return self._data[start:after]

    def _number(self) -> int:
        start, after = self._at, self._at + _I32.size
        if after > len(self._data):
            raise BrokenBody("a compressed registration ends too early")
        self._at = after
        return _I32.unpack_from(self._data, start)[0]  # type: ignore[no-any-return]


def _block(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def _text_of_topic(topic: TopicConfig) -> bytes:
    text = (
        f"{topic.topicName} {topic.readQueueNums} {topic.writeQueueNums} {topic.perm} {topic.topicFilterType}"
    )
    return text.encode() + (b" " + to_json(topic.attributes) if topic.attributes is not None else b"")


def _topic_of_text(text: bytes) -> TopicConfig:
    """Parses `name readQueues writeQueues perm filterType [attributes as JSON]`. Raises BrokenBody."""
    words = text.split(b" ", _WORDS)
    if len(words) < _WORDS:
        raise BrokenBody(f"a topic of {len(words)} words in a compressed registration")
    try:
        return TopicConfig(
            topicName=words[0].decode(),
            readQueueNums=_number(words[1]),
            writeQueueNums=_number(words[2]),
            perm=_number(words[3]),
            topicFilterType=words[4].decode(),
            attributes=_attributes(words[5]) if len(words) > _WORDS and words[5] else None,
        )
    except ValueError as error:
        raise BrokenBody(f"unreadable topic in a compressed registration: {error}") from None


def _number(word: bytes) -> int:
    """Parses a decimal number of 32 bits, digits after an optional `-`. Raises ValueError for other text."""
    if not word.removeprefix(b"-").isdigit():
        raise ValueError(f"a number must be digits, got {word[:40]!r}")
    number = int(word)
    if not _MIN_I32 <= number <= _MAX_I32:
        raise ValueError(f"{number} is too large")
    return number


_attributes = msgspec.json.Decoder(dict[str, str]).decode  # standard JSON: text is quoted here as well
