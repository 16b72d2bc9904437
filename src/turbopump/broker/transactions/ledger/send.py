"""Stores half messages of a ledger, many in one frame (9702): checks them as sends; stores all or none.

In: a request that names id, batch, run, token and home, with messages in the format of a batch. Out: records
in the topic of half messages, each with the stamp, and an answer with their durability. A frame that is sent
again is stored again: so a writer whose frame was not answered abandons its token. A message may have a delay
or a time: one that is not allowed is refused here, since a commit refuses nothing.
"""

import sys
from dataclasses import dataclass

from turbopump.broker.delay.level_records import delay_level
from turbopump.broker.delay.timer_intake import TimerIntake
from turbopump.broker.produce.send import NOT_PLAIN, check_zeros, tag_bits
from turbopump.broker.produce.targets import SendTargets
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.topics import Topic
from turbopump.broker.transactions.ledger.ledger import check_names
from turbopump.broker.transactions.ledger.local_books import LocalBooks
from turbopump.broker.transactions.ledger.stamps import GROUP, STAMP, LedgerStamp
from turbopump.broker.transactions.records import ADDED_LATER, FORGED, TIMES, number
from turbopump.broker.transactions.transactions import OpenTransactions, topic_of
from turbopump.protocol import batch, properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import (
    FlowControl,
    InvalidParameter,
    MessageIllegal,
    Refused,
)
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.headers.ledger import LedgerSendRequest, LedgerSendResponse
from turbopump.protocol.names import HALF_TOPIC
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.store.append import Draft
from turbopump.store.consume_queue import ConsumeQueue

MAX_IN_FRAME = 4096  # messages: about 40 ms
MAX_OPEN = 1_000_000  # half messages of one id: 400 bytes of memory each
MAX_OPEN_IN_ALL = 4_000_000
MAX_STAMP_BYTES = 2048  # in the properties
WITH_TIME = frozenset(name.decode() for name in TIMES)
REFUSED = (
    NOT_PLAIN
    | {*FORGED, *STAMP, properties.PRODUCER_GROUP, properties.TIMER_DEL_UNIQUE_KEY}
    | {properties.TRANSACTION_PREPARED}
) - WITH_TIME
"""Properties that only a broker sets, and that of a recall, which is no message."""
NOT_TOGETHER = tuple(name.encode() for name in sorted(REFUSED | WITH_TIME))
MAX_PROPERTIES = properties.MAX_BYTES - ADDED_LATER

Place = tuple[Topic, int]


@dataclass(frozen=True, slots=True)
class StoredHalves:
    """The number of half messages stored, and the physical offset at which the last one ends."""

    count: int
    end: int  # in the log


class LedgerSendHandler:
    """Handles requests (9702) with half messages about which a ledger decides."""

    def __init__(
        self,
        books: LocalBooks,
        broker_name: str,
        transactions: OpenTransactions,
        targets: SendTargets,
        timers: TimerIntake,
        writer: MessageWriter,
        store: Storage,
        clock: Clock,
    ) -> None:
        self._books = books
        self._name = broker_name
        self._transactions = transactions
        self._targets = targets
        self._broker_properties = targets.rules.added_properties()
        self._timers = timers
        self._writer = writer
        self._store = store
        self._clock = clock
        self._groups = store.compiled.groups()

    def routes(self) -> Routes:
        return {RequestCode.LEDGER_SEND: Route(LedgerSendRequest, self.send)}

    async def send(self, request: Request[LedgerSendRequest]) -> Answer:
        header = request.header
        stamp = LedgerStamp(header.id, header.batch, header.run, header.token, header.home)
        self._check(stamp)
        stored = self._together(stamp, request) or self._one_by_one(stamp, request)
        safety = await self._writer.acknowledgement.safe(stored.end)
        answer = LedgerSendResponse(stored.count, safety.durability, safety.replicas)
        return Answer(answer, code=safety.code)

    def _together(self, stamp: LedgerStamp, request: Request[LedgerSendRequest]) -> StoredHalves | None:
        """Stores half messages in one compiled step; None: it stored nothing, for example one is not plain.

        None also without compiled code, and for a producer with an IPv6 address.
        """
        groups = self._groups
        if groups is None:
            return None
        added, queue = self._added(stamp), self._store.queues.queue(HALF_TOPIC, 0)
        connection = request.connection

        def ask(topic: bytes, queue_id: bytes) -> tuple[str, int]:
            names = topic.decode("utf-8", "replace"), queue_id.decode("utf-8", "replace")
            place, _ = self._place(*names, connection.peer)
            return sys.intern(names[0]), tag_bits(place)

        done = self._writer.append_group(
            lambda arrivals: groups.halves(
                request.body,
                queue,
                added,
                self._clock.now_ms(),
                connection.peer_host,
                NOT_TOGETHER,
                MAX_IN_FRAME,
                self._store.config.max_message_size,
                MAX_PROPERTIES,
                ask,
                arrivals,
            ),
            lambda done: [queue] * len(done[1]),
        )
        if done is None:
            return None
        first, places, topics, end = done
        self._transactions.stamped(stamp, first, places, topics)
        return StoredHalves(len(places), end)

    def _one_by_one(self, stamp: LedgerStamp, request: Request[LedgerSendRequest]) -> StoredHalves:
        drafts, topics = self._drafts(stamp, request)
        appended = self._writer.append_counted(drafts)
        self._transactions.stamped(stamp, appended[0][1], [at for at, _, _ in appended], topics)
        at, _, size = appended[-1]
        return StoredHalves(len(drafts), at + size)

    def _check(self, stamp: LedgerStamp) -> None:
        """Raises Refused for a stamp that can never be committed, and when too many half messages are open.

        As far as this broker knows: the book may be kept by another one.
        """
        check_names(stamp.id, stamp.run, stamp.token, stamp.home)
        if stamp.batch < 0:
            raise InvalidParameter(f"batch {stamp.batch}: the first one is 0")
        if stamp.home == self._name:
            self._books.check_open(stamp)
        stamps = self._transactions.stamps
        if stamps.count(stamp.id) >= MAX_OPEN or stamps.total >= MAX_OPEN_IN_ALL:
            counts = f"{stamps.count(stamp.id)} half messages of {stamp.id} are open, {stamps.total} in all"
            raise FlowControl(f"{counts}: some have to end first")

    def _added(self, stamp: LedgerStamp) -> bytes:
        """Returns the packed properties that each half message gets: the stamp and those of the broker."""
        pairs = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: GROUP} | stamp.pairs()
        added = properties.pack(pairs).encode() + self._broker_properties
        if len(added) > MAX_STAMP_BYTES:
            raise InvalidParameter(
                f"id, run, token and home must take at most {MAX_STAMP_BYTES} bytes, got {len(added)}"
            )
        return added

    def _drafts(
        self, stamp: LedgerStamp, request: Request[LedgerSendRequest]
    ) -> tuple[list[Draft], list[str]]:
        """Returns the drafts of the half messages in a request, and their topics. Raises Refused."""
        messages = batch.split(request.body)
        if not 0 < len(messages) <= MAX_IN_FRAME:
            raise MessageIllegal(f"the frame holds {len(messages)} messages, not 1 to {MAX_IN_FRAME}")
        added = self._added(stamp)
        queue = self._store.queues.queue(HALF_TOPIC, 0)
        places: dict[tuple[str, str], Place] = {}
        drafts = [self._draft(queue, one, added, places, request) for one in messages]
        return drafts, [topic_of(draft.properties) for draft in drafts]

    def _draft(
        self,
        queue: ConsumeQueue,
        message: tuple[int, bytes, bytes],
        added: bytes,
        places: dict[tuple[str, str], Place],
        request: Request[LedgerSendRequest],
    ) -> Draft:
        flag, body, packed = message
        pairs = properties.parse(packed)
        self._check_message(body, pairs)
        named = pairs.get(properties.REAL_TOPIC, ""), pairs.get(properties.REAL_QUEUE_ID, "")
        place = places.get(named)
        if place is None:
            place = places[named] = self._place(*named, request.connection.peer)
        end = b"" if packed.endswith(b"\x02") else b"\x02"
        stored = packed + end + added
        if len(stored) > MAX_PROPERTIES:
            raise MessageIllegal(
                f"a half message has {len(stored)} bytes of properties, more than {MAX_PROPERTIES}"
            )
        check_zeros(stored)
        tag = pairs.get(properties.TAGS)
        return Draft(
            queue=queue,
            body=body,
            properties=stored,
            flag=flag,
            sys_flag=tag_bits(place[0]),
            born_timestamp=self._clock.now_ms(),
            born_host=request.connection.peer_host,
            tags_code=java_hash(tag) if tag else 0,
            unique_key=pairs[properties.UNIQUE_KEY],
            keys=pairs.get(properties.KEYS, ""),
        )

    def _check_message(self, body: bytes, pairs: dict[str, str]) -> None:
        if not body:
            raise MessageIllegal("the message body is empty")
        if not REFUSED.isdisjoint(pairs):
            raise MessageIllegal(f"a half message carries {', '.join(sorted(REFUSED & pairs.keys()))}")
        if properties.UNIQUE_KEY not in pairs:
            raise MessageIllegal("a half message has no unique key")
        if not WITH_TIME.isdisjoint(pairs):
            self._check_time(pairs)

    def _check_time(self, pairs: dict[str, str]) -> None:
        """Raises Refused, naming the message, when its delay level or delivery time is not allowed."""
        try:
            if delay_level(pairs) <= 0:
                self._timers.check(pairs)
        except Refused as refused:
            raise Refused(refused.code, f"message {pairs[properties.UNIQUE_KEY]}: {refused.remark}") from None

    def _place(self, topic: str, queue_id: str, peer: tuple[str, int]) -> Place:
        place = number(queue_id)
        if place is None:
            raise InvalidParameter(f"a half message names no queue of its topic {topic!r}: {queue_id[:40]!r}")
        return self._targets.named(topic, place, peer), place
