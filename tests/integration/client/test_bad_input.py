"""What users do wrong, and what servers and handlers do to them: a typed exception that says what to do,
within the time that was given, and no message is lost.
"""

from __future__ import annotations

import ctypes
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from turbopump import Admin, Consumer, Message, MessageQueue, Producer, PullConsumer, RetryLater
from turbopump.client.message import MessageExt
from turbopump.errors import (
    ClientError,
    InvalidArgument,
    NoNameServer,
    NotRunning,
    Refused,
    RequestTimedOut,
    SendFailed,
    SendTimedOut,
    Unreachable,
    UnreadableMessage,
)
from turbopump.testing import Cluster

LONG = "x" * 300
SPARE_S = 4.0  # over what was asked for, on a busy machine


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[Producer]:
    with cluster.producer(cluster.new_group()) as running:
        yield running


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Nothing hangs: not much longer than it was given."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds + SPARE_S, f"took {took:.1f} s instead of {seconds}"


def refused(error: type[Exception], says: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=re.compile(says, re.IGNORECASE)):
        call()


# --- names and numbers that cannot be right ---

NOWHERE = "127.0.0.1:1"


def consumer_of(topic: Any, **how: Any) -> None:
    Consumer("g", name_servers=NOWHERE).subscribe(topic, print, **how)


MADE_WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "producer without a group": (lambda: Producer("", name_servers=NOWHERE), "group.*(empty|name)"),
    "producer with a blank group": (lambda: Producer("  ", name_servers=NOWHERE), "group.*(empty|name)"),
    "producer with a long group": (lambda: Producer(LONG, name_servers=NOWHERE), "at most 120"),
    "producer with a strange group": (lambda: Producer("a b", name_servers=NOWHERE), "letters"),
    "producer with everybody's group": (
        lambda: Producer("DEFAULT_PRODUCER", name_servers=NOWHERE),
        "of your own",
    ),
    "producer with a number as group": (lambda: Producer(7, name_servers=NOWHERE), "text"),  # type: ignore[arg-type]
    "consumer without a group": (lambda: Consumer("", name_servers=NOWHERE), "group"),
    "consumer with a long group": (lambda: Consumer(LONG, name_servers=NOWHERE), "at most 120"),
    "consumer with a strange group": (lambda: Consumer("a/b", name_servers=NOWHERE), "group"),
    "consumer with everybody's group": (
        lambda: Consumer("DEFAULT_CONSUMER", name_servers=NOWHERE),
        "name of your own",
    ),
    "pull consumer without a group": (lambda: PullConsumer("", name_servers=NOWHERE), "group"),
    "pull consumer with a long group": (lambda: PullConsumer(LONG, name_servers=NOWHERE), "at most 120"),
    "consumer of no topic": (lambda: consumer_of(""), "topic"),
    "consumer of a long topic": (lambda: consumer_of("t" * 200), "at most 127"),
    "consumer of a function": (lambda: consumer_of(print), r"consumer\.on\('topic'\)"),
    "handler that is none": (
        lambda: Consumer("g", name_servers=NOWHERE).subscribe("t", "handler"),  # type: ignore[arg-type]
        "a handler must be a function",
    ),
    "handler with three arguments": (
        lambda: Consumer("g", name_servers=NOWHERE).subscribe("t", lambda a, b, c: None),
        r"write def handle\(message\)",
    ),
    "batch of none": (lambda: consumer_of("t", batch=0), "between 1 and 1024"),
    "tags and sql": (lambda: consumer_of("t", tags="a", sql="n > 1"), "only one of tags, sql and module"),
    "ordered and not": (lambda: _two_kinds(), "make two consumers"),
    "timeout in milliseconds": (
        lambda: Producer("g", name_servers=NOWHERE, send_msg_timeout=3000.0),
        "looks like milliseconds: write 3",
    ),
    "setting out of bounds": (
        lambda: Producer("g", name_servers=NOWHERE, compress_level=12),
        "between 0 and 9",
    ),
    "setting misspelt": (
        lambda: Producer("g", name_servers=NOWHERE, send_msg_time_out=3.0),  # type: ignore[call-arg]
        "did you mean send_msg_timeout",
    ),
    "setting of Java's": (
        lambda: Consumer("g", name_servers=NOWHERE, pull_thread_nums=3),  # type: ignore[call-arg]
        "not needed",
    ),
    "address without a port": (lambda: Producer("g", name_servers="localhost").start(), "host:port|port"),
    "body that is text": (lambda: Message("t", "text"), r"text\.encode\(\)"),  # type: ignore[arg-type]
    "retry at a level that is none": (lambda: RetryLater(99), "between -1 and 18"),
}


def _two_kinds() -> None:
    consumer = Consumer("g", name_servers=NOWHERE)
    consumer.subscribe("one", print, ordered=True)
    consumer.subscribe("two", print)


@pytest.mark.parametrize("what", MADE_WRONG)
def test_what_cannot_be_right_is_said_at_once(what: str) -> None:
    call, says = MADE_WRONG[what]
    with within(0.0):
        refused(InvalidArgument, says, call)


SENT_WRONG: dict[str, tuple[Callable[[], Message], str]] = {
    "empty topic": (lambda: Message("", b"x"), "topic must not be empty"),
    "blank topic": (lambda: Message(" ", b"x"), "topic must not be empty"),
    "long topic": (lambda: Message("t" * 128, b"x"), "at most 127"),
    "strange topic": (lambda: Message("orders/new", b"x"), "letters"),
    "a broker's topic": (lambda: Message("SCHEDULE_TOPIC_XXXX", b"x"), "brokers' own"),
    "empty body": (lambda: Message("t", b""), "at least one byte"),
    "body over the limit": (lambda: Message("t", bytes((4 << 20) + 1)), "raise max_message_size"),
    "key with a blank": (lambda: Message("t", b"x", keys="a b"), "as a list"),
    "tag with a separator": (lambda: Message("t", b"x", tags="a\x01"), r"\\x01"),
    "property of the protocol": (lambda: Message("t", b"x", properties={"TAGS": "a"}), "tags="),
    "property that is a number": (
        lambda: Message("t", b"x", properties={"n": 7}),  # type: ignore[dict-item]
        "properties must be text",
    ),
    "too many properties": (
        lambda: Message("t", b"x", properties={"long": "y" * 40_000}),
        "put them into the body",
    ),
    "negative level": (lambda: Message("t", b"x", delay_level=-1), "1 to 18"),
}


@pytest.mark.parametrize("what", SENT_WRONG)
def test_a_message_that_cannot_be_right_is_not_sent(what: str, producer: Producer) -> None:
    made, says = SENT_WRONG[what]
    with within(0.0):
        for send in (producer.send, lambda one: producer.send_async(one).result(), producer.send_oneway):
            refused(InvalidArgument, says, lambda send=send: send(made()))  # type: ignore[misc]
        refused(InvalidArgument, says, lambda: producer.send_batch([made()]))


def test_calls_that_cannot_be_right_are_refused(cluster: Cluster, producer: Producer) -> None:
    topic = cluster.create_topic()
    other = MessageQueue("other", "broker-a", 0)
    nobody = MessageQueue(topic, "broker-z", 0)
    message = Message(topic, b"x")
    refused(InvalidArgument, "take one of", lambda: producer.send(message, queue=other))
    refused(ClientError, "broker-z", lambda: producer.send(message, queue=nobody))
    refused(InvalidArgument, "must be a Message", lambda: producer.send("text"))  # type: ignore[arg-type]
    refused(InvalidArgument, "one topic", lambda: producer.send_batch([message, Message("t", b"x")]))
    late = Message(topic, b"x", delay_level=1)
    refused(InvalidArgument, "one by one", lambda: producer.send_batch([late]))
    (stored,) = [producer.send(message)] and cluster.messages(topic)
    refused(InvalidArgument, "request", lambda: producer.reply(stored, b"x"))


# --- before the start and after the end ---


def test_nothing_works_before_the_start_or_after_the_end(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    queue = MessageQueue(topic, "broker-a", 0)
    sender = Producer("g", name_servers=cluster.name_servers)
    reader = Consumer("g", name_servers=cluster.name_servers)
    puller = PullConsumer("g", name_servers=cluster.name_servers)
    calls: list[Callable[[], object]] = [
        lambda: sender.send(Message(topic, b"x")),
        lambda: sender.send_async(Message(topic, b"x")).result(),
        lambda: sender.send_oneway(Message(topic, b"x")),
        lambda: sender.send_batch([Message(topic, b"x")]),
        lambda: sender.request(Message(topic, b"x")),
        lambda: sender.queues(topic),
        lambda: reader.pause(),
        lambda: reader.queues(),
        lambda: puller.poll(),
        lambda: puller.queues(topic),
        lambda: puller.pull(queue, 0),
        lambda: puller.seek(queue, 0),
        lambda: puller.commit(),
        lambda: next(iter(puller)),
    ]
    with within(0.0):
        for call in calls:
            refused(NotRunning, r"start\(\)", call)
    reader.subscribe(topic, print)
    for client in (sender, reader, puller):
        with client:  # type: ignore[attr-defined]
            pass
    with within(0.0):
        for call in calls:
            refused(NotRunning, "closed|not running", call)
        for client in (sender, reader, puller):
            refused(NotRunning, "make a new one", client.start)
            client.close()


def test_a_consumer_without_handlers_does_not_start(cluster: Cluster) -> None:
    refused(InvalidArgument, r"consumer\.on", Consumer("g", name_servers=cluster.name_servers).start)


def test_a_topic_that_nobody_has_is_named(cluster: Cluster) -> None:
    strict = Cluster(settings={"autoCreateTopicEnable": "false"})
    with strict, strict.producer() as producer, within(3.0):
        refused(SendFailed, "missing.*create it", lambda: producer.send(Message("missing", b"x")))
    with cluster.pull_consumer("g") as puller:
        refused(Refused, "missing", lambda: puller.queues("missing"))
    with cluster.admin() as admin:
        refused(Refused, "missing", lambda: admin.topics.route("missing"))


# --- servers that are not there, or do not answer ---


@pytest.fixture
def black_hole() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield _address(listening)


@pytest.fixture
def nobody() -> str:
    """An address that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return _address(probe)


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"{host}:{port}"


HASTE: dict[str, Any] = {"mq_client_api_timeout": 0.5, "connect_timeout": 0.5}


def test_a_name_server_that_is_not_there_is_told_at_the_start(nobody: str) -> None:
    consumer = Consumer("g", name_servers=nobody, **HASTE)
    consumer.subscribe("t", print)
    clients = (
        Producer("g", name_servers=nobody, **HASTE),
        consumer,
        PullConsumer("g", topics=["t"], name_servers=nobody, **HASTE),
    )
    for client in clients:
        with within(3.0):
            refused(NoNameServer, re.escape(nobody), client.start)
            client.close()
    with Admin(nobody, timeout=0.5) as admin, within(0.5):
        refused(OSError, re.escape(nobody), admin.topics.names)


def test_a_name_server_that_never_answers_holds_up_nobody_beyond_a_timeout(black_hole: str) -> None:
    """It can be reached, so clients start: it may get well."""
    hole = re.escape(black_hole)
    message = Message("t", b"x")
    with Producer("g", name_servers=black_hole, **HASTE) as producer:
        for call in (producer.send, lambda one: producer.send_async(one).result(), producer.send_oneway):
            with within(0.5):
                refused(SendFailed, f"{hole}.*check name_servers=", lambda call=call: call(message))  # type: ignore[misc]
        with within(0.2):
            refused(SendTimedOut, "check name_servers=", lambda: producer.send(message, timeout=0.2))
        with within(0.5):
            refused(SendFailed, "check name_servers=", lambda: producer.request(message, timeout=0.5))
    consumer = Consumer("g", name_servers=black_hole, **HASTE)
    consumer.subscribe("t", print)
    with within(3.0), consumer:
        assert consumer.queues() == ()
    with within(4.0), PullConsumer("g", topics=["t"], name_servers=black_hole, **HASTE) as puller:
        assert puller.poll(timeout=0.2) == []
        refused(Unreachable, f"{hole}.*check name_servers=", lambda: puller.queues("t"))
    with Admin(black_hole, timeout=0.5) as admin, within(0.5):
        refused(Unreachable, hole, admin.topics.names)


def test_without_any_address_it_is_said_where_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    refused(NoNameServer, "name_servers", lambda: Admin(name_server_domain="127.0.0.1:1"))
    silent = Producer("g", name_server_domain="127.0.0.1:1", connect_timeout=0.5)
    with within(5.0):
        refused(NoNameServer, "name_servers=|NAMESRV_ADDR", silent.start)


def test_a_broker_that_is_gone_fails_a_send_within_its_timeout(cluster: Cluster) -> None:
    with Cluster() as own, own.producer() as producer:
        topic = own.create_topic()
        producer.send(Message(topic, b"before"))
        own.kill_broker()
        with within(2.0):
            refused(SendFailed, "not sent after", lambda: producer.send(Message(topic, b"x"), timeout=2.0))
        with within(2.0):
            refused(SendFailed, "not sent", lambda: producer.send_oneway(Message(topic, b"x")))
        own.start_broker()
        own.wait_until(lambda: _sends(producer, topic))
        assert {b"before", b"after"} <= {one.body for one in own.messages(topic)}


def test_a_broker_that_never_answers_holds_up_nobody_beyond_a_timeout() -> None:
    with Cluster() as own:
        topic = own.create_topic(queues=1)
        consumer = own.consumer("readers", mq_client_api_timeout=0.5, await_termination_when_shutdown=0.5)
        got: list[str] = []
        consumer.subscribe(topic, lambda message: got.append(message.text))
        puller = own.pull_consumer("pullers", mq_client_api_timeout=0.5, consumer_pull_timeout=0.5)
        with own.producer() as producer, own.admin() as admin, puller, consumer:
            producer.send(Message(topic, b"before"))
            own.wait_until(lambda: got == ["before"])
            (queue,) = puller.queues(topic)
            (broker,) = admin.clusters.layout().of_cluster("DefaultCluster")
            own.kill_broker()
            with silence_at(broker.address):
                with within(1.0):
                    refused(SendTimedOut, "may", lambda: producer.send(Message(topic, b"x"), timeout=1.0))
                with within(1.0):
                    refused(OSError, "did not answer", lambda: puller.pull(queue, 0))
                with within(6.0):
                    consumer.close()
                with within(6.0):
                    puller.close()
            own.start_broker()
            own.wait_until(lambda: _sends(producer, topic))


@contextmanager
def silence_at(address: str) -> Iterator[None]:
    """Somebody takes connections there and never says a word."""
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port)), backlog=64):
        yield


def _sends(producer: Producer, topic: str) -> bool:
    try:
        producer.send(Message(topic, b"after"), timeout=1.0)
    except SendFailed:
        return False
    return True


def test_a_timeout_of_a_send_says_that_it_may_be_stored(producer: Producer, cluster: Cluster) -> None:
    topic = cluster.create_topic()
    producer.queues(topic)
    with within(0.0):
        refused(SendTimedOut, "may", lambda: producer.send(Message(topic, b"x"), timeout=1e-6))


def test_a_question_that_nobody_answers_ends_in_time(producer: Producer, cluster: Cluster) -> None:
    topic = cluster.create_topic()
    with within(0.5):
        refused(RequestTimedOut, "", lambda: producer.request(Message(topic, b"?"), timeout=0.5))


# --- handlers that misbehave ---


class Handled:
    """Remembers texts, and does something with "bad" at its first delivery."""

    def __init__(self, misbehave: Callable[[], object]) -> None:
        self.texts: list[str] = []
        self._misbehave = misbehave

    def __call__(self, message: MessageExt) -> None:
        self.texts.append(message.text)
        if message.text == "bad" and self.texts.count("bad") == 1:
            self._misbehave()


def raises() -> None:
    raise ValueError("not today")


def ends_the_program() -> None:
    sys.exit("enough")


def is_interrupted() -> None:
    raise KeyboardInterrupt


def has_no_memory() -> None:
    raise MemoryError


def recurses() -> None:
    recurses()


def kills_its_thread() -> None:
    """What a debugger or a careless library does: an exception from outside, at any place."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threading.get_ident()), ctypes.py_object(SystemExit)
    )
    for _ in range(1000):
        time.sleep(0.001)


def exits_its_thread() -> None:
    import _thread

    _thread.exit()


@pytest.mark.parametrize(
    "misbehave",
    [raises, ends_the_program, is_interrupted, has_no_memory, recurses, kills_its_thread, exits_its_thread],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_a_handler_that_fails_gets_its_message_again_and_all_others(
    misbehave: Callable[[], None], ordered: bool
) -> None:
    with Cluster(settings={"messageDelayLevel": "1s 1s 1s 1s"}) as own, own.producer() as producer:
        topic = own.create_topic(queues=1)
        handled = Handled(misbehave)
        consumer = own.consumer("readers", suspend_current_queue_time=0.1)
        consumer.subscribe(topic, handled, ordered=ordered)
        with consumer:
            for text in ("1", "bad", "2", "3"):
                producer.send(Message(topic, text.encode()))
            own.wait_until(lambda: handled.texts.count("bad") == 2 and {"1", "2", "3"} <= set(handled.texts))
            own.wait_until_consumed("readers", topic, expected=BaseException)
        assert sorted(handled.texts) == ["1", "2", "3", "bad", "bad"]


def test_a_handler_that_blocks_holds_up_itself_and_nothing_else() -> None:
    with Cluster() as own, own.producer() as producer:
        topic = own.create_topic(queues=1)
        free = threading.Event()
        handled = Handled(free.wait)
        consumer = own.consumer("readers", consume_thread_min=2, consume_thread_max=2)
        consumer.subscribe(topic, handled)
        with consumer:
            producer.send(Message(topic, b"bad"))
            for number in range(20):
                producer.send(Message(topic, b"%d" % number))
            own.wait_until(lambda: len(handled.texts) == 21)
            with within(0.5):
                assert producer.send(Message(topic, b"more")).offset == 21
            free.set()
            own.wait_until_consumed("readers", topic)
        assert handled.texts.count("bad") == 1


def test_a_handler_that_never_returns_does_not_stop_the_end_and_its_message_comes_again() -> None:
    with Cluster() as own, own.producer() as producer:
        topic = own.create_topic(queues=1)
        free = threading.Event()
        handled = Handled(free.wait)
        consumer = own.consumer("readers", await_termination_when_shutdown=0.5)
        consumer.subscribe(topic, handled)
        consumer.start()
        try:
            producer.send(Message(topic, b"bad"))
            own.wait_until(lambda: handled.texts == ["bad"])
            with within(1.0):
                consumer.close()
            again = own.consumer("readers")
            again.subscribe(topic, handled)
            with again:
                own.wait_until(lambda: handled.texts == ["bad", "bad"])
                own.wait_until_consumed("readers", topic)
        finally:
            free.set()


def test_a_body_that_does_not_fit_names_the_field_and_becomes_a_dead_letter() -> None:
    with Cluster(settings={"messageDelayLevel": "1s 1s 1s 1s"}) as own, own.producer() as producer:
        topic = own.create_topic(queues=1)
        seen: list[dict[str, int]] = []

        def add(order: dict[str, int]) -> None:
            seen.append(order)

        consumer = own.consumer("readers", max_reconsume_times=1)
        consumer.subscribe(topic, add)
        with consumer:
            producer.send(Message.json(topic, {"id": "seven"}))
            producer.send(Message.json(topic, {"id": 7}))
            own.wait_until(lambda: [one.body for one in own.dead_letters("readers")] == [b'{"id":"seven"}'])
            own.wait_until_consumed("readers", topic, expected=UnreadableMessage)
        assert seen == [{"id": 7}]
        (letter,) = own.dead_letters("readers")
        refused(UnreadableMessage, "id|int", lambda: letter.json(dict[str, int]))
