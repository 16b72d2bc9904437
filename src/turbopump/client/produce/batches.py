"""Packs several messages into batch requests of a size that brokers accept, and splits the results again.

A broker stores the messages of a chunk one after another in one queue. It answers with the offset of the
first and the ids of all, separated by commas.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from turbopump.client.message import Message, SendResult
from turbopump.client.produce.packer import MessagePacker
from turbopump.client.produce.prepared_send import PreparedSend
from turbopump.client.rules import check_packed
from turbopump.protocol import batch, properties
from turbopump.protocol.codes import RequestCode

BATCH_ITEM_HEADER_BYTES = 22  # of a message in a batch, without body and properties


def prepared_chunks(
    packer: MessagePacker, messages: Sequence[Message], max_bytes: int
) -> Iterator[tuple[PreparedSend, list[str]]]:
    """Yields sends of at most `max_bytes` for the messages in order, each with its messages' unique ids.

    A message that is alone in its chunk is sent as a single one, without the batch header: so a message of
    the maximum size fits too.
    """
    chunk: list[tuple[int, bytes, bytes]] = []
    members: list[Message] = []
    keys: list[str] = []
    size = 0
    for message in messages:
        key, text = packer.packed(message)
        check_packed(text)
        packed = text.encode()
        more = BATCH_ITEM_HEADER_BYTES + len(message.body) + len(packed)
        if chunk and size + more > max_bytes:
            yield _prepared_chunk(packer, members, chunk, keys), keys
            chunk, members, keys, size = [], [], [], 0
        chunk.append((message.flag, message.body, packed))
        members.append(message)
        keys.append(key)
        size += more
    if chunk:
        yield _prepared_chunk(packer, members, chunk, keys), keys


def _prepared_chunk(
    packer: MessagePacker, members: list[Message], chunk: list[tuple[int, bytes, bytes]], keys: list[str]
) -> PreparedSend:
    first = members[0]
    if len(members) == 1:
        return packer.prepare(first, {properties.UNIQUE_KEY: keys[0]})
    prepared = prepared_batch(packer, first.topic, batch.join(chunk), keys[0], first.wait_store_ok)
    prepared.message, prepared.messages, prepared.message_ids = first, members, keys
    return prepared


def prepared_batch(
    packer: MessagePacker, topic: str, body: bytes, key: str = "", waits: bool = True
) -> PreparedSend:
    """Returns the batch send of packed messages. `key`: the first's unique id; `waits`: `wait_store_ok`."""
    whole = Message(topic, b"", wait_store_ok=waits)
    own = packer.own_properties(whole, {properties.UNIQUE_KEY: key})
    del own[properties.UNIQUE_KEY]  # a broker of 4.9 gives the properties of the whole batch to each message
    template = packer.template(topic).but(RequestCode.SEND_BATCH_MESSAGE, m="true")
    return PreparedSend(whole, template, body, properties.pack(own), key)


def split_result(result: SendResult, keys: Sequence[str]) -> list[SendResult]:
    """Splits the result of a batch request into one per message; `keys` are the messages' unique ids."""
    ids = result.offset_message_id.split(",")
    if len(ids) != len(keys):  # a topic that keeps batches whole has one id for all
        ids = [result.offset_message_id] * len(keys)
    return [
        replace(result, message_id=key, offset_message_id=one, offset=result.offset + number)
        for number, (key, one) in enumerate(zip(keys, ids, strict=True))
    ]
