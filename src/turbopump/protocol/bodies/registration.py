"""The registration of a broker, plain and in the compressed form of its own."""

import struct
import zlib
from typing import Any, Self

import msgspec

from turbopump.protocol.bodies.base import Body, decode, empty_list, new, to_json
from turbopump.protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from turbopump.protocol.codes import V5_0_0, VERSION
from turbopump.protocol.compression import expand_zlib
from turbopump.protocol.errors import BrokenBody

_I32 = struct.Struct(">i")
_WORDS = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")


class RegisterBrokerBody(Body):
    filterServerList: list[str] = empty_list()
    topicConfigSerializeWrapper: TopicConfigSerializeWrapper = new(TopicConfigSerializeWrapper)

    @classmethod
    def decode_compressed(cls, data: bytes, version: int = VERSION) -> Self:
        """The form of `compressed=true`: below. Brokers before 5.0 send no mappings at its end."""
        reader = _Reader(expand_zlib(data))
        wrapper = TopicConfigSerializeWrapper(dataVersion=DataVersion.decode(reader.block()))
        for _ in range(reader.count()):
            topic = _topic_of_text(reader.block())
            wrapper.topicConfigTable[topic.topicName] = topic
        servers = reader.block()
        body = cls(decode(list[str], servers) if servers else [], wrapper)
        if version >= V5_0_0 and not reader.at_end:
            mappings = [decode(dict[str, Any], reader.block()) for _ in range(reader.count())]
            wrapper.topicQueueMappingInfoMap = {str(mapping.get("topic")): mapping for mapping in mappings}
        return body

    def encode_compressed(self, version: int = VERSION) -> bytes:
        """zlib of: DataVersion, count and topics as text, filter servers, and from 5.0 on count and
        mappings.
        """
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
    """Blocks with an i32 length before each."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._data)

    def count(self) -> int:
        after = self._at + 4
        if after > len(self._data):
            raise BrokenBody("a compressed registration ends too early")
        (number,) = _I32.unpack_from(self._data, self._at)
        self._at = after
        return int(number)

    def block(self) -> bytes:
        length = self.count()
        after = self._at + length
        if length < 0 or after > len(self._data):
            raise BrokenBody(f"a block of {length} bytes in a compressed registration")
        block = self._data[self._at : after]
        self._at = after
        return block


def _block(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def _text_of_topic(topic: TopicConfig) -> bytes:
    text = (
        f"{topic.topicName} {topic.readQueueNums} {topic.writeQueueNums} {topic.perm} {topic.topicFilterType}"
    )
    return text.encode() + (b" " + to_json(topic.attributes) if topic.attributes is not None else b"")


def _topic_of_text(text: bytes) -> TopicConfig:
    """`name readQueues writeQueues perm filterType`, then from 5.x on the attributes as JSON."""
    try:
        words = text.decode().split(" ", 5)
        topic = msgspec.convert(dict(zip(_WORDS, words, strict=False)), TopicConfig, strict=False)
    except ValueError as error:
        raise BrokenBody(f"no topic in a compressed registration: {error}") from None
    if len(words) < len(_WORDS):
        raise BrokenBody(f"a topic of {len(words)} words in a compressed registration")
    if len(words) > len(_WORDS) and words[-1]:
        topic.attributes = decode(dict[str, str], words[-1].encode())
    return topic
