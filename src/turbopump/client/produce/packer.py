"""Turns messages into `PreparedSend`s: packs their properties, gives them an id and compresses their bodies.

In: a message, checked by `rules.py`. Out: what every try of its send has in common. No socket and no route
here.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from turbopump.client.message import Message
from turbopump.client.namespace import wrap
from turbopump.client.produce.prepared_send import HeaderTemplate, PreparedSend, with_counters
from turbopump.client.produce.request_reply import REPLY
from turbopump.client.rules import check_packed
from turbopump.client.settings import ProducerSettings
from turbopump.protocol import compression, properties, sysflag
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.names import RETRY_PREFIX

COMPRESSIONS = {"ZLIB": sysflag.ZLIB, "LZ4": sysflag.LZ4, "ZSTD": sysflag.ZSTD}
# From this size on a thread compresses: zlib takes 1.3 ms for 64 KiB, the thread costs 0.1 ms more.
COMPRESS_IN_THREAD_BYTES = 64 * 1024


class IdSource(Protocol):
    """Makes the unique ids of messages."""

    def next(self) -> str: ...


class MessagePacker:
    """Turns messages of one producer group into `PreparedSend`s; `extra` are fields of every header."""

    def __init__(
        self, group: str, settings: ProducerSettings, unique_ids: IdSource, extra: Mapping[str, str]
    ) -> None:
        self.settings = settings
        self._group = group
        self._unique_ids = unique_ids
        self._extra = extra
        self._templates: dict[str, HeaderTemplate] = {}

    def prepare(self, message: Message, marks: Mapping[str, str] | None = None) -> PreparedSend:
        """Returns the PreparedSend of one message; `marks` are properties to add, as for a half message.

        Raises InvalidArgument when all properties together are too long.
        """
        template = self._templates.get(message.topic) or self.template(message.topic)
        body = message.body
        if marks is not None and marks.get(properties.MESSAGE_TYPE) == REPLY:
            # Brokers have the reply topic without namespace; Apache's client adds one, and so makes another.
            template = self._new_template(message.topic).but(RequestCode.SEND_REPLY_MESSAGE_V2)
        is_raw = False
        if len(body) >= self.settings.compress_msg_body_over_howmuch:
            template = template.but(f=str(sysflag.COMPRESSED | COMPRESSIONS[self.settings.compress_type]))
            is_raw = len(body) >= COMPRESS_IN_THREAD_BYTES
            body = body if is_raw else self._compressed(body)
        if message.flag:
            template = template.but(h=str(message.flag))
        if message.properties or marks or template.topic.startswith(RETRY_PREFIX):
            own = self.own_properties(message, marks)
            if template.topic.startswith(RETRY_PREFIX):
                template = with_counters(template, own)
            key, packed = own[properties.UNIQUE_KEY], properties.pack(own)
        else:
            key, packed = self.packed(message)
        check_packed(packed)
        prepared = PreparedSend(message, template, body, packed, key)
        prepared.is_raw = is_raw
        return prepared

    async def compress(self, prepared: PreparedSend) -> None:
        """Compresses the body of `prepared` in place, in a thread: a large one would block the event loop."""
        prepared.body = await asyncio.to_thread(self._compressed, prepared.body)
        prepared.is_raw = False

    def _compressed(self, body: bytes) -> bytes:
        kind = COMPRESSIONS[self.settings.compress_type]
        return compression.compress(body, kind, self.settings.compress_level)

    def own_properties(self, message: Message, marks: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the message's properties, `marks`, and what a sender adds: unique id, WAIT, namespace."""
        own = message.property_map()
        if marks:
            own.update(marks)
        if properties.UNIQUE_KEY not in own:
            own[properties.UNIQUE_KEY] = self._unique_ids.next()
        own[properties.WAIT] = "true" if message.wait_store_ok else "false"
        if self.settings.namespace:
            own[properties.INSTANCE_ID] = self.settings.namespace
        return own

    def packed(self, message: Message) -> tuple[str, str]:
        """Returns the unique id of the message, and all its properties packed into one text.

        A message without properties of the user takes a fifth of the time: its text is written directly.
        """
        has_time = message.delay is not None or message.deliver_at is not None
        if message.properties or has_time or message.priority is not None:
            own = self.own_properties(message)
            return own[properties.UNIQUE_KEY], properties.pack(own)
        key = self._unique_ids.next()
        wait = "true" if message.wait_store_ok else "false"
        if message.tags:
            packed = f"TAGS\x01{message.tags}\x02UNIQ_KEY\x01{key}\x02WAIT\x01{wait}\x02"
            pairs = 3
        else:
            packed = f"UNIQ_KEY\x01{key}\x02WAIT\x01{wait}\x02"
            pairs = 2
        if message.keys:
            packed = f"KEYS\x01{' '.join(message.keys)}\x02{packed}"
            pairs += 1
        if message.delay_level:
            packed = f"{packed}DELAY\x01{message.delay_level}\x02"
            pairs += 1
        if self.settings.namespace:
            packed = f"{packed}INSTANCE_ID\x01{self.settings.namespace}\x02"
            pairs += 1
        # A separator inside a value: `pack` checks each value and raises an error that names the wrong one.
        if packed.count("\x02") != pairs:
            packed = properties.pack(self.own_properties(message))
        return key, packed

    def template(self, topic: str) -> HeaderTemplate:
        """Returns the header template of plain messages to a topic; `topic` is without namespace."""
        known = self._templates.get(topic)
        if known is None:
            known = self._templates[topic] = self._new_template(wrap(self.settings.namespace, topic))
        return known

    def _new_template(self, wire_topic: str) -> HeaderTemplate:
        settings = self.settings
        fields = {
            "a": self._group,
            "b": wire_topic,
            "c": settings.create_topic_key,
            "d": str(settings.default_topic_queue_nums),
            "f": "0",
            "h": "0",
            "j": "0",
            "k": "true" if settings.unit_mode else "false",
            "m": "false",
            **self._extra,
        }
        return HeaderTemplate(wire_topic, fields)
