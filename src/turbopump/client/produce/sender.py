"""Sends a message: chooses a queue, sends, and tries another broker in the same time limit when one fails.

A `PreparedSend` holds what stays the same in every try. It is made once, so a message keeps its unique key
and a consumer can tell a repetition from a second message. `rules.py` checks before this what may be sent;
`batches.py` turns a batch into one `PreparedSend`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from turbopump.client.counted_log import CountedLog
from turbopump.client.errors import SendFailed, SendTimedOut, TopicUnknown, Try
from turbopump.client.message import Message, MessageQueue, SendResult, SendStatus
from turbopump.client.name_servers import Caller
from turbopump.client.namespace import wrap
from turbopump.client.observe.hooks import SendContext, SendHook, SendMode, run_after, run_before
from turbopump.client.produce.backoff import pause_s
from turbopump.client.produce.broker_health import BrokerHealth
from turbopump.client.produce.prepared_send import HeaderTemplate, with_counters
from turbopump.client.produce.prepared_send import PreparedSend as PreparedSend
from turbopump.client.produce.request_reply import REPLY
from turbopump.client.routes import RouteCache, TopicRoute
from turbopump.client.rules import check_packed
from turbopump.client.settings import ProducerSettings
from turbopump.protocol import compression, properties, sysflag
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import Refused, TopicNotFound, refusal
from turbopump.protocol.names import RETRY_PREFIX
from turbopump.protocol.packed_send import PackedSend
from turbopump.remoting.connection import ConnectionClosed
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)
_levels = CountedLog(log)

CONNECT_FAILED, NO_ANSWER, BROKER_UNKNOWN, NO_NAME_SERVER, TOPIC_UNKNOWN = range(10001, 10006)
"""Apache's codes for failures that no broker answered."""

DEFAULTS = ProducerSettings()
APACHE_LEVELS = 18
ROUTE_PATIENCE_S = 1.0  # how long a retry waits for a new route when the old one knows no other broker
VIP_PORTS_BELOW = 2
FAIR_ONEWAYS = 64
COMPRESSED_ASIDE = 64 * 1024  # bytes; zlib takes 1.3 ms for them, a thread costs 0.1 ms more
COMPRESSIONS = {"ZLIB": sysflag.ZLIB, "LZ4": sysflag.LZ4, "ZSTD": sysflag.ZSTD}
STORED = {int(status.value): status for status in SendStatus}

Pick = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Says which of a topic's queues it must be; such a send has one try."""


class QueueSelector(Protocol):
    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """Any of them, best of another broker than `avoid`."""


class SendCaller(Caller, Protocol):
    """What a sender needs of `remoting.Client`."""

    @property
    def extra(self) -> Mapping[str, str]:
        """Header fields that go with every request."""

    async def call(self, address: str, request: Command | PackedSend, timeout_s: float) -> Command: ...

    def ask(self, address: str, request: Command | PackedSend, timeout_s: float) -> Awaitable[Command] | None:
        """The same when the connection is there; else None."""

    async def send_oneway(self, address: str, request: Command | PackedSend, timeout_s: float) -> None: ...


class IdSource(Protocol):
    def next(self) -> str: ...


class BrokerUnknown(ConnectionError):
    """No address of the broker is known."""


@dataclass
class Sender:
    """Sends messages on behalf of a producer group: what producers, tools and consumers that send back share.

    Example, given a `remoting.Client` and its `RouteCache`:

        sender = Sender(client, routes, clock, UniqueIds(ip, pid, clock.now_ms), QueueChoice(chance))
        result = await sender.send(Message("orders", b"...", tags="paid"))
    """

    calls: SendCaller
    routes: RouteCache
    clock: Clock
    unique_ids: IdSource
    choice: QueueSelector
    group: str = "CLIENT_INNER_PRODUCER"
    settings: ProducerSettings = DEFAULTS
    hooks: Sequence[SendHook] = ()
    faults: BrokerHealth | None = None
    chance: Chance = field(default_factory=Chance)
    """For the pauses between tries."""
    _oneways: int = 0
    _envelopes: dict[str, HeaderTemplate] = field(default_factory=dict)
    _renewals: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = self.settings
        self._is_plain = not (self.hooks or self.faults or settings.vip_channel_enabled)
        self._is_plain &= settings.send_msg_max_timeout_per_request < 0

    # What others call

    async def send(self, message: Message, timeout_s: float | None = None) -> SendResult:
        """Raises Refused when a broker would not take it and others would say the same, SendFailed (an
        OSError) when none of the tries succeeded.
        """
        return await self.deliver(self.letter(message), timeout_s)

    async def send_to(
        self, queue: MessageQueue, message: Message, timeout_s: float | None = None
    ) -> SendResult:
        """To this queue and no other, in one try. Raises Refused or SendFailed."""
        return await self.deliver(self.letter(message), timeout_s, lambda queues: queue)

    async def route(self, topic: str, timeout_s: float) -> TopicRoute:
        """Of a topic with its namespace. Raises SendFailed."""
        return self._known(topic) or await self._route(topic, [], timeout_s)

    async def queues(self, topic: str, timeout_s: float) -> tuple[MessageQueue, ...]:
        """Of a topic with its namespace, that must exist. Raises SendFailed."""
        route = self._known(topic) or await self._route(topic, [], timeout_s, must_exist=True)
        return route.publish

    async def close(self) -> None:
        """Asks for no routes any more."""
        renewals = list(self._renewals.values())
        for renewal in renewals:
            renewal.cancel()
        await asyncio.gather(*renewals, return_exceptions=True)

    # Letters

    def letter(self, message: Message, marks: Mapping[str, str] | None = None) -> PreparedSend:
        """`marks` are properties that say what kind of message it is. Raises InvalidArgument when all
        properties together are too long.
        """
        envelope = self._envelopes.get(message.topic) or self.envelope(message.topic)
        body = message.body
        if marks is not None and marks.get(properties.MESSAGE_TYPE) == REPLY:
            envelope = self._new_envelope(message.topic).but(RequestCode.SEND_REPLY_MESSAGE_V2)
        is_raw = False
        if len(body) >= self.settings.compress_msg_body_over_howmuch:
            envelope = envelope.but(f=str(sysflag.COMPRESSED | COMPRESSIONS[self.settings.compress_type]))
            is_raw = len(body) >= COMPRESSED_ASIDE
            body = body if is_raw else self._compressed(body)
        if message.flag:
            envelope = envelope.but(h=str(message.flag))
        if message.properties or marks or envelope.topic.startswith(RETRY_PREFIX):
            own = self.own_properties(message, marks)
            if envelope.topic.startswith(RETRY_PREFIX):
                envelope = with_counters(envelope, own)
            key, packed = own[properties.UNIQUE_KEY], properties.pack(own)
        else:
            key, packed = self.packed(message)
        check_packed(packed)
        letter = PreparedSend(message, envelope, body, packed, key)
        letter.is_raw = is_raw
        return letter

    def _compressed(self, body: bytes) -> bytes:
        kind = COMPRESSIONS[self.settings.compress_type]
        return compression.compress(body, kind, self.settings.compress_level)

    async def _finish(self, letter: PreparedSend) -> None:
        """What takes too long for the event loop is done in a thread."""
        letter.body = await asyncio.to_thread(self._compressed, letter.body)
        letter.is_raw = False

    def own_properties(self, message: Message, marks: Mapping[str, str] | None = None) -> dict[str, str]:
        """Those of the message and those that a sender adds: its id, and how to store it."""
        own = message.property_map()
        if marks:
            own.update(marks)
        if properties.UNIQUE_KEY not in own:
            own[properties.UNIQUE_KEY] = self.unique_ids.next()
        own[properties.WAIT] = "true" if message.wait_store_ok else "false"
        if self.settings.namespace:
            own[properties.INSTANCE_ID] = self.settings.namespace
        return own

    def packed(self, message: Message) -> tuple[str, str]:
        """Its id, and the same packed. Without properties of the user that takes a fifth of the time."""
        has_time = message.delay is not None or message.deliver_at is not None
        if message.properties or has_time or message.priority is not None:
            own = self.own_properties(message)
            return own[properties.UNIQUE_KEY], properties.pack(own)
        key = self.unique_ids.next()
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
        if packed.count("\x02") != pairs:
            packed = properties.pack(self.own_properties(message))  # says which of them is wrong
        return key, packed

    def envelope(self, topic: str) -> HeaderTemplate:
        """Of plain messages for a topic."""
        known = self._envelopes.get(topic)
        if known is None:
            known = self._envelopes[topic] = self._new_envelope(wrap(self.settings.namespace, topic))
        return known

    def _new_envelope(self, wire_topic: str) -> HeaderTemplate:
        settings = self.settings
        fields = {
            "a": self.group,
            "b": wire_topic,
            "c": settings.create_topic_key,
            "d": str(settings.default_topic_queue_nums),
            "f": "0",
            "h": "0",
            "j": "0",
            "k": "true" if settings.unit_mode else "false",
            "m": "false",
            **self.calls.extra,
        }
        return HeaderTemplate(wire_topic, fields)

    # Tries

    def begin(self, letter: PreparedSend, timeout_s: float) -> "Begun | None":
        """The first try of a send without wishes, when all that it needs is at hand: most of them end here.
        Whoever awaits it gives it to `deliver` when it ends otherwise than with success. None: `deliver` has
        to begin.
        """
        route = self._known(letter.envelope.topic) if self._is_plain and timeout_s > 0 else None
        if route is None or letter.is_raw:
            return None
        queue = self.choice.choose(route.publish)
        address = route.master(queue.broker)
        if address is None:
            return None
        began = self.clock.monotonic()
        try:
            answer = self.calls.ask(address, self._request(letter, queue), timeout_s)
        except OSError:
            return None
        return None if answer is None else (queue, answer, began)

    async def deliver(
        self,
        letter: PreparedSend,
        timeout_s: float | None = None,
        pick: Pick | None = None,
        begun: "Begun | None" = None,
    ) -> SendResult:
        """Try after try until one succeeds, a refusal is final, or time or tries are over. The first may be
        one that has `begun` already. Tries that reached no broker are not counted: nothing was sent by them.
        """
        settings, clock, topic = self.settings, self.clock, letter.envelope.topic
        if timeout_s is None:
            timeout_s = settings.send_msg_timeout
        now = clock.monotonic() if begun is None else begun[2]
        deadline = now + timeout_s
        if letter.is_raw:
            await self._finish(letter)
            now = clock.monotonic()
        retries = settings.retry_times_when_send_failed
        most = retries + 1 if pick is None else 1
        counted = 0  # tries after which the message may be stored, or that a broker refused
        tries: list[Try] = []
        weak: SendResult | None = None  # stored, but not as asked
        failed_broker: str | None = None
        while counted < most:
            left_s = deadline - now
            if left_s <= 0:
                break
            route = self._known(topic)
            if route is None:
                route = await self._route(topic, tries, left_s)
                now = clock.monotonic()
                left_s = max(0.0, deadline - now)
            if begun is not None:
                queue = begun[0]
            elif pick is not None:
                queue = pick(route.publish)
            else:
                queue = self.choice.choose(route.publish, failed_broker)
            started = now
            if counted + 1 < most and settings.send_msg_max_timeout_per_request >= 0:
                left_s = min(left_s, settings.send_msg_max_timeout_per_request)
            try:
                if begun is not None:
                    waiting, begun = begun[1], None
                    result = result_of(await waiting, queue, letter)
                else:
                    result = await self._once(letter, route, queue, left_s, len(tries) + 1)
            except (OSError, Refused) as error:
                now = clock.monotonic()
                tries.append(Try(queue.broker, now - started, error))
                self._blame(queue.broker, now - started, now, error)
                if isinstance(error, Refused) and (pick or error.code not in settings.retry_response_codes):
                    if weak is not None:
                        return weak
                    raise
                failed_broker = queue.broker
                counted += not (retries and _is_unsent(error))
                await self._doubt(topic, route, failed_broker, deadline - now if counted < most else 0.0)
                brokers = 1 if pick is not None else len({one.broker for one in route.publish})
                if counted < most and not await self._pause(len(tries), brokers, deadline):
                    break
                now = clock.monotonic()
                continue
            if self.faults is not None:
                now = clock.monotonic()
                self.faults.record(queue.broker, now - started, now)
            if result.status is SendStatus.SEND_OK or not settings.retry_another_broker_when_not_store_ok:
                return result
            counted += 1
            weak, failed_broker, now = result, queue.broker, clock.monotonic()
        if weak is not None:
            return weak
        raise failed(topic, tries, timed_out=now >= deadline)

    async def oneway(
        self, letter: PreparedSend, timeout_s: float | None = None, pick: Pick | None = None
    ) -> None:
        """Written to a connection, once, and not answered. Raises SendFailed when there is no connection."""
        if timeout_s is None:
            timeout_s = self.settings.send_msg_timeout
        deadline = self.clock.monotonic() + timeout_s
        if letter.is_raw:
            await self._finish(letter)
        topic = letter.envelope.topic
        route = await self.route(topic, timeout_s)
        queue = (pick or self.choice.choose)(route.publish)
        started = self.clock.monotonic()
        context: SendContext | None = None
        try:
            address = self._address(route, queue.broker)
            if self.hooks:
                context = self._context(letter, queue, address, 1, SendMode.ONEWAY)
                _prepare(self.hooks, context, letter)
            await self.calls.send_oneway(address, self._request(letter, queue), deadline - started)
            self._oneways += 1
            if self._oneways % FAIR_ONEWAYS == 0:
                await asyncio.sleep(0)  # nothing else waits here: others get their turn
        except OSError as error:
            now = self.clock.monotonic()
            self._blame(queue.broker, now - started, now, error)
            self._renew(topic)
            if context is not None:
                context.failure = error
            raise failed(topic, [Try(queue.broker, now - started, error)], now >= deadline) from error
        finally:
            if context is not None:
                run_after(self.hooks, context)

    async def _once(
        self, letter: PreparedSend, route: TopicRoute, queue: MessageQueue, timeout_s: float, attempt: int
    ) -> SendResult:
        address = self._address(route, queue.broker)
        if self.hooks:
            return await self._watched(letter, queue, address, timeout_s, attempt)
        answer = await self.calls.call(address, self._request(letter, queue), timeout_s)
        return result_of(answer, queue, letter)

    async def _watched(
        self, letter: PreparedSend, queue: MessageQueue, address: str, timeout_s: float, attempt: int
    ) -> SendResult:
        """A try with hooks around it."""
        context = self._context(letter, queue, address, attempt, SendMode.AWAITED)
        _prepare(self.hooks, context, letter)
        try:
            answer = await self.calls.call(address, self._request(letter, queue), timeout_s)
            context.result = result_of(answer, queue, letter)
            ext = answer.ext or {}
            context.region = ext.get(properties.MSG_REGION, "")
            context.is_traced = ext.get(properties.TRACE_ON) != "false"
            return context.result
        except Exception as error:
            context.failure = error
            raise
        finally:
            run_after(self.hooks, context)

    def _context(
        self, letter: PreparedSend, queue: MessageQueue, address: str, attempt: int, mode: SendMode
    ) -> SendContext:
        return SendContext(
            group=self.group,
            message=letter.message,
            properties=properties.parse(letter.properties),
            queue=queue,
            broker_address=address,
            mode=mode,
            messages=letter.messages,
            attempt=attempt,
            namespace=self.settings.namespace,
            body_size=len(letter.body),
            message_ids=letter.message_ids,
        )

    def _request(self, letter: PreparedSend, queue: MessageQueue) -> PackedSend:
        envelope = letter.envelope
        head = envelope.head(queue)
        return PackedSend(envelope.code, head, self.clock.now_ms(), letter.properties, letter.body)

    # Where to

    async def _route(
        self, topic: str, tries: list[Try], left_s: float, must_exist: bool = False
    ) -> TopicRoute:
        """Of a topic that is new to us. Raises SendFailed."""
        routes, most = self.routes, self.settings.default_topic_queue_nums
        routes.doubt(topic)
        try:
            async with asyncio.timeout(left_s):
                route = await (routes.find(topic) if must_exist else routes.find_or_template(topic, most))
        except TopicNotFound as error:
            raise TopicUnknown(topic, tries) from error
        except TimeoutError as error:
            told = [*tries, Try("name servers", left_s, error)]
            advice = ADVICE[NO_ANSWER if tries else NO_NAME_SERVER]
            raise SendTimedOut(topic, told, NO_ANSWER, advice) from error
        except (OSError, Refused) as error:
            told = [*tries, Try("name servers", 0.0, error)]
            raise SendFailed(topic, told, NO_NAME_SERVER, ADVICE[NO_NAME_SERVER]) from error
        if not route.publish:
            raise TopicUnknown(topic, tries)
        return route

    def _known(self, topic: str) -> TopicRoute | None:
        """When it has queues to send to."""
        route = self.routes.known(topic)
        return route if route is not None and route.publish else None

    def _address(self, route: TopicRoute, broker: str) -> str:
        address = route.master(broker)
        if address is None:
            raise BrokerUnknown(f"broker {broker} has no master")
        return vip(address) if self.settings.vip_channel_enabled else address

    async def _doubt(self, topic: str, route: TopicRoute, broker: str, left_s: float) -> None:
        """The route is asked for again. A retry waits for it only when the old one has no other broker."""
        renewal = self._renew(topic)
        if left_s > 0 and all(queue.broker == broker for queue in route.publish):
            await asyncio.wait({renewal}, timeout=min(left_s, ROUTE_PATIENCE_S))

    async def _pause(self, failures: int, brokers: int, deadline: float) -> bool:
        """Waits before brokers are tried that have failed before; the first try at each needs no pause.
        False: there is no time left for another try.
        """
        rounds, others = divmod(failures, brokers)
        if others:
            return True
        wait_s = pause_s(rounds - 1, self.chance.random())
        if self.clock.monotonic() + wait_s >= deadline:
            return False
        await self.clock.sleep(wait_s)
        return True

    def _renew(self, topic: str) -> asyncio.Task[None]:
        """In the background, so that silent name servers do not take a send's time; once at a time."""
        renewal = self._renewals.get(topic)
        if renewal is None:
            renewal = self._renewals[topic] = _task(self.routes.renew(topic))
            renewal.add_done_callback(lambda _: self._renewals.pop(topic, None))
        return renewal

    def _blame(self, broker: str, seconds: float, now: float, error: Exception) -> None:
        if self.faults is None:
            return
        is_refused, is_ours = isinstance(error, Refused), isinstance(error, BrokerUnknown)
        is_reachable = is_ours or not (is_refused or self.faults.is_probed)
        self.faults.record(broker, seconds, now, failed=not is_ours, reachable=is_reachable)


def _is_unsent(error: Exception) -> bool:
    """Whether a broker did not accept a connection, and so cannot have the message."""
    return isinstance(error, OSError) and not isinstance(
        error, ConnectionClosed | TimeoutError | BrokerUnknown
    )


Begun: TypeAlias = tuple[MessageQueue, Awaitable[Command], float]
"""A try under way: where to, the answer to come, and when it began."""


def _task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)


def _prepare(hooks: Sequence[SendHook], context: SendContext, letter: PreparedSend) -> None:
    """Hooks may add to the properties; what cannot be sent is left out."""
    before = dict(context.properties)
    run_before(hooks, context)
    if context.properties == before:  # most only watch
        return
    try:
        check_packed(packed := properties.pack(context.properties))
    except ValueError as error:
        log.warning("What hooks added to the properties is left out: %s", error)
        return
    letter.properties = packed


def vip(address: str) -> str:
    """The broker's second port, on which it takes nothing but sends and offsets."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_PORTS_BELOW}"


def result_of(answer: Command, queue: MessageQueue, letter: PreparedSend) -> SendResult:
    """What the broker says. Raises Refused when it is no."""
    status = STORED.get(answer.code)
    if status is None:
        refused = refusal(answer.code, answer.remark)
        refused.add_note(f"refused by {queue.broker}, queue {queue.id} of {queue.topic}")
        raise refused
    ext = answer.ext or {}
    replicas = ext.get("replicas", "")
    number = int(ext.get("queueId", queue.id))
    topic = letter.message.topic
    if number != queue.id or topic != queue.topic:
        queue = MessageQueue(topic, queue.broker, number)
    level = ext.get("delayLevel")
    if letter.message.delay_level:
        _warn_of_level(topic, letter.message.delay_level, level)
    return SendResult(
        status,
        letter.unique_key,
        ext.get("msgId", ""),
        queue,
        int(ext.get("queueOffset", "0")),
        ext.get("durability"),
        int(replicas) if replicas.isdecimal() else None,
        ext.get("recallHandle"),
        int(level) if level is not None and level.isdecimal() else None,
    )


def _warn_of_level(topic: str, asked: int, applied: str | None) -> None:
    """A level above the broker's highest becomes its highest; Apache's brokers do not say which that is."""
    if applied is None and asked > APACHE_LEVELS:
        words = "delay_level=%d for %s is above Apache's 18 levels: the broker applies its highest one"
        _levels.say((topic, asked), words, asked, topic)
    elif applied is not None and applied != str(asked):
        words = "delay_level=%d for %s is above the broker's highest: level %s is applied (messageDelayLevel)"
        _levels.say((topic, asked), words, asked, topic, applied)


def failed(topic: str, tries: Sequence[Try], timed_out: bool) -> SendFailed:
    """The end of a send without success, with what to do about it."""
    last = tries[-1].failure if tries else None
    if timed_out or isinstance(last, TimeoutError):
        error: SendFailed = SendTimedOut(topic, tries, NO_ANSWER, ADVICE[NO_ANSWER])
    elif isinstance(last, Refused):
        error = SendFailed(topic, tries, last.code, "The brokers say why; see their logs for more.")
    else:
        code = BROKER_UNKNOWN if isinstance(last, BrokerUnknown) else CONNECT_FAILED
        error = SendFailed(topic, tries, code, ADVICE[code])
    error.__cause__ = last
    return error


ADVICE = {
    CONNECT_FAILED: "Check that the brokers run and that their addresses (brokerIP1) are right for us.",
    NO_ANSWER: "It may be stored all the same. Give more time (timeout=, send_msg_timeout=), or set "
    "send_msg_max_timeout_per_request so that there is time for another broker.",
    NO_NAME_SERVER: "No name server says which brokers have the topic: check name_servers= and their logs.",
    BROKER_UNKNOWN: "Name servers know no address of this broker: does it run, and is it registered?",
}
