"""The blocking producer.

Written by scripts/faces.py from turbopump.client.produce.producer: change that.
"""

import concurrent.futures
from collections.abc import Iterable, Sequence
from typing import Unpack

from turbopump.client.blocking.producer_face import ProducerFace
from turbopump.client.message import Message, MessageExt, MessageQueue, SendResult
from turbopump.client.observe.hooks import SendHook
from turbopump.client.options import ProducerOptions
from turbopump.client.produce.producer import REQUEST_TIMEOUT_S
from turbopump.client.produce.producer import Producer as AsyncProducer
from turbopump.client.produce.selectors import Selector
from turbopump.client.produce.transaction import Check
from turbopump.client.settings import ProducerSettings
from turbopump.client.signature import spelled_out
from turbopump.client.world import World

__all__ = ["Producer"]


@spelled_out(ProducerSettings)
class Producer(ProducerFace):
    """Sends messages to topics, as a member of a producer group.

        with Producer("orders", name_servers="127.0.0.1:9876") as producer:
            receipt = producer.send(Message("OrderTopic", b"paid", tags="paid", keys="A-1"))
            producer.send(order, by="A-1")  # same key, same queue, in order

    `group` names the producers that do the same work. `check` says how a transaction of the group ended, when
    a broker asks: see `transaction`. Every other keyword is a setting, with Apache's name
    in Python's spelling; see docs/settings.md. One producer serves all threads: make one and
    keep it. `with` calls `start` and `close`.

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
        super().__init__(
            lambda: AsyncProducer(
                group, name_servers=name_servers, hooks=hooks, check=check, world=world, **settings
            )
        )

    @property
    def group(self) -> str:
        """Its group."""
        return self._core.group

    @property
    def settings(self) -> ProducerSettings:
        """All settings, defaults included."""
        return self._call(lambda core: core.settings)

    def start(self) -> None:
        """Connects to a name server and joins the producer group; does nothing while the producer runs.

        Raises NoNameServer.
        """
        self._start(lambda core: core.start())

    def close(self) -> None:
        """Waits for the sends in flight, then leaves the group. May be called again, and without a start."""
        self._close()

    def send(
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
        return self._run(lambda core: core.send(message, by=by, queue=queue, select=select, timeout=timeout))

    def send_async(
        self,
        message: Message,
        *,
        by: object = None,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout: float | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """Starts a `send` and returns its task at once; `close` waits for it.

        An InvalidArgument of the message is raised at once.
        """
        return self._submit(
            lambda core: core.send_async(message, by=by, queue=queue, select=select, timeout=timeout)
        )

    def send_oneway(
        self,
        message: Message,
        *,
        by: object = None,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
    ) -> None:
        """Sends without an answer: returns when the message is written to a connection. It may be lost."""
        self._run(lambda core: core.send_oneway(message, by=by, queue=queue, select=select))

    def send_batch(
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
        return self._run(lambda core: core.send_batch(messages, queue=queue, by=by, timeout=timeout))

    def request(
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
        return self._run(
            lambda core: core.request(message, by=by, queue=queue, select=select, timeout=timeout)
        )

    def reply(self, to: MessageExt, body: bytes, *, timeout: float | None = None) -> SendResult:
        """Answers a message that was sent with `request`; the reply goes to the client that waits for it."""
        return self._run(lambda core: core.reply(to, body, timeout=timeout))

    def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Recalls a delayed message by its handle, so that no consumer gets it. Returns the message id.

            receipt = producer.send(Message("OrderTopic", b"remind", delay=3600))
            producer.recall("OrderTopic", receipt.recall_handle)

        Raises Refused when it is too late, or when the broker does not allow recalls (recallMessageEnable).
        A broker does not know whether the message still waits: recalling it twice is no error.
        """
        return self._run(lambda core: core.recall(topic, handle, timeout=timeout))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns the queues of a topic that can be sent to, in the order that selectors get.

        Raises TopicUnknown for a topic that does not exist yet.
        """
        return self._run(lambda core: core.queues(topic))
