"""Handles the plain sends of one read event together: parses, appends and answers them in one pass.

In: the frames of a read event. Out: records in the store and one buffer of answers. Plain is a send with a
JSON header (code 310 or 10) and one message, to a topic that exists, with properties that are stored as sent:
nearly all traffic. Every other request goes, in its place in the order, to the general path (`router`,
`send.py`), which gives the same bytes for the same request; a differential test compares the two.

This loop is the number in the benchmark (`python -m benchmarks.micro`): 8 us per 1 KiB message of a full read
event with the store's share, of which the header's JSON takes 1.4, record and checksum 2.2, the answer 1.0;
an event of a single message costs 9 us more. Its compiled twin (`turbopump.compiled`) takes 1.5 us, and 4 us
for an event of one; where it was built, `shortcut` serves the plain sends at the front of an event, and
`serve` the rest.
"""

import struct
from typing import Protocol

import msgspec

from turbopump.broker.acknowledgement import Safety
from turbopump.broker.produce.kinds import WaitingKinds
from turbopump.broker.produce.receipt import Receipts
from turbopump.broker.produce.send import NOT_PLAIN
from turbopump.broker.produce.targets import SendTargets
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.compiled import PlainSends
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, encode
from turbopump.protocol.errors import Refused
from turbopump.protocol.frame import JSON, MAX_FRAME, Frame
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.headers.send import SEND_DECODER, SEND_V2_DECODER, LongSendFrame, SendFrame
from turbopump.protocol.names import NOT_FOR_SENDERS, RETRY_PREFIX
from turbopump.protocol.sysflag import INNER_BATCH, TRANSACTION_MASK
from turbopump.remoting.connection import Connection, Shortcut
from turbopump.store.append import Appended, Draft
from turbopump.store.consume_queue import ConsumeQueue

PREFIX = struct.Struct(">II")  # frame length; header length, whose top byte 0 means JSON
Decoder = msgspec.json.Decoder[SendFrame] | msgspec.json.Decoder[LongSendFrame]
DECODERS: dict[bytes, Decoder] = {b'{"code":310': SEND_V2_DECODER, b'{"code":10,': SEND_DECODER}
PLAIN_CODES = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE)
ONEWAY = 2
RESPONSE = 1
NOTHING = (0, b"")
MAX_TARGETS = 1024  # queues of a topic: all are opened at its first plain send, in 15 ms of the loop
MAX_SHAPES = 8192
MAX_SHAPE_LENGTH = 512  # longer ones are parsed each time: bounds the cache to a few MiB
NAME_END = "\x01"
PAIR_END = "\x02"
UNIQUE_KEY = "UNIQ_KEY\x01"
KEYS = "KEYS\x01"


class MadeAnswer(msgspec.Struct):
    """The fields of an encoded answer that are kept when `_remade` encodes it again for another outcome."""

    opaque: int
    extFields: dict[str, str]  # noqa: N815 - the wire's spelling


ANSWER_DECODER = msgspec.json.Decoder(MadeAnswer)

Shape = tuple[int, bool]
"""What a property string contains beside unique key and keys: tag code, whether the sender waits."""
UNKNOWN: Shape = (0, False)

Asked = tuple[int, int, bytes, bool, bool]
"""What an answer needs of its request: opaque, queue id, unique key, one-way, waits for the flush."""


class GeneralSends(Protocol):
    """Interface of the router: serves one request at a time, for requests that are not plain sends."""

    def one(self, connection: Connection, frame: Frame) -> None: ...

    def log_refused_oneway(self, name: str, connection: Connection, refused: Exception) -> None: ...


class PlainSendHandler:
    """Bulk handler of a router: serves the plain sends of a read event, gives other requests back to it."""

    def __init__(
        self,
        store: Storage,
        targets: SendTargets,
        kinds: WaitingKinds,
        writer: MessageWriter,
        receipts: Receipts,
        router: GeneralSends,
    ) -> None:
        self._store = store
        self._topics = targets.topics
        self._not_plain = NOT_PLAIN | kinds.properties
        self._added = targets.rules.added_properties()
        self._append = writer.append
        self._accepts = targets.accepts
        self._took_since = writer.took_since
        self._took = writer.traffic.took
        self._acknowledgement = writer.acknowledgement
        self._monotonic = writer.monotonic
        self._receipts = receipts
        self._router = router
        self._max_message_size = targets.rules.max_message_size
        self._max_properties = properties.MAX_BYTES - len(self._added)
        self._writable = targets.writable
        self._targets: dict[str, list[ConsumeQueue]] = {}
        self._shapes: dict[str, Shape | None] = {}
        self._templates: dict[Safety, bytes] = {}
        self.shortcut: Shortcut | None = None
        """Serves the plain sends at the front of a read event, in C; None: not built, or answers wait for
        the disk."""
        sends = self._twin()
        if sends is not None:
            immediate = self._acknowledgement.immediate is not None
            self.shortcut = self._shortcut(sends) if immediate else self._later_shortcut(sends)

    def topics_changed(self, names: list[str]) -> None:
        """Drops the cached queues of these topics; an empty list (a topic was deleted) drops all."""
        for name in names or list(self._targets):
            self._targets.pop(name, None)

    def serve(self, connection: Connection, frames: list[Frame]) -> None:
        """Serves the requests of a read event in their order: plain sends together, others one by one."""
        drafts: list[Draft] = []
        asked: list[Asked] = []
        for position, frame in enumerate(frames):
            if connection.saturated:
                connection.defer(frames[position:])
                break
            plain = self._plain(frame, connection.peer_host)
            if plain is not None:
                drafts.append(plain[0])
                asked.append(plain[1])
                continue
            # Messages of a producer keep their order: the plain sends so far are appended first.
            if drafts:
                self._write(connection, drafts, asked)
                drafts, asked = [], []
            self._router.one(connection, frame)
        if drafts:
            self._write(connection, drafts, asked)

    # compiled

    def _twin(self) -> PlainSends | None:
        acknowledgement, receipts = self._acknowledgement, self._receipts
        waited = acknowledgement.immediate or acknowledgement.expected
        if waited is None:
            return None
        # Where answers wait for slaves, a sender that does not wait is served by the Python loop.
        is_immediate = acknowledgement.immediate is not None
        return self._store.compiled.plain_sends(
            targets=self._targets,
            not_plain=tuple(name.encode() for name in self._not_plain),
            added=self._added,
            hurried=receipts.parts(acknowledgement.unawaited) if is_immediate else (),
            waited=receipts.parts(waited),
            max_message_size=self._max_message_size,
            max_frame=MAX_FRAME,
        )

    def _shortcut(self, sends: PlainSends) -> Shortcut:
        append, took, monotonic = self._store.compiled.append_plain, self._took, self._monotonic

        def take(connection: Connection, data: bytes) -> tuple[int, bytes]:
            began = monotonic()
            taken = append(sends, data, connection.peer_host)
            if taken is None:
                return NOTHING
            used, answers, queues = taken
            took(int((monotonic() - began) * 1000), queues)
            return used, answers

        return take

    def _later_shortcut(self, sends: PlainSends) -> Shortcut:
        """Returns the shortcut of a SYNC_MASTER: appends at once, answers when enough slaves have copied it.

        The answers are made at once too, and made again in the rare case that the outcome is another.
        """
        append, took, monotonic = self._store.compiled.append_plain, self._took, self._monotonic
        acknowledgement, log = self._acknowledgement, self._store.log
        expected = acknowledgement.expected  # as the compiled answers say; a setting may change it later

        def take(connection: Connection, data: bytes) -> tuple[int, bytes]:
            began = monotonic()
            taken = append(sends, data, connection.peer_host)
            if taken is None:
                return NOTHING
            used, answers, queues = taken
            connection.begin(used)

            def answer(safety: Safety) -> None:
                took(int((monotonic() - began) * 1000), queues)
                try:
                    if answers:
                        connection.write(answers if safety is expected else self._remade(answers, safety))
                finally:
                    connection.end(used)

            acknowledgement.when_safe(log.end, answer)
            return used, b""

        return take

    def _remade(self, answers: bytes, safety: Safety) -> bytes:
        """Encodes answers, which were made for the expected outcome, again for the outcome `safety`."""
        out: list[bytes] = []
        template, at = self._template(safety), 0
        while at < len(answers):
            _, size = PREFIX.unpack_from(answers, at)
            at += PREFIX.size
            made = ANSWER_DECODER.decode(answers[at : at + size])
            at += size
            fields = made.extFields
            key, offset = fields["transactionId"].encode(), int(fields["msgId"][-16:], 16)
            values = int(fields["queueId"]), key, offset, int(fields["queueOffset"]), made.opaque
            header = template % values
            out += (PREFIX.pack(len(header) + 4, len(header)), header)
        return b"".join(out)

    # pure Python

    def _plain(self, frame: Frame, born_host: bytes) -> tuple[Draft, Asked] | None:
        encoding, header, body = frame
        decoder = DECODERS.get(header[:11])
        if decoder is None or encoding != JSON:
            return None
        try:
            head = decoder.decode(header)
            if not header.isascii():
                header.decode()  # the decoder checks only the fields that it reads for valid UTF-8
        except (ValueError, RecursionError):
            return None
        fields = head.extFields
        flag = head.flag
        queues = self._targets.get(fields.topic)
        if queues is None:
            queues = self._target(fields.topic)
        queue_id = fields.queueId
        text = fields.properties
        if (
            head.code not in PLAIN_CODES
            or flag & RESPONSE
            or fields.batch
            or fields.sysFlag & INNER_BATCH
            or not 0 <= queue_id < len(queues)
            or not 0 < len(body) <= self._max_message_size
            or text is None
            or "\0" in text  # the general path checks whether there are too many
        ):
            return None
        # Clients from 4.9.1 to 5.1.4 leave out the last separator; stored properties have it.
        if text[-1:] != PAIR_END:
            text += PAIR_END
        # Unique key and keys differ in each message. The rest repeats: it is parsed once and cached by text.
        # `find` returns -1 for no match: then `at` is below the length of the name.
        at = text.find(UNIQUE_KEY) + len(UNIQUE_KEY)
        end = text.find(PAIR_END, at)
        unique_key = text[at:end]
        if at < len(UNIQUE_KEY) or end < 0 or not (unique_key.isascii() and unique_key.isalnum()):
            return None
        rest = text[:at] + text[end:]
        keys = ""
        at = rest.find(KEYS) + len(KEYS)
        if at >= len(KEYS):
            end = rest.find(PAIR_END, at)
            keys = rest[at:end]
            rest = rest[:at] + rest[end:]
            if not keys or NAME_END in keys:
                return None
        shape = self._shapes.get(rest, UNKNOWN)
        if shape is UNKNOWN:
            shape = self._learn(rest, text, unique_key, keys)
        stored = text.encode()
        if shape is None or len(stored) > self._max_properties:
            return None
        tags_code, waits = shape
        draft = Draft(
            queues[queue_id],
            body,
            stored + self._added,
            fields.flag,
            fields.sysFlag & ~TRANSACTION_MASK,
            fields.bornTimestamp,
            born_host,
            tags_code,
            unique_key,
            keys,
            fields.reconsumeTimes,
        )
        return draft, (head.opaque, queue_id, unique_key.encode(), flag & ONEWAY != 0, waits)

    def _target(self, name: str) -> list[ConsumeQueue]:
        """Returns the queues of a topic that takes plain sends; empty: its sends take the general path."""
        topic = self._topics.find(name)
        if topic is None or self._topics.is_light(name) or not self._accepts():
            return []  # not cached: the next request may create the topic, and the start time may come
        queues: list[ConsumeQueue] = []
        count = max(topic.read_queues, topic.write_queues)
        special = (
            name in NOT_FOR_SENDERS
            or name.startswith(RETRY_PREFIX)
            or topic.filter_type != "SINGLE_TAG"
            or count > MAX_TARGETS
        )
        if not special and (self._writable() or not topic.order):
            try:
                queues = [self._store.queues.queue(name, queue_id) for queue_id in range(count)]
            except (OSError, Refused):  # the general path answers with the error
                return []
        self._targets[name] = queues
        return queues

    def _learn(self, rest: str, text: str, unique_key: str, keys: str) -> Shape | None:
        """Parses properties and caches their shape under `rest`; None: such a message is not plain.

        `rest` is the property string without the values of unique key and keys, so that messages which differ
        only in these are parsed once.
        """
        pairs = properties.parse(text)
        shape: Shape | None = None
        found = pairs.get(properties.UNIQUE_KEY), pairs.get(properties.KEYS, "")
        if found == (unique_key, keys) and self._stays_as_sent(text, pairs):
            tag = pairs.get(properties.TAGS)
            shape = java_hash(tag) if tag else 0, pairs.get(properties.WAIT) != "false"
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        if len(rest) <= MAX_SHAPE_LENGTH:
            self._shapes[rest] = shape
        return shape

    def _stays_as_sent(self, text: str, pairs: dict[str, str]) -> bool:
        """Returns whether a property string is stored byte for byte (the broker's own properties follow)."""
        return self._not_plain.isdisjoint(pairs) and properties.pack(pairs) == text

    def _write(self, connection: Connection, drafts: list[Draft], asked: list[Asked]) -> None:
        try:
            appended = self._append(drafts)
        except Refused as refused:
            self._refuse(connection, asked, refused)
            return
        acknowledgement = self._acknowledgement
        if acknowledgement.immediate is not None:
            self._answer(connection, asked, appended, acknowledgement.immediate)
            return
        hurried = [row for row in zip(asked, appended, strict=True) if not row[0][4]]
        waiting = [row for row in zip(asked, appended, strict=True) if row[0][4]]
        if hurried:
            self._answer(connection, *_unzip(hurried), acknowledgement.unawaited)
        if waiting:
            self._answer_when_safe(connection, *_unzip(waiting), drafts)

    def _answer_when_safe(
        self, connection: Connection, asked: list[Asked], appended: list[Appended], drafts: list[Draft]
    ) -> None:
        """Answers these sends in one write when they are safe; until then they are one request in flight."""
        first, (last, _, size) = appended[0][0], appended[-1]
        held = last + size - first
        began = self._monotonic()
        connection.begin(held)

        def answer(safety: Safety) -> None:
            self._took_since(began, drafts)
            try:
                self._answer(connection, asked, appended, safety)
            finally:
                connection.end(held)

        self._acknowledgement.when_safe(last + size, answer)

    def _answer(
        self, connection: Connection, asked: list[Asked], appended: list[Appended], safety: Safety
    ) -> None:
        """Writes the answers to all of these sends in one write; one-way sends get none.

        `safety` is that of senders that wait; the others get `unawaited`.
        """
        out: list[bytes] = []
        prefix = PREFIX.pack
        hurried, waited = self._template(self._acknowledgement.unawaited), self._template(safety)
        index_of = self._receipts.index_of if safety.term is not None else None
        rows = zip(asked, appended)  # noqa: B905 - `strict` costs 0.2 us a call
        for (opaque, queue_id, unique_key, oneway, waits), (offset, queue_offset, _) in rows:
            if oneway:
                continue
            if index_of is None or not waits:
                header = (waited if waits else hurried) % (queue_id, unique_key, offset, queue_offset, opaque)
            else:
                values = queue_id, unique_key, offset, queue_offset, index_of(offset), opaque
                header = waited % values
            length = len(header)
            out.append(prefix(length + 4, length))
            out.append(header)
        if out:
            connection.write(b"".join(out))

    def _template(self, safety: Safety) -> bytes:
        template = self._templates.get(safety)
        if template is None:
            template = self._templates[safety] = self._receipts.template(safety)
        return template

    def _refuse(self, connection: Connection, asked: list[Asked], refused: Refused) -> None:
        ext = self._receipts.refused()
        for opaque, _, _, oneway, _ in asked:
            if oneway:
                self._router.log_refused_oneway("send", connection, refused)
            else:
                answer = Command(refused.code, opaque, RESPONSE, remark=refused.remark, ext=ext)
                connection.write(encode(answer))


def _unzip(rows: list[tuple[Asked, Appended]]) -> tuple[list[Asked], list[Appended]]:
    return [asked for asked, _ in rows], [appended for _, appended in rows]
