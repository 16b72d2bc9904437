"""Several messages in one request: cut into chunks that brokers take, and the answer dealt out to each.

A broker stores the messages of a chunk one after another in one queue. It answers with the place of the
first and the ids of all, with commas between them.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from turbopump.client.message import Message, SendResult
from turbopump.client.produce.prepared_send import PreparedSend
from turbopump.client.produce.sender import Sender
from turbopump.client.rules import check_packed
from turbopump.protocol import batch, properties
from turbopump.protocol.codes import RequestCode

HEAD_SIZE = 22  # of a message within a batch, without body and properties


def prepared_chunks(
    sender: Sender, messages: Sequence[Message], largest: int
) -> Iterator[tuple[PreparedSend, list[str]]]:
    """The batch in chunks of at most `largest` bytes, in order, each with the ids of its messages.
    A message that is alone in its chunk goes as any other: so the largest one fits too.
    """
    chunk: list[tuple[int, bytes, bytes]] = []
    members: list[Message] = []
    keys: list[str] = []
    size = 0
    for message in messages:
        key, text = sender.packed(message)
        check_packed(text)
        packed = text.encode()
        more = HEAD_SIZE + len(message.body) + len(packed)
        if chunk and size + more > largest:
            yield _letter(sender, members, chunk, keys), keys
            chunk, members, keys, size = [], [], [], 0
        chunk.append((message.flag, message.body, packed))
        members.append(message)
        keys.append(key)
        size += more
    if chunk:
        yield _letter(sender, members, chunk, keys), keys


def _letter(
    sender: Sender, members: list[Message], chunk: list[tuple[int, bytes, bytes]], keys: list[str]
) -> PreparedSend:
    first = members[0]
    if len(members) == 1:
        return sender.letter(first, {properties.UNIQUE_KEY: keys[0]})
    letter = prepared_batch(sender, first.topic, batch.join(chunk), keys[0], first.wait_store_ok)
    letter.message, letter.messages, letter.message_ids = first, members, keys
    return letter


def prepared_batch(
    sender: Sender, topic: str, body: bytes, key: str = "", waits: bool = True
) -> PreparedSend:
    """Of messages that are packed already; `key` is the unique key of the first."""
    whole = Message(topic, b"", wait_store_ok=waits)
    own = sender.own_properties(whole, {properties.UNIQUE_KEY: key})
    del own[properties.UNIQUE_KEY]  # a broker of 4.9 gives the properties of the whole to each of them
    envelope = sender.envelope(topic).but(RequestCode.SEND_BATCH_MESSAGE, m="true")
    return PreparedSend(whole, envelope, body, properties.pack(own), key)


def split_result(result: SendResult, keys: Sequence[str]) -> list[SendResult]:
    """The result of a chunk as one for each of its messages."""
    places = result.offset_message_id.split(",")
    if len(places) != len(keys):  # a topic that keeps batches whole has one id for all
        places = [result.offset_message_id] * len(keys)
    return [
        replace(result, message_id=key, offset_message_id=place, offset=result.offset + number)
        for number, (key, place) in enumerate(zip(keys, places, strict=True))
    ]
