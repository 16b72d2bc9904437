"""The async producer: checks a message, gives it to the `Sender`, and limits the sends in flight.

In: messages of the user. Out: receipts, or one exception that says what to do. `sender.py` makes the tries of
a send, `rules.py` knows what may be sent, `parts.py` wires a producer that starts.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Self, Unpack

from msgspec.structs import replace

from turbopump.client import discovery, rules
from turbopump.client.errors import (
    InvalidArgument,
    NotPrepared,
    NotRunning,
    RequestTimedOut,
    SendTimedOut,
)
from turbopump.client.instance import ClientInstance, instances
from turbopump.client.message import Message, MessageExt, MessageQueue, SendResult, SendStatus
from turbopump.client.observe.hooks import CreateHook, SendHook
from turbopump.client.observe.telemetry import send_hooks
from turbopump.client.options import ProducerOptions
from turbopump.client.produce import batches, recalls
from turbopump.client.produce.auto_batch import AutoBatcher
from turbopump.client.produce.broker_health import broker_health
from turbopump.client.produce.membership import ProducerMembership
from turbopump.client.produce.packer import COMPRESSIONS
from turbopump.client.produce.parts import ProducerParts, start_parts
from turbopump.client.produce.prepared_send import PreparedSend
from turbopump.client.produce.queue_pick import pick_for
from turbopump.client.produce.request_reply import marks_of_request, reply_to
from turbopump.client.produce.selectors import Selector
from turbopump.client.produce.send_limits import SendLimits
from turbopump.client.produce.send_result import NO_ANSWER, result_of
from turbopump.client.produce.sender import Pick, Sender
from turbopump.client.produce.transaction import (
    AsyncTransaction,
    Check,
    CheckResponder,
    Decision,
    Execute,
    TransactionResult,
    decided,
    tell,
)
from turbopump.client.produce.unique_ids import process_id
from turbopump.client.queue_names import QueueNames
from turbopump.client.settings import ProducerSettings, made
from turbopump.client.world import World
from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.sysflag import PREPARED
from turbopump.runtime.tasks import SharedTask, Tasks

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 3.0
SUCCESS = int(ResponseCode.SUCCESS)


class Producer:
    """Sends messages to topics, as a member of a producer group.

        async with Producer("orders", name_servers="127.0.0.1:9876") as producer:
            receipt = await producer.send(Message("OrderTopic", b"paid", tags="paid", keys="A-1"))
            await producer.send(order, by="A-1")  # same key, same queue, in order

    `group` names the producers that do the same work. `check` says how a transaction of the group ended, when
    a broker asks: see `transaction`. Every other keyword is a setting, with Apache's name
    in Python's spelling; see docs/settings.md. One producer serves all tasks of its event loop: make one and
    keep it. `async with` calls `start` and `close`.

    A send that fails is tried again, at another broker if there is one, until `retry_times_when_send_failed`
    more tries or `send_msg_timeout` are used up. With `by`, `queue` or `select` there is one try, because the
    message must go to that queue. A send can raise:

    - InvalidArgument: the message is not valid; nothing was sent.
    - NotRunning: before `start`, or after `close`.
    - Refused: a broker refused, and others would refuse too; its classes are in `turbopump.errors`.
    - SendFailed: no try succeeded; `.tries` lists them, `.code` is Apache's code of the last one. Its
      subclass SendTimedOut means that the message may have been stored although the answer was late.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        hooks: Sequence[SendHook] = (),
        check: Check | None = None,
        world: World | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> None:
        rules.check_group(group)
        self.group = group
        self._settings = made(ProducerSettings, settings, discovery.defaults())
        broker_health(self._settings)  # refuses two tables now, not at the start
        if self._settings.compress_type not in COMPRESSIONS:
            allowed, given = ", ".join(COMPRESSIONS), self._settings.compress_type
            raise InvalidArgument(f"compress_type must be one of {allowed}, got {given!r}")
        self._name_servers = discovery.name_servers(name_servers, domain=self._settings.name_server_domain)
        self._world = world or World()
        self._hooks = (*hooks, *send_hooks(self._settings.telemetry))
        self._creators = [hook.create for hook in self._hooks if isinstance(hook, CreateHook)]
        self._names = QueueNames(self._settings.namespace)
        own = self._settings
        wire_group = self._names.topic(group)
        self._check_responder = CheckResponder(
            wire_group,
            check,
            own.check_thread_pool_max_size,
            own.check_request_hold_max,
            own.namespace,
            own.decode_decompress_body,
        )
        self._membership = ProducerMembership(wire_group, self._check_responder, self._world.clock)
        self._rules = rules.SendRules(self._settings.max_message_size)
        self._limits = SendLimits(self._settings.max_in_flight, self._settings.max_in_flight_bytes)
        self._instance: ClientInstance | None = None
        self._sender: Sender | None = None
        self._auto_batcher: AutoBatcher | None = None
        self._parts: ProducerParts | None = None
        self._pid = 0
        self._sends = Tasks(log)
        self._replies: set[asyncio.Future[MessageExt]] = set()
        self._starting = SharedTask(self._start, repeats_failed=True)
        self._closing = SharedTask(self._close)
        self._is_closed = False

    @property
    def settings(self) -> ProducerSettings:
        """All settings, defaults included."""
        return self._settings

    # Start and close

    async def start(self) -> None:
        """Connects to a name server and joins the producer group; does nothing while the producer runs.

        Raises NoNameServer.
        """
        if self._is_closed:
            raise NotRunning("this producer is closed: make a new one")
        await self._starting.wait()

    async def close(self) -> None:
        """Waits for the sends in flight, then leaves the group. May be called again, and without a start."""
        self._is_closed = True
        await self._closing.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _start(self) -> None:
        settings = self._settings
        instance = await instances().take(
            settings, self._name_servers, self._world, is_stream=settings.enable_stream_request_type
        )
        try:
            await self._membership.join(instance)
        except BaseException:
            await instances().give_back(instance)
            raise
        self._pid = process_id()
        self._instance = instance
        self._parts = await start_parts(
            self.group, settings, instance, self._membership, self._hooks, self._check_responder
        )
        self._sender = self._parts.sender
        if settings.auto_batch:
            self._auto_batcher = AutoBatcher(self._sender, settings, self._deliver_batch)

    async def _close(self) -> None:
        await self._starting.wait_ended()
        instance, parts = self._instance, self._parts
        if instance is None or parts is None:
            return
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(NotRunning("the producer was closed before the reply came"))
        if self._auto_batcher is not None:
            await self._auto_batcher.close()
        await self._sends.wait()
        await self._limits.wait_idle()
        await parts.close()
        await instance.leave_producer(self._membership.group)
        await self._check_responder.close()
        await instances().give_back(instance)

    def _running(self) -> Sender:
        sender = self._sender
        if sender is None or self._is_closed:
            if self._is_closed:
                raise NotRunning("this producer is closed: make a new one")
            raise NotRunning(
                "this producer is not started: use `async with producer:` or `await producer.start()`"
            )
        if process_id() != self._pid:
            raise NotRunning(
                f"this producer belongs to process {self._pid}, from which this one was forked: "
                "make and start one here, after the fork"
            )
        return sender

    # Sending

    async def send(
        self,
        message: Message,
        *,
        by: object = None,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Sends a message and returns its receipt when a broker has stored it; `.status` says how safely.

        `by`: messages with the same key go to the same queue, the one that a Java producer chooses with
        SelectMessageQueueByHash. `queue`: this queue. `select`: a function that gets the topic's queues and
        the message and returns one of the queues. Without any of these, the queues take turns.
        `timeout`: seconds for all tries together, instead of `send_msg_timeout`.
        """
        sender = self._running()
        if self._auto_batcher is not None and self._is_auto_batched(message, timeout):
            return await self._auto_batch(sender, message, by, queue, select)
        prepared, pick = self._prepared(sender, message, by, queue, select)
        timeout_s = self._settings.send_msg_timeout if timeout is None else self._seconds(timeout)
        limits, size = self._limits, len(prepared.body)
        if not limits.try_acquire(size):
            timeout_s = await self._wait_for_turn(prepared, size, timeout_s)
        try:
            begun = sender.begin(prepared, timeout_s) if pick is None else None
            if begun is not None:
                try:
                    answer = await begun[1]
                    if answer.code == SUCCESS:
                        return result_of(answer, begun[0], prepared)
                except OSError:
                    pass  # `deliver` awaits the same try again and handles its failure
            return await sender.deliver(prepared, timeout_s, pick, begun)
        finally:
            limits.release(size)

    def send_async(
        self,
        message: Message,
        *,
        by: object = None,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout: float | None = None,
    ) -> asyncio.Task[SendResult]:
        """Starts a `send` and returns its task at once; `close` waits for it.

        An InvalidArgument of the message is raised at once.
        """
        sender = self._running()
        if self._auto_batcher is not None and self._is_auto_batched(message, timeout):
            work = self._auto_batch(sender, message, by, queue, select)
        else:
            prepared, pick = self._prepared(sender, message, by, queue, select)
            work = self._deliver(sender, prepared, self._seconds(timeout), pick)
        return self._sends.start(work, log_failure=False)

    async def send_oneway(
        self,
        message: Message,
        *,
        by: object = None,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
    ) -> None:
        """Sends without an answer: returns when the message is written to a connection. It may be lost."""
        sender = self._running()
        prepared, pick = self._prepared(sender, message, by, queue, select)
        await sender.oneway(prepared, None, pick)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        by: object = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Sends several messages of one topic in few requests; returns one result for each, in their order.

        More than `max_message_size` bytes go in several requests, one after the other; each of them is stored
        as a whole or not at all. When one fails, those before it are stored: the exception's notes say how
        many messages that were. Delayed messages cannot be in a batch.
        """
        sender = self._running()
        batch = list(messages)
        self._rules.check_batch(batch)
        if self._creators:
            batch = [self._created(message) for message in batch]
        if not batch:
            return []
        pick = pick_for(self._names, batch[0], by, queue, None)
        self._membership.use(self._names.topic(batch[0].topic))
        deadline = self._world.clock.monotonic() + self._seconds(timeout)
        results: list[SendResult] = []
        for prepared, keys in list(
            batches.prepared_chunks(sender.packer, batch, self._settings.max_message_size)
        ):
            left_s = deadline - self._world.clock.monotonic()
            try:
                results += batches.split_result(await self._deliver(sender, prepared, left_s, pick), keys)
            except Exception as error:
                error.add_note(f"of the batch, the first {len(results)} messages are stored")
                raise
        return results

    async def request(
        self,
        message: Message,
        *,
        by: object = None,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> MessageExt:
        """Sends a request message and returns the message with which a consumer answers it by `reply`.

        Raises what `send` raises, and RequestTimedOut when the request was stored and no consumer answered.
        """
        sender = self._running()
        assert self._instance is not None
        clock, instance = self._world.clock, self._instance
        deadline = clock.monotonic() + self._seconds(timeout)
        marks = marks_of_request(instance.client_id, timeout, self._world.chance)
        prepared, pick = self._prepared(sender, message, by, queue, select, marks)
        await self._membership.announce(sender, prepared.template.topic, deadline)
        reply = instance.replies.expect(marks[properties.CORRELATION_ID])
        self._replies.add(reply)
        try:
            await self._deliver(sender, prepared, deadline - clock.monotonic(), pick)
            try:
                async with asyncio.timeout(max(0.0, deadline - clock.monotonic())):
                    return await reply
            except TimeoutError:
                raise RequestTimedOut(
                    f"no reply to message {prepared.unique_key} of {message.topic} in {timeout} s: does a "
                    "consumer of the topic run, and does it call producer.reply(message, body)?"
                ) from None
        finally:
            self._replies.discard(reply)
            reply.cancel()

    def transaction(self, message: Message, *, check_after: int | None = None) -> AsyncTransaction:
        """Returns a transaction, committed when its block ends and rolled back when the block raises:

            async with producer.transaction(Message("OrderTopic", b"paid", keys="A-1")):
                await pay("A-1")

        The transaction's own `commit`, `rollback` and `unknown` end it earlier, and `receipt` names the place
        of the half message. When the process dies in the block, brokers ask producers of the group how it
        ended: the function given as `Producer(…, check=…)` looks it up and returns a Decision.

        `check_after`: seconds before the broker asks, when the work takes longer than its
        `transactionTimeOut` (6 s). A message with a delay level cannot be sent in a transaction.
        """
        return AsyncTransaction(self._prepare, self._end, message, check_after)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, check_after: int | None = None
    ) -> TransactionResult:
        """Stores the half message, calls `execute(message)`, and ends the transaction by its Decision.

        `execute` does the local work and returns a Decision. None and an exception count as UNKNOWN: the
        broker will ask `check`.
        """
        transaction = self.transaction(message, check_after=check_after)
        receipt = await transaction.begin()
        failure: Exception | None = None
        try:
            decision = await decided(execute, message)
        except Exception as error:
            decision, failure = Decision.UNKNOWN, error
        await transaction.end(decision)
        return TransactionResult(receipt, decision, failure)

    async def reply(self, to: MessageExt, body: bytes, *, timeout: float | None = None) -> SendResult:
        """Answers a message that was sent with `request`; the reply goes to the client that waits for it."""
        sender = self._running()
        message, marks = reply_to(to, body)
        self._rules.check(message)
        return await self._deliver(sender, sender.prepare(message, marks), self._seconds(timeout), None)

    async def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Recalls a delayed message by its handle, so that no consumer gets it. Returns the message id.

            receipt = await producer.send(Message("OrderTopic", b"remind", delay=3600))
            await producer.recall("OrderTopic", receipt.recall_handle)

        Raises Refused when it is too late, or when the broker does not allow recalls (recallMessageEnable).
        A broker does not know whether the message still waits: recalling it twice is no error.
        """
        sender = self._running()
        rules.check_topic(topic)
        return await recalls.recall(sender, self._names.topic(topic), handle, self._seconds(timeout))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns the queues of a topic that can be sent to, in the order that selectors get.

        Raises TopicUnknown for a topic that does not exist yet.
        """
        sender = self._running()
        rules.check_topic(topic)
        wire_topic = self._names.topic(topic)
        return self._names.all_shown(await sender.queues(wire_topic, self._settings.send_msg_timeout))

    # Preparing and delivering

    async def _prepare(self, message: Message, check_after: int | None) -> SendResult:
        """Stores a half message and returns its receipt; raises NotPrepared unless the status is SEND_OK.

        Before that it announces the producer, because a broker may have to ask it soon.
        """
        if isinstance(message, Message) and message.delay_level:
            raise InvalidArgument("the message of a transaction must not be delayed: leave delay_level out")
        sender = self._running()
        marks = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: self._membership.group}
        if check_after is not None:
            marks[properties.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(int(check_after))
        prepared, _ = self._prepared(sender, message, None, None, None, marks)
        flags = int(prepared.template.fields["f"]) | PREPARED
        prepared.template = prepared.template.but(f=str(flags))
        timeout_s = self._settings.send_msg_timeout
        deadline = self._world.clock.monotonic() + timeout_s
        await self._membership.announce(sender, prepared.template.topic, deadline)
        left_s = deadline - self._world.clock.monotonic()
        receipt = await self._deliver(sender, prepared, left_s, None)
        if receipt.status is not SendStatus.SEND_OK:
            await self._end(message, receipt, Decision.ROLLBACK)
            raise NotPrepared(f"the half message was stored as {receipt.status.name}: it was rolled back")
        return receipt

    async def _end(self, message: Message, receipt: SendResult, decision: Decision) -> bool:
        """Tells the broker how a transaction ends; True: confirmed, False: it will ask. Raises Refused."""
        sender, topic = self._running(), self._names.topic(message.topic)
        is_known = await tell(sender, topic, receipt, decision, self._settings.send_msg_timeout)
        parts = self._parts
        if parts is not None and parts.trace_sender is not None:
            route = sender.routes.known(topic)
            address = route.master(receipt.queue.broker) if route is not None else None
            parts.trace_sender.transaction_ended(message, receipt.message_id, address or "", decision)
        return is_known

    def _prepared(
        self,
        sender: Sender,
        message: Message,
        by: object,
        queue: MessageQueue | None,
        select: Selector | None,
        marks: dict[str, str] | None = None,
    ) -> tuple[PreparedSend, Pick | None]:
        """Checks and packs a message; returns its send and the function that picks its queue, None: any."""
        self._rules.check(message)
        pick = None
        if by is not None or queue is not None or select is not None:
            pick = pick_for(self._names, message, by, queue, select)
        prepared = sender.prepare(message, marks)
        if prepared.template.topic not in self._membership.used:
            self._membership.use(prepared.template.topic)
        return prepared, pick

    async def _deliver(
        self, sender: Sender, prepared: PreparedSend, timeout_s: float, pick: Pick | None
    ) -> SendResult:
        limits, size = self._limits, len(prepared.body)
        if not limits.try_acquire(size):
            timeout_s = await self._wait_for_turn(prepared, size, timeout_s)
        try:
            return await sender.deliver(prepared, timeout_s, pick)
        finally:
            limits.release(size)

    # Batches of single sends (`auto_batch`)

    def _is_auto_batched(self, message: Message, timeout: float | None) -> bool:
        self._rules.check(message)
        return timeout is None and self._auto_batcher is not None and self._auto_batcher.takes(message)

    async def _auto_batch(
        self,
        sender: Sender,
        message: Message,
        by: object,
        queue: MessageQueue | None,
        select: Selector | None,
    ) -> SendResult:
        assert self._auto_batcher is not None
        if self._creators:
            message = self._created(message)
        pick = pick_for(self._names, message, by, queue, select)
        topic = self._names.topic(message.topic)
        if topic not in self._membership.used:
            self._membership.use(topic)
        if pick is None:
            return await self._auto_batcher.send(message, None)
        route = await sender.route(topic, self._settings.send_msg_timeout)
        return await self._auto_batcher.send(message, pick(route.publish))

    def _created(self, message: Message) -> Message:
        """Returns the message with the properties that hooks add to messages of batches, as for tracing."""
        carried = {name: value for create in self._creators for name, value in create(message).items()}
        return replace(message, properties={**message.properties, **carried}) if carried else message

    async def _deliver_batch(self, prepared: PreparedSend, pick: Pick | None) -> SendResult:
        assert self._sender is not None
        return await self._deliver(self._sender, prepared, self._settings.send_msg_timeout, pick)

    # Waiting

    async def _wait_for_turn(self, prepared: PreparedSend, size: int, timeout_s: float) -> float:
        """Waits until the limits admit the send; returns the seconds left for it. Raises SendTimedOut."""
        clock, limits = self._world.clock, self._limits
        deadline = clock.monotonic() + timeout_s
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await limits.acquire(size)
        except TimeoutError:
            advice = (
                f"For {timeout_s} s the limit of {limits.max_count} sends or {limits.max_bytes} bytes in "
                "flight was reached. Send slower, or raise max_in_flight or max_in_flight_bytes."
            )
            raise SendTimedOut(prepared.message.topic, (), NO_ANSWER, advice) from None
        return deadline - clock.monotonic()

    def _seconds(self, timeout: float | None) -> float:
        return self._settings.send_msg_timeout if timeout is None else rules.check_timeout(timeout)
