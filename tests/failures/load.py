"""A producer and a consumer of our client that work all the time and keep a history.

Each queue has one thread that sends one message after the other and tries none again, so a message that is
stored twice was doubled by a broker, and the order of a queue is known.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from tests.failures.count import FAILED, OK, Found, Sent
from tests.failures.pairs import BROKER, QUEUES, TOPIC, Pair, body_of, name_of

from turbopump import Message, Producer, PullConsumer
from turbopump.client.message import MessageQueue, SendResult
from turbopump.client.settings import ConsumeFromWhere
from turbopump.errors import ClientError, Refused
from turbopump.protocol import ids

SEND_S = 3.0
PAUSE_S = 0.01
AFTER_FAILURE_S = 0.1
POLL_S = 0.3
LOOK_S = 0.05
ROUTES_S = 1.0
COMMIT_S = 0.1  # short, so that a commit comes in each moment in which a broker could take it for a wrong one
SIZES = (100, 1000, 4000)
LARGE = (50_000, 100_000)
NEVER = 1 << 30
ERRORS = (ClientError, Refused, OSError)


class Load:
    """Sends to all queues of a pair and reads them, until it is stopped."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self._pair = pair
        self._seed = seed
        self._end = threading.Event()
        self._history = pair.history
        self._senders = [
            threading.Thread(target=self._send_all, args=(queue,), name=f"sender-{queue}")
            for queue in range(QUEUES)
        ]
        self._reader = threading.Thread(target=self._read_all, name="reader")
        self._read_end = threading.Event()
        self._producer = Producer(
            "failures-senders",
            name_servers=pair.namesrv,
            send_msg_timeout=SEND_S,
            retry_times_when_send_failed=0,
            poll_name_server_interval=ROUTES_S,
            compress_msg_body_over_howmuch=NEVER,
        )
        self.sizes = SIZES
        """Sizes of bodies from now on."""

    def __enter__(self) -> Load:
        self._producer.start()
        for thread in (*self._senders, self._reader):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_sending()
        self.stop_reading()
        self._producer.close()

    def stop_sending(self) -> None:
        """Returns when the last send has its answer."""
        self._end.set()
        for thread in self._senders:
            thread.join()

    def stop_reading(self, names: set[str] | None = None, within_s: float = 0.0) -> None:
        """Ends the consumer when it has these messages, or when the time is over."""
        deadline = time.monotonic() + within_s
        while names and time.monotonic() < deadline:
            names = names - {one.name for one in self._history.read}
            time.sleep(LOOK_S)
        self._read_end.set()
        self._reader.join()

    def wait(self, status: str = OK, count: int = 20, within_s: float = 60.0) -> bool:
        """Returns whether that many further sends were answered so within the time."""
        return self._wait(lambda one: one.status == status, count, within_s)

    def wait_answers(self, count: int = 20, within_s: float = 60.0) -> bool:
        """Returns whether that many further messages were stored, with whichever receipt."""
        return self._wait(lambda one: one.status != FAILED, count, within_s)

    def wait_trouble(self, count: int = 20, within_s: float = 60.0) -> bool:
        """Returns whether that many further sends were answered with less than SEND_OK, or not at all."""
        return self._wait(lambda one: one.status != OK, count, within_s)

    def wait_sends(self, count: int = 4, within_s: float = 60.0) -> bool:
        """Returns whether that many further sends have ended, with whichever result."""
        return self._wait(lambda one: True, count, within_s)

    def _wait(self, wanted: Callable[[Sent], bool], count: int, within_s: float) -> bool:
        seen = len(self._history.sent)
        begin, deadline = time.monotonic(), time.monotonic() + within_s
        while time.monotonic() < deadline:
            latest = self._history.sent[seen:]
            if sum(one.begin >= begin and wanted(one) for one in latest) >= count:
                return True
            time.sleep(LOOK_S)
        return False

    def _send_all(self, queue: int) -> None:
        chance = random.Random(f"{self._seed} {queue}")
        number = 0
        while not self._end.is_set():
            sent = self._send(queue, f"{queue}-{number:06d}", chance.choice(self.sizes))
            self._history.sent.append(sent)
            self._end.wait(PAUSE_S if sent.status != FAILED else AFTER_FAILURE_S)
            number += 1

    def _send(self, queue: int, name: str, size: int) -> Sent:
        begin = time.monotonic()
        try:
            message = Message(TOPIC, body_of(name, size))
            result = self._producer.send(message, queue=MessageQueue(TOPIC, BROKER, queue))
        except ERRORS:
            return Sent(begin, time.monotonic(), name, queue, FAILED)
        node = self._pair.node_at(port_of(result))
        return Sent(begin, time.monotonic(), name, queue, result.status.name, node, result.offset)

    def _read_all(self) -> None:
        consumer = PullConsumer(
            "failures-readers",
            name_servers=self._pair.namesrv,
            poll_name_server_interval=ROUTES_S,
            auto_commit_interval=COMMIT_S,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        with consumer:
            consumer.assign([MessageQueue(TOPIC, BROKER, queue) for queue in range(QUEUES)])
            while not self._read_end.is_set():
                try:
                    messages = consumer.poll(timeout=POLL_S)
                except ERRORS:
                    continue
                for one in messages:
                    self._history.read.append(Found(one.queue.id, one.offset, name_of(one.body)))


def port_of(result: SendResult) -> int:
    """Returns the port of the broker that answered."""
    return ids.parse_offset_id(result.offset_message_id)[1]
