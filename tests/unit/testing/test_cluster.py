"""The embedded cluster in virtual time, from blocking and from async code."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from turbopump import Admin, Decision, Message, MessageExt, Producer, PullConsumer, RetryLater, SendResult
from turbopump.client.errors import NotRunning, SendFailed
from turbopump.testing import AsyncCluster, Cluster, NotConsumed, run_virtual

MIDNIGHT = datetime(2026, 11, 15, tzinfo=UTC)


def virtual(brokers: int = 1) -> Cluster:
    return Cluster(brokers, clock="virtual", start=MIDNIGHT)


# --- time ------------------------------------------------------------------------------------------------


def test_time_begins_where_it_is_told_and_moves_only_by_advance() -> None:
    with virtual() as cluster:
        began = cluster.now()
        cluster.advance(minutes=2, seconds=3)
        assert cluster.now() - began == timedelta(minutes=2, seconds=3)
        cluster.advance(timedelta(hours=1))
        cluster.clock.advance(0.5)
        assert cluster.now() - began == timedelta(hours=1, minutes=2, seconds=3.5)
        assert cluster.clock.now() == cluster.now()
        assert cluster.clock.now_ms() == round(cluster.now().timestamp() * 1000)
        assert began - MIDNIGHT < timedelta(seconds=1)


def test_a_day_of_an_idle_consumer_has_few_events_and_a_message_comes_at_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = 0
    run_handle = asyncio.Handle._run  # type: ignore[attr-defined]

    def count(handle: asyncio.Handle) -> None:
        nonlocal events
        events += 1
        run_handle(handle)

    got: list[datetime] = []
    with virtual() as cluster, cluster.producer() as producer:
        consumer = cluster.consumer("billing")
        consumer.subscribe("orders", lambda message: got.append(cluster.now()))
        with consumer:
            sent = cluster.now()
            producer.send(Message("orders", b"A-1", delay_level=18))
            monkeypatch.setattr(asyncio.Handle, "_run", count)
            cluster.advance(days=1)
            monkeypatch.undo()
    assert [moment - sent for moment in got] == [timedelta(hours=2)]
    assert events < 80_000  # most of them for heartbeats and registrations; each takes some 15 us


def test_consumers_find_queues_that_a_topic_gets_later_within_half_a_minute() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        cluster.create_topic("orders", queues=1)
        got: list[str] = []
        consumer = cluster.consumer("billing")
        consumer.subscribe("orders", lambda message: got.append(message.text))
        with consumer:
            cluster.create_topic("orders", queues=4)
            cluster.advance(seconds=30)
            for number in range(4):
                producer.send(Message("orders", b"%d" % number))
    assert sorted(got) == ["0", "1", "2", "3"]


def test_time_does_not_go_backwards() -> None:
    with virtual() as cluster, pytest.raises(ValueError, match="must not be negative"):
        cluster.advance(-1)


def test_sends_take_no_time() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        before = cluster.now()
        receipts = [producer.send(Message("orders", b"%d" % number)) for number in range(100)]
        assert cluster.now() == before
        assert len({receipt.queue for receipt in receipts}) == 4


def test_a_delayed_message_comes_to_the_second() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        producer.send(Message(topic, b"in two hours", delay_level=18))
        cluster.advance(2 * 3600 - 0.001)
        assert cluster.messages(topic) == []
        cluster.advance(0.2)  # the broker looks every tenth of a second
        assert [message.body for message in cluster.messages(topic)] == [b"in two hours"]


def test_a_transaction_is_checked_to_the_second_however_short_the_interval() -> None:
    settings = {"transactionCheckInterval": "5000", "transactionTimeOut": "1000"}
    asked: list[datetime] = []

    def check(message: MessageExt) -> Decision:
        asked.append(cluster.now())
        return Decision.COMMIT

    with Cluster(clock="virtual", start=MIDNIGHT, settings=settings) as cluster:
        topic = cluster.create_topic()
        with cluster.producer("shop", check=check) as producer:
            began = cluster.now()
            with producer.transaction(Message(topic, b"paid")) as transaction:
                transaction.unknown()
            cluster.advance(seconds=5)
        assert [moment - began <= timedelta(seconds=5) for moment in asked] == [True]
        assert [message.body for message in cluster.messages(topic)] == [b"paid"]


def test_the_same_story_is_told_again() -> None:
    def story() -> list[SendResult]:
        with virtual(brokers=2) as cluster, cluster.producer() as producer:
            cluster.create_topic("orders")
            return [producer.send(Message("orders", b"%d" % number)) for number in range(20)]

    assert story() == story()


def test_a_poll_without_messages_takes_its_time_at_once() -> None:
    with virtual() as cluster:
        topic = cluster.create_topic()
        with cluster.pull_consumer("audit", [topic]) as consumer:
            before, real = cluster.now(), time.monotonic()
            assert consumer.poll(timeout=30) == []
            assert cluster.now() - before == timedelta(seconds=30)
            assert time.monotonic() - real < 5


# --- consumers -------------------------------------------------------------------------------------------


def test_handlers_have_been_called_when_send_returns() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        got: list[str] = []
        consumer = cluster.consumer("readers")

        @consumer.on(topic)
        def slow(message: MessageExt) -> None:
            time.sleep(0.02)
            got.append(message.text)

        with consumer:
            producer.send(Message(topic, b"one"))
            assert got == ["one"]
            producer.send(Message(topic, b"two"))
            assert got == ["one", "two"]


def test_async_handlers_too() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        got: list[str] = []
        consumer = cluster.consumer("readers")

        @consumer.on(topic)
        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(3)
            got.append(message.text)

        with consumer:
            producer.send(Message(topic, b"one"))
            assert got == []
            cluster.advance(3)
            assert got == ["one"]


def test_a_handler_may_send_itself() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        source, target = cluster.create_topic(), cluster.create_topic()
        consumer = cluster.consumer("relay")

        @consumer.on(source)
        def relay(message: MessageExt) -> None:
            producer.send(Message(target, message.body))

        with consumer:
            producer.send(Message(source, b"hello"))
        assert [message.body for message in cluster.messages(target)] == [b"hello"]


def test_a_handler_that_waits_for_the_test_does_not_hold_up_a_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbopump.testing.loop.GRACE_S", 0.1)
    with virtual() as cluster, cluster.producer() as producer:
        topic, go_on, got = cluster.create_topic(), threading.Event(), []
        consumer = cluster.consumer("readers")

        @consumer.on(topic)
        def wait(message: MessageExt) -> None:
            go_on.wait(10)
            got.append(message.text)

        with consumer:
            producer.send(Message(topic, b"one"))
            cluster.advance(60)
            assert got == []
            go_on.set()
            cluster.wait_until_consumed("readers", topic)
        assert got == ["one"]


def test_retries_come_at_their_times_until_the_message_is_a_dead_letter() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        tries: list[int] = []
        consumer = cluster.consumer("readers", max_reconsume_times=3)
        began = cluster.now()

        @consumer.on(topic)
        def fail(message: MessageExt) -> None:
            tries.append(round((cluster.now() - began).total_seconds()))
            raise ValueError("no")

        with consumer:
            producer.send(Message(topic, b"bad"))
            assert tries == [0]
            cluster.wait_until_consumed("readers", topic, expected=ValueError)  # it waits for its next try
            assert cluster.dead_letters("readers") == []
            cluster.advance(minutes=5)
        assert tries == [0, 10, 40, 100]
        assert [letter.body for letter in cluster.dead_letters("readers")] == [b"bad"]


def test_a_dead_letter_at_once_needs_no_time() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        consumer = cluster.consumer("readers")

        @consumer.on(topic)
        def never(message: MessageExt) -> None:
            raise RetryLater(-1)

        with consumer:
            producer.send(Message(topic, b"bad"))
            assert [letter.body for letter in cluster.dead_letters("readers")] == [b"bad"]


def test_queues_of_a_member_that_is_gone_go_to_the_others() -> None:
    with virtual() as cluster:
        topic = cluster.create_topic(queues=4)
        stays, leaves = cluster.consumer("readers"), cluster.consumer("readers")
        stays.subscribe(topic, print)
        leaves.subscribe(topic, print)
        with stays:
            with leaves:
                cluster.advance(1)
                assert (len(stays.queues()), len(leaves.queues())) == (2, 2)
            cluster.advance(1)
            assert len(stays.queues()) == 4


def test_a_silent_member_loses_its_queues_after_two_minutes() -> None:
    with virtual() as cluster:
        topic = cluster.create_topic(queues=4)
        stays, silent = cluster.consumer("readers"), cluster.consumer("readers")
        stays.subscribe(topic, print)
        silent.subscribe(topic, print)
        with stays, silent:
            cluster.advance(1)
            cluster.cut_off(silent)
            cluster.advance(85)
            assert len(stays.queues()) == 2
            cluster.advance(50)
            assert len(stays.queues()) == 4
            cluster.rejoin(silent)
            cluster.advance(60)
            assert (len(stays.queues()), len(silent.queues())) == (2, 2)


def test_the_lock_of_a_killed_ordered_consumer_holds_for_a_minute() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic(queues=1)
        dies, takes_over = cluster.consumer("readers"), cluster.consumer("readers")
        got: list[str] = []
        dies.subscribe(topic, lambda message: got.append("first"), ordered=True)
        takes_over.subscribe(topic, lambda message: got.append("second"), ordered=True)
        dies.start()
        cluster.advance(30)
        cluster.kill_client(dies)
        with takes_over:
            producer.send(Message(topic, b"x"))
            cluster.advance(30)
            assert got == []
            cluster.advance(60)
            assert got == ["second"]


def test_waiting_for_what_is_consumed_already_takes_no_time() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        consumer = cluster.consumer("readers")
        consumer.subscribe(topic, lambda message: None)
        with consumer:
            producer.send(Message(topic, b"x"))
            before = cluster.now()
            cluster.wait_until_consumed("readers", topic)
            assert cluster.now() == before


def test_being_behind_is_said_with_the_queues() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic(queues=1)
        producer.send(Message(topic, b"unread"))
        words = f"group readers is still behind: {topic} queue 0 of broker-a at 0 of 1"
        with pytest.raises(NotConsumed, match=words):
            cluster.wait_until_consumed("readers", topic, timeout=5)


def test_waiting_for_what_never_comes_ends() -> None:
    with virtual() as cluster, pytest.raises(TimeoutError, match="within 60 s"):
        cluster.wait_until(lambda: False, timeout=60)


# --- programs that make their own clients ----------------------------------------------------------------


def program(topic: str, seen: list[str]) -> None:
    """A program without test code: sends a reminder and waits for it."""
    with Producer("reminders", name_servers="10.0.0.1:9876") as producer:
        producer.send(Message(topic, b"call Ada", delay_level=17))
    with PullConsumer("callers", topics=[topic]) as consumer:
        while not (found := consumer.poll(timeout=60)):
            pass
        seen += [message.text for message in found]
    with Admin("10.0.0.1:9876") as admin:
        seen += [broker.name for broker in admin.clusters.layout().brokers]


def test_a_program_that_makes_its_own_clients_can_be_put_into_virtual_time() -> None:
    with virtual() as cluster:
        seen: list[str] = []
        topic, began = cluster.create_topic(), cluster.now()
        with cluster.as_default():
            program(topic, seen)
        assert seen == ["call Ada", "broker-a"]
        assert cluster.now() - began >= timedelta(hours=1)


def test_afterwards_clients_are_what_they_were() -> None:
    with virtual() as cluster:
        with cluster.as_default():
            inside = Producer("one")
        assert isinstance(inside, Producer)
        assert type(inside) is not Producer
        assert type(Producer("two")) is Producer


# --- brokers ---------------------------------------------------------------------------------------------


def test_a_killed_broker_is_not_there_until_it_is_started_again() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        producer.send(Message(topic, b"before"))
        cluster.kill_broker()
        with pytest.raises(SendFailed):
            producer.send(Message(topic, b"lost"))
        cluster.start_broker()
        producer.send(Message(topic, b"after"))
        assert sorted(message.body for message in cluster.messages(topic)) == [b"after", b"before"]


def test_offsets_survive_a_restart() -> None:
    with virtual() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        producer.send(Message(topic, b"one"))
        with cluster.pull_consumer("audit", [topic]) as consumer:
            assert len(consumer.poll()) == 1
        cluster.restart_broker("broker-a")
        with cluster.pull_consumer("audit", [topic]) as consumer:
            assert consumer.poll() == []


def test_of_two_brokers_one_is_enough() -> None:
    with virtual(brokers=2) as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        assert cluster.brokers == ("broker-a", "broker-b")
        cluster.kill_broker("broker-b")
        assert {producer.send(Message(topic, b"x")).queue.broker for _ in range(8)} == {"broker-a"}


def test_an_unknown_broker_is_an_error_that_names_the_known() -> None:
    with virtual() as cluster, pytest.raises(ValueError, match="broker-a"):
        cluster.kill_broker("broker-x")


# --- start and stop -------------------------------------------------------------------------------------


def test_clients_that_are_left_open_are_closed_with_the_cluster() -> None:
    with virtual() as cluster:
        producer = cluster.producer()
        producer.start()
        consumer = cluster.consumer("readers")
        consumer.subscribe(cluster.create_topic(), print)
        consumer.start()
    with pytest.raises(NotRunning):
        producer.send(Message("orders", b"x"))
    with pytest.raises(NotRunning, match="with Cluster"):
        cluster.create_topic()
    cluster.close()


def test_administration_sees_the_cluster() -> None:
    with virtual() as cluster, cluster.admin() as admin:
        topic = cluster.create_topic(queues=3)
        assert [broker.name for broker in admin.clusters.layout().brokers] == ["broker-a"]
        assert len(admin.topics.queues(topic).subscribe) == 3


def test_names_are_new_each_time() -> None:
    with virtual() as cluster, virtual() as other:
        names = [cluster.new_topic(), cluster.new_topic(), other.new_topic(), cluster.new_group("billing")]
        assert len(set(names)) == 4
        assert names[-1].startswith("billing-")


# --- async -----------------------------------------------------------------------------------------------


def test_in_a_virtual_loop_everything_can_be_awaited() -> None:
    async def scene() -> tuple[list[bytes], float]:
        got: list[bytes] = []
        async with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
            topic = await cluster.create_topic()
            consumer = cluster.consumer("readers")

            @consumer.on(topic)
            async def handle(message: MessageExt) -> None:
                got.append(message.body)

            async with consumer:
                await producer.send(Message(topic, b"now"))
                await producer.send(Message(topic, b"later", delay_level=5))
                await cluster.advance(minutes=5)
            return got, asyncio.get_running_loop().time()

    got, passed = run_virtual(scene())
    assert got == [b"now", b"later"]
    assert 300 <= passed < 301


def test_virtual_time_in_a_real_loop_is_refused_with_advice() -> None:
    async def scene() -> None:
        async with AsyncCluster(clock="virtual"):
            pass

    with pytest.raises(RuntimeError, match="run_virtual"):
        asyncio.run(scene())
