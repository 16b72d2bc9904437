"""Sends a message: chooses a queue, sends, and tries another broker in the same time limit when one fails.

A `PreparedSend` holds what stays the same in every try. `packer.py` makes it once, so a message keeps its
unique key and a consumer can tell a repetition from a second message. `rules.py` checks before this what may
be sent; `send_result.py` says how a send ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from turbopump.client.errors import SendFailed, SendTimedOut, TopicUnknown, Try
from turbopump.client.message import Message, MessageQueue, SendResult, SendStatus
from turbopump.client.name_servers import Caller
from turbopump.client.observe.hooks import SendContext, SendHook, SendMode, run_after, run_before
from turbopump.client.produce.backoff import pause_s
from turbopump.client.produce.broker_health import BrokerHealth
from turbopump.client.produce.packer import IdSource, MessagePacker
from turbopump.client.produce.prepared_send import PreparedSend
from turbopump.client.produce.send_result import (
    ADVICE,
    BROKER_UNKNOWN,
    MASTER_AWAY,
    NO_ANSWER,
    NO_NAME_SERVER,
    BrokerUnknown,
    MasterAway,
    failed,
    result_of,
)
from turbopump.client.routes import RouteCache, TopicRoute
from turbopump.client.rules import check_packed
from turbopump.client.settings import ProducerSettings
from turbopump.protocol import properties
from turbopump.protocol.command import Command
from turbopump.protocol.errors import AccessRefused, Refused, ServiceNotAvailable, TopicNotFound
from turbopump.protocol.packed_send import PackedSend
from turbopump.remoting.connection import ConnectionClosed
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

DEFAULTS = ProducerSettings()
ROUTE_PATIENCE_S = 1.0  # how long a retry waits for a new route when the old one knows no other broker
VIP_PORTS_BELOW = 2
ONEWAYS_PER_TURN = 64

Pick = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses the one queue that a send must go to; such a send has one try."""

StartedTry: TypeAlias = tuple[MessageQueue, Awaitable[Command], float]
"""A try in flight: its queue, the answer to come, and when it started."""


class QueueSelector(Protocol):
    """Chooses queues for sends that may go to any queue."""

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """Returns one of the queues, preferably of another broker than `avoid`."""


class SendCaller(Caller, Protocol):
    """What a `Sender` uses of `remoting.Client`: calls, one-way sends, and fields of every header."""

    @property
    def extra(self) -> Mapping[str, str]:
        """Header fields that are added to every request."""

    async def call(self, address: str, request: Command | PackedSend, timeout_s: float) -> Command: ...

    def ask(self, address: str, request: Command | PackedSend, timeout_s: float) -> Awaitable[Command] | None:
        """Writes the request at once and returns its answer to await; None: not connected, use `call`."""

    async def send_oneway(self, address: str, request: Command | PackedSend, timeout_s: float) -> None: ...


class SendWatch(Protocol):
    """Protocol of what watches sends that wait; it is told of a send only while it is idle."""

    is_idle: bool

    def sending(self) -> None: ...


@dataclass
class Sender:
    """Sends messages for one producer group, with retries at other brokers.

    Used by producers, tools and consumers that send back. Example, given a `remoting.Client` and its
    `RouteCache`:

        sender = Sender(client, routes, clock, UniqueIds(ip, pid, clock.now_ms), RoundRobin(chance))
        result = await sender.send(Message("orders", b"...", tags="paid"))
    """

    calls: SendCaller
    routes: RouteCache
    clock: Clock
    unique_ids: IdSource
    selector: QueueSelector
    group: str = "CLIENT_INNER_PRODUCER"
    settings: ProducerSettings = DEFAULTS
    hooks: Sequence[SendHook] = ()
    health: BrokerHealth | None = None
    chance: Chance = field(default_factory=Chance)
    """For the pauses between tries."""
    watch: SendWatch | None = field(default=None, init=False)
    packer: MessagePacker = field(init=False)
    prepare: Callable[..., PreparedSend] = field(init=False)
    """`packer.prepare`, without a call in between: it runs for every message."""
    _oneways: int = field(default=0, init=False)
    _renewals: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _tasks: Tasks = field(default_factory=lambda: Tasks(log), init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.packer = MessagePacker(self.group, settings, self.unique_ids, self.calls.extra)
        self.prepare = self.packer.prepare
        self._is_plain = not (self.hooks or self.health or settings.vip_channel_enabled)
        self._is_plain &= settings.send_msg_max_timeout_per_request < 0

    # Sends and routes

    async def send(self, message: Message, timeout_s: float | None = None) -> SendResult:
        """Sends a message to any queue of its topic, with retries. Raises Refused or SendFailed.

        Raises Refused when a broker refuses and others would refuse too, SendFailed (an OSError) when none of
        the tries succeeded.
        """
        return await self.deliver(self.prepare(message), timeout_s)

    async def send_to(
        self, queue: MessageQueue, message: Message, timeout_s: float | None = None
    ) -> SendResult:
        """Sends a message to this queue and no other, in one try. Raises Refused or SendFailed."""
        return await self.deliver(self.prepare(message), timeout_s, lambda queues: queue)

    async def route(self, topic: str, timeout_s: float) -> TopicRoute:
        """Returns the route to send to `topic`, known or asked for. Raises SendFailed.

        `topic` includes the namespace. The route of a topic that does not exist has the queues that a send
        creates.
        """
        return self._known(topic) or await self._route(topic, [], timeout_s)

    async def queues(self, topic: str, timeout_s: float) -> tuple[MessageQueue, ...]:
        """Returns the writable queues of a topic that exists, given with its namespace. Raises SendFailed."""
        route = self._known(topic) or await self._route(topic, [], timeout_s, must_exist=True)
        return route.publish

    async def close(self) -> None:
        """Cancels the route requests that run in the background."""
        await self._tasks.close()

    # Tries

    def begin(self, prepared: PreparedSend, timeout_s: float) -> StartedTry | None:
        """Starts the first try of a plain send if route and connection are there; None: call `deliver`.

        The caller awaits the answer, and passes the try on to `deliver` when it does not end with success.
        Most sends end with this try.
        """
        route = self._known(prepared.template.topic) if self._is_plain and timeout_s > 0 else None
        if route is None or prepared.is_raw:
            return None
        queue = self.selector.choose(route.publish)
        address = route.master(queue.broker)
        if address is None:
            return None
        began = self.clock.monotonic()
        try:
            answer = self.calls.ask(address, self._request(prepared, queue), timeout_s)
        except OSError:
            return None
        if answer is None:
            return None
        if self.watch is not None and self.watch.is_idle:
            self.watch.sending()
        return queue, answer, began

    async def deliver(
        self,
        prepared: PreparedSend,
        timeout_s: float | None = None,
        pick: Pick | None = None,
        begun: StartedTry | None = None,
    ) -> SendResult:
        """Sends with retries and returns the result of the try that succeeded. Raises Refused or SendFailed.

        Tries again until a try succeeds, a refusal is final, or time or tries are used up. The first try may
        be one that has `begun` already. A try that reached no broker is not counted, because it sent nothing;
        nor is one at the topic's only broker that is no master now: the next one is registered in a while.
        """
        settings, clock, topic = self.settings, self.clock, prepared.template.topic
        if timeout_s is None:
            timeout_s = settings.send_msg_timeout
        now = clock.monotonic() if begun is None else begun[2]
        deadline = now + timeout_s
        if prepared.is_raw:
            await self.packer.compress(prepared)
            now = clock.monotonic()
        retries = settings.retry_times_when_send_failed
        max_tries = retries + 1 if pick is None else 1
        counted = 0  # tries after which the message may be stored, or that a broker refused
        tries: list[Try] = []
        weak: SendResult | None = None  # stored, but not as safely as was asked
        failed_broker: str | None = None
        while counted < max_tries:
            left_s = deadline - now
            if left_s <= 0:
                break
            route = self._known(topic)
            if route is None:
                route = await self._route_with_master(topic, tries, deadline, may_wait=max_tries > 1)
                now = clock.monotonic()
                left_s = max(0.0, deadline - now)
            if begun is not None:
                queue = begun[0]
            elif pick is not None:
                queue = pick(route.publish)
            else:
                queue = self.selector.choose(route.publish, failed_broker)
            started = now
            # A silent broker must not use up the time of the tries after this one; the last try gets it all.
            if counted + 1 < max_tries and settings.send_msg_max_timeout_per_request >= 0:
                left_s = min(left_s, settings.send_msg_max_timeout_per_request)
            try:
                if begun is not None:
                    waiting, begun = begun[1], None
                    result = result_of(await waiting, queue, prepared)
                else:
                    result = await self._once(prepared, route, queue, left_s, len(tries) + 1)
            except (OSError, Refused) as error:
                now = clock.monotonic()
                tries.append(Try(queue.broker, now - started, error))
                self._record_failure(queue.broker, now - started, now, error)
                if isinstance(error, Refused) and (pick or error.code not in settings.retry_response_codes):
                    if weak is not None:
                        return weak
                    raise
                if isinstance(error, AccessRefused) and _have_all_refused(tries, route):
                    break
                failed_broker = queue.broker
                counted += not (retries and (_is_unsent(error) or _is_led_elsewhere(error, queue, route)))
                left_s = deadline - now if counted < max_tries else 0.0
                await self._renew_after_failure(topic, route, failed_broker, left_s)
                brokers = 1 if pick is not None else len({one.broker for one in route.publish})
                if counted < max_tries and not await self._pause(len(tries), brokers, deadline):
                    break
                now = clock.monotonic()
                continue
            if self.health is not None:
                now = clock.monotonic()
                self.health.record(queue.broker, now - started, now)
            if result.status is SendStatus.SEND_OK or not settings.retry_another_broker_when_not_store_ok:
                return result
            counted += 1
            weak, failed_broker, now = result, queue.broker, clock.monotonic()
        if weak is not None:
            return weak
        raise failed(topic, tries, timed_out=now >= deadline)

    async def oneway(
        self, prepared: PreparedSend, timeout_s: float | None = None, pick: Pick | None = None
    ) -> None:
        """Writes the message to a connection once and waits for no answer. Raises SendFailed if it cannot."""
        if timeout_s is None:
            timeout_s = self.settings.send_msg_timeout
        deadline = self.clock.monotonic() + timeout_s
        if prepared.is_raw:
            await self.packer.compress(prepared)
        topic = prepared.template.topic
        route = await self.route(topic, timeout_s)
        queue = (pick or self.selector.choose)(route.publish)
        started = self.clock.monotonic()
        context: SendContext | None = None
        try:
            address = self._address(route, queue.broker)
            if self.hooks:
                context = self._context(prepared, queue, address, 1, SendMode.ONEWAY)
                _run_before(self.hooks, context, prepared)
            await self.calls.send_oneway(address, self._request(prepared, queue), deadline - started)
            self._oneways += 1
            if self._oneways % ONEWAYS_PER_TURN == 0:
                await asyncio.sleep(
                    0
                )  # a one-way send waits for nothing: without this no other task would run
        except OSError as error:
            now = self.clock.monotonic()
            self._record_failure(queue.broker, now - started, now, error)
            self._renew(topic)
            if context is not None:
                context.failure = error
            raise failed(topic, [Try(queue.broker, now - started, error)], now >= deadline) from error
        finally:
            if context is not None:
                run_after(self.hooks, context)

    async def _once(
        self, prepared: PreparedSend, route: TopicRoute, queue: MessageQueue, timeout_s: float, attempt: int
    ) -> SendResult:
        address = self._address(route, queue.broker)
        if self.watch is not None and self.watch.is_idle:
            self.watch.sending()
        if self.hooks:
            return await self._once_with_hooks(prepared, queue, address, timeout_s, attempt)
        answer = await self.calls.call(address, self._request(prepared, queue), timeout_s)
        return result_of(answer, queue, prepared)

    async def _once_with_hooks(
        self, prepared: PreparedSend, queue: MessageQueue, address: str, timeout_s: float, attempt: int
    ) -> SendResult:
        context = self._context(prepared, queue, address, attempt, SendMode.AWAITED)
        _run_before(self.hooks, context, prepared)
        try:
            answer = await self.calls.call(address, self._request(prepared, queue), timeout_s)
            context.result = result_of(answer, queue, prepared)
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
        self, prepared: PreparedSend, queue: MessageQueue, address: str, attempt: int, mode: SendMode
    ) -> SendContext:
        return SendContext(
            group=self.group,
            message=prepared.message,
            properties=properties.parse(prepared.properties),
            queue=queue,
            broker_address=address,
            mode=mode,
            messages=prepared.messages,
            attempt=attempt,
            namespace=self.settings.namespace,
            body_size=len(prepared.body),
            message_ids=prepared.message_ids,
        )

    def _request(self, prepared: PreparedSend, queue: MessageQueue) -> PackedSend:
        template = prepared.template
        head = template.head(queue)
        return PackedSend(template.code, head, self.clock.now_ms(), prepared.properties, prepared.body)

    # Routes of tries

    async def _route(
        self, topic: str, tries: list[Try], left_s: float, must_exist: bool = False
    ) -> TopicRoute:
        """Asks for the route to send to a topic. Raises SendFailed, also for one without writable queues."""
        routes, new_queues = self.routes, self.settings.default_topic_queue_nums
        routes.doubt(topic)
        try:
            async with asyncio.timeout(left_s):
                found = routes.find(topic) if must_exist else routes.find_or_template(topic, new_queues)
                route = await found
        except TopicNotFound as error:
            raise TopicUnknown(topic, tries) from error
        except TimeoutError as error:
            told = [*tries, Try("name servers", left_s, error)]
            advice = ADVICE[NO_ANSWER if tries else NO_NAME_SERVER]
            raise SendTimedOut(topic, told, NO_ANSWER, advice) from error
        except (OSError, Refused) as error:
            told = [*tries, Try("name servers", 0.0, error)]
            raise SendFailed(topic, told, NO_NAME_SERVER, ADVICE[NO_NAME_SERVER]) from error
        if not route.publish and route.without_master:
            away = BrokerUnknown(f"broker {route.without_master[0]} has no master")
            told = [*tries, Try(route.without_master[0], 0.0, away)]
            raise MasterAway(topic, told, BROKER_UNKNOWN, ADVICE[MASTER_AWAY]) from away
        if not route.publish:
            raise TopicUnknown(topic, tries)
        return route

    async def _route_with_master(
        self, topic: str, tries: list[Try], deadline: float, may_wait: bool
    ) -> TopicRoute:
        """Returns the route; while no broker of the topic has a master, asks again until `deadline`.

        Raises SendFailed.
        """
        while True:
            try:
                return await self._route(topic, tries, max(0.0, deadline - self.clock.monotonic()))
            except MasterAway as away:
                tries.append(away.tries[-1])
                if not may_wait or not await self._pause(len(tries), 1, deadline):
                    raise

    def _known(self, topic: str) -> TopicRoute | None:
        """Returns the known route without a request; None: there is none, or it has no writable queue."""
        route = self.routes.known(topic)
        return route if route is not None and route.publish else None

    def _address(self, route: TopicRoute, broker: str) -> str:
        address = route.master(broker)
        if address is None:
            raise BrokerUnknown(f"broker {broker} has no master")
        return vip(address) if self.settings.vip_channel_enabled else address

    async def _renew_after_failure(self, topic: str, route: TopicRoute, broker: str, left_s: float) -> None:
        """Asks for the route in the background; waits for it only when the topic has no broker but `broker`.

        The wait takes at most ROUTE_PATIENCE_S.
        """
        renewal = self._renew(topic)
        if left_s > 0 and all(queue.broker == broker for queue in route.publish):
            await asyncio.wait({renewal}, timeout=min(left_s, ROUTE_PATIENCE_S))

    async def _pause(self, failures: int, brokers: int, deadline: float) -> bool:
        """Sleeps after each round of failures at all brokers; False: no time is left for another try.

        Before the first try at each broker there is no pause.
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
        """Returns the task that asks for a topic's route in the background; starts it unless it runs already.

        So name servers that do not answer delay no send.
        """
        renewal = self._renewals.get(topic)
        if renewal is None:
            renewal = self._renewals[topic] = self._tasks.start(self.routes.renew(topic))
            renewal.add_done_callback(lambda _: self._renewals.pop(topic, None))
        return renewal

    def _record_failure(self, broker: str, seconds: float, now: float, error: Exception) -> None:
        if self.health is None:
            return
        is_refused, is_ours = isinstance(error, Refused), isinstance(error, BrokerUnknown)
        is_reachable = is_ours or not (is_refused or self.health.is_probed)
        self.health.record(broker, seconds, now, failed=not is_ours, reachable=is_reachable)


def _is_unsent(error: Exception) -> bool:
    """Returns whether the error means that the broker accepted no connection and cannot have the message."""
    return isinstance(error, OSError) and not isinstance(
        error, ConnectionClosed | TimeoutError | BrokerUnknown
    )


def _is_led_elsewhere(error: Exception, queue: MessageQueue, route: TopicRoute) -> bool:
    """Returns whether the topic's only broker is no master now, so that there is none until it has another.

    With other brokers, each of them has its tries.
    """
    is_away = isinstance(error, ServiceNotAvailable)
    return is_away and all(other.broker == queue.broker for other in route.publish)


def _have_all_refused(tries: Sequence[Try], route: TopicRoute) -> bool:
    """Returns whether access control of each broker of the route has refused the message: none is left.

    Brokers do not tell each other their users, so one that knows this user may be left.
    """
    refused = {one.broker for one in tries if isinstance(one.failure, AccessRefused)}
    return refused.issuperset(queue.broker for queue in route.publish)


def _run_before(hooks: Sequence[SendHook], context: SendContext, prepared: PreparedSend) -> None:
    """Runs the hooks before a try and packs the properties they add into `prepared`, if they can be sent."""
    before = dict(context.properties)
    run_before(hooks, context)
    if context.properties == before:  # most hooks only watch
        return
    try:
        check_packed(packed := properties.pack(context.properties))
    except ValueError as error:
        log.warning("Ignoring properties added by hooks: %s", error)
        return
    prepared.properties = packed


def vip(address: str) -> str:
    """Returns the address of a broker's fast port, two below its main port, which serves no pulls."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_PORTS_BELOW}"


def main_address(address: str) -> str:
    """Returns the address of a broker's main port, from that of its fast port."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + VIP_PORTS_BELOW}"
