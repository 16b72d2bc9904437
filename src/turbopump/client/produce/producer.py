"""The producer: checks a message, gives it to the `Sender`, and bounds what is under way.

What comes in: messages of the user. What goes out: receipts, or one exception that says what to do. How a
send is tried and tried again is in `sender.py`, what may be sent in `rules.py`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
from turbopump.client.observe.trace_sender import SendTraceHook, TraceSender
from turbopump.client.options import ProducerOptions
from turbopump.client.produce import batches, recalls
from turbopump.client.produce.auto_batch import AutoBatcher
from turbopump.client.produce.broker_health import BrokerHealth, HealthyQueueSelector, broker_health
from turbopump.client.produce.broker_probe import BrokerProbe
from turbopump.client.produce.queue_pick import pick_for
from turbopump.client.produce.request_reply import marks_of_request, reply_to
from turbopump.client.produce.selectors import Selector
from turbopump.client.produce.send_limits import SendLimits
from turbopump.client.produce.sender import (
    COMPRESSIONS,
    NO_ANSWER,
    Pick,
    PreparedSend,
    QueueSelector,
    Sender,
    result_of,
)
from turbopump.client.produce.transaction import (
    Check,
    CheckRequest,
    CheckResponder,
    Decision,
    Execute,
    Transaction,
    TransactionResult,
    decided,
    tell,
)
from turbopump.client.produce.unique_ids import process_id
from turbopump.client.queue_names import QueueNames
from turbopump.client.routes import RoundRobin
from turbopump.client.settings import ProducerSettings, made
from turbopump.client.world import World
from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.names import AUTO_CREATE_TOPIC
from turbopump.protocol.sysflag import PREPARED

REQUEST_TIMEOUT_S = 3.0
SUCCESS = int(ResponseCode.SUCCESS)


class Producer:
    """Sends messages.

        async with Producer("orders", name_servers="127.0.0.1:9876") as producer:
            receipt = await producer.send(Message("OrderTopic", b"paid", tags="paid", keys="A-1"))
            await producer.send(order, by="A-1")  # same key, same queue, in order

    `group` names the producers that do the same work. `check` says how a transaction of the group ended, when
    a broker asks: see `transaction`. Every other keyword is a setting, with Apache's name
    in Python's spelling; see docs/settings.md. One producer serves all tasks of its event loop: make one and
    keep it. `start` and `close` are what `async with` calls.

    A send that fails is tried again, at another broker if there is one, until `retry_times_when_send_failed`
    more tries or `send_msg_timeout` are used up. With `by`, `queue` or `select` there is one try, since the
    message must go to that queue. What a send can raise:

    - InvalidArgument: the message cannot be right; nothing was sent.
    - NotRunning: before `start`, or after `close`.
    - Refused: a broker said no, and others would say the same; its classes are in `turbopump.errors`.
    - SendFailed: no try succeeded; `.tries` has each, `.code` Apache's code of the last. SendTimedOut is
      one of them: the message may have been stored although the answer was late.
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
        broker_health(self._settings)  # a choice of two tables is refused now, not at the start
        if self._settings.compress_type not in COMPRESSIONS:
            raise InvalidArgument(
                f"compress_type={self._settings.compress_type!r}: it is one of {', '.join(COMPRESSIONS)}"
            )
        self._name_servers = discovery.name_servers(name_servers, domain=self._settings.name_server_domain)
        self._world = world or World()
        self._hooks = (*hooks, *send_hooks(self._settings.telemetry))
        self._creators = [hook.create for hook in self._hooks if isinstance(hook, CreateHook)]
        self._names = QueueNames(self._settings.namespace)
        own = self._settings
        wire_group = self._names.topic(group)
        self._answers = CheckResponder(
            wire_group,
            check,
            own.check_thread_pool_max_size,
            own.check_request_hold_max,
            own.namespace,
            own.decode_decompress_body,
        )
        self._presence = _Membership(wire_group, self._answers)
        self._rules = rules.SendRules(self._settings.max_message_size)
        self._gate = SendLimits(self._settings.max_in_flight, self._settings.max_in_flight_bytes)
        self._instance: ClientInstance | None = None
        self._sender: Sender | None = None
        self._tracing: TraceSender | None = None
        self._gathering: AutoBatcher | None = None
        self._detector: BrokerProbe | None = None
        self._pid = 0
        self._tasks: set[asyncio.Task[SendResult]] = set()
        self._replies: set[asyncio.Future[MessageExt]] = set()
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def settings(self) -> ProducerSettings:
        """All settings, with the defaults."""
        return self._settings

    # Life

    async def start(self) -> None:
        """Returns when a name server was reached. Raises NoNameServer. May be called again while it runs."""
        if self._closing is not None:
            raise NotRunning("this producer is closed: make a new one")
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        starting = self._starting
        try:
            await asyncio.shield(starting)
        finally:
            if starting.done() and (starting.cancelled() or starting.exception()):
                self._starting = None  # the next one may be luckier

    async def close(self) -> None:
        """Waits for the sends under way, then leaves. May be called again, and without a start."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _start(self) -> None:
        settings, world = self._settings, self._world
        instance = await instances().take(
            settings, self._name_servers, world, is_stream=settings.enable_stream_request_type
        )
        try:
            await instance.join_producer(self._presence)
        except BaseException:
            await instances().give_back(instance)
            raise
        choice: QueueSelector = RoundRobin(world.chance)
        faults: BrokerHealth | None = None
        if settings.send_latency_fault_enable:
            faults = broker_health(settings)
            choice = HealthyQueueSelector(faults, RoundRobin(world.chance), world.clock.monotonic)
        self._pid = process_id()
        self._instance = instance
        hooks = self._hooks
        if settings.enable_trace:
            self._tracing = TraceSender(instance, settings, self.group, "PRODUCE")
            await self._tracing.start()
            hooks = (*hooks, SendTraceHook(self._tracing))
            self._answers.told = self._tracing.transaction_checked
        self._sender = Sender(
            calls=instance.client,
            routes=instance.routes,
            clock=world.clock,
            unique_ids=instance.unique_ids,
            choice=choice,
            group=self._presence.group,
            settings=settings,
            hooks=hooks,
            faults=faults,
            chance=world.chance,
        )
        if faults is not None and faults.is_probed:
            self._detector = BrokerProbe(
                faults,
                instance.client,
                instance.routes,
                world.clock,
                self._presence.topics,
                settings.detect_timeout,
                settings.detect_interval,
            )
            self._detector.start()
        if settings.auto_batch:
            self._gathering = AutoBatcher(self._sender, settings, self._deliver_gathered)

    async def _close(self) -> None:
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        instance, sender = self._instance, self._sender
        if instance is None or sender is None:
            return
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(NotRunning("the producer was closed before the reply came"))
        if self._gathering is not None:
            await self._gathering.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._gate.idle()
        await sender.close()
        if self._detector is not None:
            await self._detector.close()
        if self._tracing is not None:
            await self._tracing.close()
        await instance.leave_producer(self._presence.group)
        await self._answers.close()
        await instances().give_back(instance)

    def _running(self) -> Sender:
        sender = self._sender
        if sender is None or self._closing is not None:
            if self._closing is not None:
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
        """Returns when a broker has stored the message; `.status` says how far its wishes were fulfilled.

        `by`: messages with the same key go to the same queue, the one a Java producer would choose with
        SelectMessageQueueByHash. `queue`: this queue. `select`: a function of the topic's queues and the
        message that returns one of them. Without any of these, the queues take turns.
        `timeout`: seconds for all tries together, instead of `send_msg_timeout`.
        """
        sender = self._running()
        if self._gathering is not None and self._is_gathered(message, timeout):
            return await self._gather(sender, message, by, queue, select)
        letter, pick = self._prepared(sender, message, by, queue, select)
        timeout_s = self._settings.send_msg_timeout if timeout is None else self._seconds(timeout)
        gate, size = self._gate, len(letter.body)
        if not gate.enter_now(size):
            timeout_s = await self._wait_in_line(letter, size, timeout_s)
        try:
            begun = sender.begin(letter, timeout_s) if pick is None else None
            if begun is not None:
                try:
                    answer = await begun[1]
                    if answer.code == SUCCESS:
                        return result_of(answer, begun[0], letter)
                except OSError:
                    pass  # `deliver` knows what to do about it
            return await sender.deliver(letter, timeout_s, pick, begun)
        finally:
            gate.leave(size)

    def send_async(
        self,
        message: Message,
        *,
        by: object = None,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout: float | None = None,
    ) -> asyncio.Task[SendResult]:
        """As `send`, without waiting: the task has the result. `close` waits for it. What is wrong with the
        message itself is raised at once.
        """
        sender = self._running()
        if self._gathering is not None and self._is_gathered(message, timeout):
            work = self._gather(sender, message, by, queue, select)
        else:
            letter, pick = self._prepared(sender, message, by, queue, select)
            work = self._deliver(sender, letter, self._seconds(timeout), pick)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def send_oneway(
        self,
        message: Message,
        *,
        by: object = None,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
    ) -> None:
        """Fast and uncertain: returns when the message is on its way to a broker, which does not answer."""
        sender = self._running()
        letter, pick = self._prepared(sender, message, by, queue, select)
        await sender.oneway(letter, None, pick)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        by: object = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Several messages of one topic with few requests; one result for each, in their order.

        What is more than `max_message_size` goes in several requests, one after the other; each of them is
        stored as a whole or not at all. When one fails, those before it are stored: the exception's notes
        say how many messages that were. Delayed messages cannot be in a batch.
        """
        sender = self._running()
        batch = list(messages)
        self._rules.check_batch(batch)
        if self._creators:
            batch = [self._created(message) for message in batch]
        if not batch:
            return []
        pick = pick_for(self._names, batch[0], by, queue, None)
        self._meet(batch[0].topic)
        deadline = self._world.clock.monotonic() + self._seconds(timeout)
        results: list[SendResult] = []
        for letter, keys in list(batches.prepared_chunks(sender, batch, self._settings.max_message_size)):
            left_s = deadline - self._world.clock.monotonic()
            try:
                results += batches.split_result(await self._deliver(sender, letter, left_s, pick), keys)
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
        """Sends a question and returns the answer that a consumer gives with `reply`.

        Raises what `send` raises, and RequestTimedOut when the question was stored and nobody answered.
        """
        sender = self._running()
        assert self._instance is not None
        clock, instance = self._world.clock, self._instance
        deadline = clock.monotonic() + self._seconds(timeout)
        marks = marks_of_request(instance.client_id, timeout, self._world.chance)
        letter, pick = self._prepared(sender, message, by, queue, select, marks)
        await self._be_known(sender, letter.envelope.topic, deadline)
        reply = instance.replies.expect(marks[properties.CORRELATION_ID])
        self._replies.add(reply)
        try:
            await self._deliver(sender, letter, deadline - clock.monotonic(), pick)
            try:
                async with asyncio.timeout(max(0.0, deadline - clock.monotonic())):
                    return await reply
            except TimeoutError:
                raise RequestTimedOut(
                    f"nobody replied to message {letter.unique_key} of {message.topic} in {timeout} s: does "
                    "a consumer of the topic run, and does it call producer.reply(message, body)?"
                ) from None
        finally:
            self._replies.discard(reply)
            reply.cancel()

    def transaction(self, message: Message, *, check_after: int | None = None) -> Transaction:
        """A message that consumers see when the block ends well, and never when it raises an exception:

            async with producer.transaction(Message("OrderTopic", b"paid", keys="A-1")):
                await pay("A-1")

        The transaction's own `commit`, `rollback` and `unknown` say it earlier, and `receipt` where the half
        message is. When the process dies in the block, brokers ask producers of the group how it ended: the
        function given as `Producer(…, check=…)` looks it up and returns a Decision.

        `check_after`: seconds before the broker asks, when the work takes longer than its
        `transactionTimeOut` (6 s). A message with a delay level cannot be sent so.
        """
        return Transaction(self._prepare, self._end, message, check_after)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, check_after: int | None = None
    ) -> TransactionResult:
        """Stores the half message, calls `execute(message)`, which does the local work, and ends the
        transaction as it says: a Decision. None, and an exception, are UNKNOWN: the broker will ask `check`.
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
        """Answers a message that was sent with `request`, to the very client that waits for it."""
        sender = self._running()
        message, marks = reply_to(to, body)
        self._rules.check(message)
        return await self._deliver(sender, sender.letter(message, marks), self._seconds(timeout), None)

    async def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Takes back a message that waits for its time: nobody will get it. Returns its id.

            receipt = await producer.send(Message("OrderTopic", b"remind", delay=3600))
            await producer.recall("OrderTopic", receipt.recall_handle)

        Raises Refused when it is too late, or when the broker does not allow recalls (recallMessageEnable).
        A broker does not know whether such a message still waits: what was recalled twice is no error.
        """
        sender = self._running()
        rules.check_topic(topic)
        return await recalls.recall(sender, self._names.topic(topic), handle, self._seconds(timeout))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Those one can send to, in the order that selectors see. Raises TopicUnknown for a topic that does
        not exist yet.
        """
        sender = self._running()
        rules.check_topic(topic)
        wire_topic = self._names.topic(topic)
        return self._names.all_shown(await sender.queues(wire_topic, self._settings.send_msg_timeout))

    # Inside

    async def _prepare(self, message: Message, check_after: int | None) -> SendResult:
        """Sends a half message. Brokers know of us before: one of them may have to ask soon."""
        if isinstance(message, Message) and message.delay_level:
            raise InvalidArgument("the message of a transaction cannot be delayed: leave delay_level out")
        sender = self._running()
        marks = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: self._presence.group}
        if check_after is not None:
            marks[properties.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(int(check_after))
        letter, _ = self._prepared(sender, message, None, None, None, marks)
        flags = int(letter.envelope.fields["f"]) | PREPARED
        letter.envelope = letter.envelope.but(f=str(flags))
        timeout_s = self._settings.send_msg_timeout
        deadline = self._world.clock.monotonic() + timeout_s
        await self._be_known(sender, letter.envelope.topic, deadline)
        left_s = deadline - self._world.clock.monotonic()
        receipt = await self._deliver(sender, letter, left_s, None)
        if receipt.status is not SendStatus.SEND_OK:
            await self._end(message, receipt, Decision.ROLLBACK)
            raise NotPrepared(f"the half message was stored as {receipt.status.name}: it was rolled back")
        return receipt

    async def _end(self, message: Message, receipt: SendResult, decision: Decision) -> bool:
        """False: the broker does not know, and will ask."""
        sender, topic = self._running(), self._names.topic(message.topic)
        is_known = await tell(sender, topic, receipt, decision, self._settings.send_msg_timeout)
        if self._tracing is not None:
            route = sender.routes.known(topic)
            address = route.master(receipt.queue.broker) if route is not None else None
            self._tracing.transaction_ended(message, receipt.message_id, address or "", decision)
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
        """Checked and packed. Nothing wrong gets further than this."""
        self._rules.check(message)
        pick = None
        if by is not None or queue is not None or select is not None:
            pick = pick_for(self._names, message, by, queue, select)
        letter = sender.letter(message, marks)
        if letter.envelope.topic not in self._presence.used:
            self._meet(message.topic)
        return letter, pick

    async def _deliver(
        self, sender: Sender, letter: PreparedSend, timeout_s: float, pick: Pick | None
    ) -> SendResult:
        gate, size = self._gate, len(letter.body)
        if not gate.enter_now(size):
            timeout_s = await self._wait_in_line(letter, size, timeout_s)
        try:
            return await sender.deliver(letter, timeout_s, pick)
        finally:
            gate.leave(size)

    # Batches of single sends (`auto_batch`)

    def _is_gathered(self, message: Message, timeout: float | None) -> bool:
        self._rules.check(message)
        return timeout is None and self._gathering is not None and self._gathering.takes(message)

    async def _gather(
        self,
        sender: Sender,
        message: Message,
        by: object,
        queue: MessageQueue | None,
        select: Selector | None,
    ) -> SendResult:
        assert self._gathering is not None
        if self._creators:
            message = self._created(message)
        pick = pick_for(self._names, message, by, queue, select)
        topic = self._names.topic(message.topic)
        if topic not in self._presence.used:
            self._meet(message.topic)
        if pick is None:
            return await self._gathering.send(message, None)
        route = await sender.route(topic, self._settings.send_msg_timeout)
        return await self._gathering.send(message, pick(route.publish))

    def _created(self, message: Message) -> Message:
        """With what hooks let travel in each message of a batch, such as the context of a trace."""
        carried = {name: value for create in self._creators for name, value in create(message).items()}
        return replace(message, properties={**message.properties, **carried}) if carried else message

    async def _deliver_gathered(self, letter: PreparedSend, pick: Pick | None) -> SendResult:
        assert self._sender is not None
        return await self._deliver(self._sender, letter, self._settings.send_msg_timeout, pick)

    # Waiting

    async def _wait_in_line(self, letter: PreparedSend, size: int, timeout_s: float) -> float:
        """What is left of the time when there is room."""
        clock, gate = self._world.clock, self._gate
        deadline = clock.monotonic() + timeout_s
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await gate.enter(size)
        except TimeoutError:
            advice = (
                f"For {timeout_s} s there was no room: {gate.most} sends or {gate.most_bytes} bytes may be "
                "under way. Send slower, or raise max_in_flight or max_in_flight_bytes."
            )
            raise SendTimedOut(letter.message.topic, (), NO_ANSWER, advice) from None
        return deadline - clock.monotonic()

    def _seconds(self, timeout: float | None) -> float:
        return self._settings.send_msg_timeout if timeout is None else rules.check_timeout(timeout)

    def _meet(self, topic: str) -> None:
        """A topic that is new to us: its brokers shall hear of us soon."""
        self._presence.used.add(self._names.topic(topic))
        if self._instance is not None:
            self._instance.heartbeats.renew()

    async def _be_known(self, sender: Sender, topic: str, deadline: float) -> None:
        """Brokers hand replies on to clients that they know: those of the topic hear of us first."""
        assert self._instance is not None
        if topic in self._presence.announced:
            return
        left_s = deadline - self._world.clock.monotonic()
        await sender.route(topic, left_s)
        if sender.routes.known(topic) is None:  # the send will create it, at a broker of the template
            self._presence.used.add(AUTO_CREATE_TOPIC)
        try:
            async with asyncio.timeout(max(0.0, deadline - self._world.clock.monotonic())):
                if await self._instance.heartbeats.announce():
                    self._presence.announced.add(topic)
        except TimeoutError:
            return


@dataclass
class _Membership:
    """The producer as its instance sees it."""

    group: str
    answers: CheckResponder
    used: set[str] = field(default_factory=set)
    announced: set[str] = field(default_factory=set)

    def topics(self) -> Iterable[str]:
        return self.used

    def asked(self, question: CheckRequest) -> None:
        self.answers.asked(question)
