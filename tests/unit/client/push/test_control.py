"""What users and tools do to a consumer: start and end it, pause it, change it while it runs, ask it."""

import asyncio
import os
import signal
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, MemoryCluster, cluster
from tests.unit.client.listening import Reader, committed, consumer, plain, world

from turbopump.client.errors import InvalidArgument, NoNameServer, NotRunning
from turbopump.client.group.consume_status import RetryLater
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import Refused
from turbopump.protocol.names import retry_topic
from turbopump.testing.loop import run_virtual

QUEUE = MessageQueue("orders", "broker-a", 0)


async def sent(
    town: MemoryCluster, count: int, topic: str = "orders", start: int = 0, **message: Any
) -> list[bytes]:
    texts = [b"%03d" % number for number in range(start, start + count)]
    for text in texts:
        await town.send(topic, text, **message)
    return texts


@virtual
async def test_a_consumer_is_made_with_a_decorator_and_entered() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 2, tags="paid")
        await sent(town, 2, start=2, tags="open")
        bills = Consumer(
            "billing",
            name_servers=NAMESRV,
            world=world(town),
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        got: list[bytes] = []

        @bills.on("orders", tags="paid || refunded")
        async def bill(message: MessageExt) -> None:
            got.append(message.body)

        async with bills as entered:
            assert entered is bills
            await town.clock.sleep(2)
            assert bills.queues() == (QUEUE,)
        assert got == [b"000", b"001"]
        assert asyncio.iscoroutinefunction(bill)


def test_what_cannot_be_is_refused_with_what_could() -> None:
    with pytest.raises(InvalidArgument, match="empty"):
        Consumer("")
    with pytest.raises(InvalidArgument, match="only letters"):
        Consumer("no spaces")
    with pytest.raises(InvalidArgument, match="name of your own"):
        Consumer("DEFAULT_CONSUMER")
    with pytest.raises(InvalidArgument, match="at most 120"):
        Consumer("g" * 121)
    with pytest.raises(InvalidArgument, match="workers"):
        Consumer("g", consume_thread_min=30)
    with pytest.raises(InvalidArgument, match="did you mean pull_batch_size"):
        Consumer("g", pull_batch_siz=3)  # type: ignore[call-arg]
    consumer = Consumer("g", name_servers=NAMESRV)
    with pytest.raises(InvalidArgument, match="empty"):
        consumer.subscribe("", print)
    with pytest.raises(InvalidArgument, match="topic must be text"):
        consumer.subscribe(print, print)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="only one of tags, sql and module"):
        consumer.subscribe("t", print, "a", sql="b = 1")
    with pytest.raises(InvalidArgument, match="sql must not be empty"):
        consumer.subscribe("t", print, sql=" ")
    with pytest.raises(InvalidArgument, match="batch must be between"):
        consumer.subscribe("t", print, batch=0)
    with pytest.raises(InvalidArgument, match="workers"):
        consumer.workers = (0, 5)


def test_one_consumer_delivers_in_one_manner() -> None:
    consumer = Consumer("g", name_servers=NAMESRV)
    consumer.subscribe("a", lambda message: None)
    with pytest.raises(InvalidArgument, match=r"ordered for all its topics or for none.*make two consumers"):
        consumer.subscribe("b", lambda message: None, ordered=True)
    with pytest.raises(InvalidArgument, match=r"broadcast for all its topics.*make two consumers"):
        consumer.subscribe("b", lambda message: None, broadcast=True)
    consumer.subscribe("a", lambda message: None, ordered=True, replace=True)
    assert consumer.is_ordered


@virtual
async def test_a_consumer_starts_once_and_is_of_no_use_before_and_after() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        without = plain(town)
        with pytest.raises(InvalidArgument, match=r"@consumer\.on"):
            await without.start()
        one = consumer(town, Reader())
        for use in (one.pause, one.resume, one.queues):
            with pytest.raises(NotRunning, match=r"use `async with` or start\(\)"):
                use()
        await one.start()
        with pytest.raises(NotRunning, match="started before"):
            await one.start()
        await one.close()
        await one.close()
        with pytest.raises(NotRunning):
            one.queues()
        with pytest.raises(NotRunning, match="closed"):
            one.subscribe("orders", Reader())
        with pytest.raises(NotRunning):
            await one.start()


@virtual
async def test_a_consumer_that_was_never_started_can_be_closed() -> None:
    async with cluster(brokers=0) as town:
        await plain(town).close()


@virtual
async def test_a_start_that_fails_leaves_nothing_behind() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        nowhere = Consumer("readers", name_servers="127.0.0.1:9999", world=world(town))
        nowhere.subscribe("orders", Reader())
        with pytest.raises(NoNameServer, match=r"127\.0\.0\.1:9999"):
            await nowhere.start()
        with_sql = plain(town)
        with_sql.subscribe("orders", Reader(), sql="price > 10")
        with pytest.raises(Refused, match="SQL92"):
            await with_sql.start()
        assert not await members(town)


@virtual
async def test_two_of_one_group_in_one_instance_are_refused() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        async with consumer(town, Reader(), instance_name="shared"):
            with pytest.raises(InvalidArgument, match="already has a consumer of group readers"):
                await consumer(town, Reader(), instance_name="shared").start()
            assert len(await members(town)) == 1
        assert not await members(town)


async def members(town: MemoryCluster) -> list[str]:
    try:
        found = await town.admin.connections.consumers("readers")
    except Exception:
        return []
    return [one.clientId for one in found.connectionSet]


@virtual
async def test_run_consumes_until_a_signal_and_finishes_what_it_has_in_hand() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 1)
        done: list[str] = []

        async def handle(message: MessageExt) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(1)
            done.append(message.text)

        running = plain(town)
        running.subscribe("orders", handle)
        await running.run()
        assert done == ["000"]
        assert await committed(town, queues=1) == [1]
        with pytest.raises(NotRunning):
            running.queues()


@virtual
async def test_run_ends_when_it_is_cancelled() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        task = asyncio.create_task(consumer(town, Reader()).run())
        await town.clock.sleep(3)
        assert len(await members(town)) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await members(town)


@virtual
async def test_a_paused_consumer_keeps_its_queues_and_goes_on_when_resumed() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader = Reader()
        async with consumer(town, reader) as pausing:
            await town.clock.sleep(2)
            pausing.pause()
            assert pausing.is_paused
            await sent(town, 40)  # the pull that waits at the broker still brings some
            await town.clock.sleep(20)
            assert len(reader.got) < 40
            assert pausing.queues() == (QUEUE,)
            pausing.resume()
            await town.clock.sleep(3)
            assert len(reader.got) == 40


def test_workers_can_be_changed_while_they_work() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            inside = most = 0

            async def handle(message: MessageExt) -> None:
                nonlocal inside, most
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.2)
                inside -= 1

            changing = plain(town, consume_thread_min=2, consume_thread_max=2)
            changing.subscribe("orders", handle)
            await sent(town, 100)
            async with changing:
                assert changing.workers == (2, 2)
                await town.clock.sleep(1)
                assert (inside, most) == (2, 2)
                changing.workers = (4, 10)
                await town.clock.sleep(1)
                assert (inside, most) == (10, 10)
                changing.workers = (1, 1)
                await town.clock.sleep(1)
                assert inside == 1

    run_virtual(scene())


@virtual
async def test_a_topic_can_be_subscribed_and_left_while_it_runs() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        await town.create_topic("bills", 2)
        await sent(town, 4, "bills")
        orders, bills = Reader(), Reader()
        async with consumer(town, orders) as changing:
            await town.clock.sleep(2)
            changing.subscribe("bills", bills)
            await town.clock.sleep(2)
            assert len(bills.got) == 4
            await sent(town, 4, "bills", 4)
            await town.clock.sleep(0.5)
            await changing.unsubscribe("bills")
            assert {queue.topic for queue in changing.queues()} == {"orders"}
            assert await committed(town, "bills", 2) == [4, 4]
            await sent(town, 4, "bills", 8)
            await sent(town, 4)
            await town.clock.sleep(3)
            assert (len(orders.got), len(bills.got)) == (4, 8)
            with pytest.raises(InvalidArgument, match="ordered"):
                changing.subscribe("bills", bills, ordered=True)


@virtual
async def test_an_expression_can_be_changed_while_it_runs() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader = Reader()
        async with consumer(town, reader, topics={"orders": "paid"}) as changing:
            await town.clock.sleep(2)
            changing.subscribe("orders", reader, "open", replace=True)
            await town.clock.sleep(1)
            await sent(town, 1, tags="paid")
            await sent(town, 1, start=1, tags="open")
            await town.clock.sleep(3)
        assert reader.bodies == [b"001"]


@virtual
async def test_callbacks_hear_of_changed_queues_and_cannot_harm() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        heard: list[tuple[str, int, int]] = []
        one = consumer(town, Reader(), 1)

        async def fail(*change: object) -> None:
            raise ValueError("no")

        async def hear(topic: str, every: tuple[MessageQueue, ...], own: tuple[MessageQueue, ...]) -> None:
            heard.append((topic, len(every), len(own)))

        one.on_queues_changed("orders", fail)
        one.on_queues_changed("orders", hear)
        one.on_queues_changed("others", hear)
        async with one:
            await town.clock.sleep(2)
            async with consumer(town, Reader(), 2):
                await town.clock.sleep(3)
            await town.clock.sleep(3)
        assert heard == [
            ("orders", 2, 2),
            ("orders", 2, 1),
            ("orders", 2, 2),
        ]


@virtual
async def test_the_retry_topic_is_ours_a_moment_after_the_first_heartbeat() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        async with consumer(town, Reader()) as new:
            await town.clock.sleep(3)
            assert retry_topic("readers") in {queue.topic for queue in new._running.queues.ours}


@virtual
async def test_it_begins_at_a_time_when_asked_to() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 3)
        await town.clock.sleep(100)
        when = town.clock.now_ms()
        late = await sent(town, 3, start=3)
        reader = Reader()
        begins = consumer(
            town,
            reader,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
            consume_timestamp=when,
        )

        async def nothing(queue: MessageQueue) -> int | None:
            return None

        async with begins:
            engine = begins._running
            engine._offsets.query = nothing  # type: ignore[method-assign]
            assert await engine._start_of(QUEUE) == 3
            assert await engine._start_of(MessageQueue(retry_topic("readers"), "broker-a", 0)) == 0
        assert late[0] == b"003"


@virtual
async def test_a_tool_moves_the_group_back_and_sees_where_everyone_is() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        texts = await sent(town, 3)
        reader = Reader()
        async with consumer(town, reader) as moved:
            await town.clock.sleep(6)
            await town.admin.offsets.reset("readers", "orders", 0)
            await town.clock.sleep(3)
            assert reader.bodies == sorted(2 * texts)
            info = await town.admin.groups.running_info("readers", moved.client_id, with_stack=True)
            assert info.jstack is not None
            assert "MainThread" in info.jstack
            assert "task " in info.jstack


@pytest.mark.parametrize("is_async", [True, False])
@virtual
async def test_a_tool_has_one_message_handled_and_hears_what_the_handler_says(is_async: bool) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 1)
        got: list[bytes] = []
        failure: BaseException | None = None

        def handle(message: MessageExt) -> None:
            got.append(message.body)
            if failure is not None:
                raise failure

        async def handle_on_loop(message: MessageExt) -> None:
            handle(message)

        asked = plain(town)
        asked.subscribe("orders", handle_on_loop if is_async else handle)
        async with asked:
            await town.clock.sleep(2)
            message = await town.admin.messages.at_offset(QUEUE, 0)
            assert message is not None
            told = []
            for failure in (None, RetryLater(3), SystemExit(1)):  # noqa: B007
                result = await town.admin.messages.consume_directly(message, "readers", asked.client_id)
                told.append((result.consumeResult, result.remark))
            assert told == [
                ("CR_SUCCESS", None),
                ("CR_LATER", None),
                ("CR_THROW_EXCEPTION", "SystemExit: 1"),
            ]
        assert got == [b"000"] * 4
        assert await committed(town, queues=1) == [1]


@virtual
async def test_pulls_carry_the_expression_when_asked_to() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        async with consumer(
            town,
            Reader(),
            topics={"orders": "a || b"},
            post_subscription_when_pull=True,
            pull_batch_size=7,
        ) as posting:
            client = posting._running._instance.client
            call, asked = client.call, list[Command]()

            async def seen(address: str, question: Command, timeout_s: float = 3.0) -> Command:
                asked.append(question)
                return await call(address, question, timeout_s)

            client.call = seen  # type: ignore[method-assign]
            await town.clock.sleep(20)
            (pull, *_) = [
                one.ext or {}
                for one in asked
                if one.code == RequestCode.PULL_MESSAGE and (one.ext or {})["topic"] == "orders"
            ]
            assert (pull["subscription"], pull["maxMsgNums"], pull["expressionType"]) == (
                "a || b",
                "7",
                "TAG",
            )


@virtual
async def test_a_namespace_is_on_the_wire_and_not_in_the_handler() -> None:
    async with cluster() as town:
        await town.create_topic("shop%orders", 1)
        await sent(town, 2, "shop%orders")
        reader = Reader(lambda body: body == b"001")
        async with consumer(town, reader, namespace="shop", max_reconsume_times=1) as spaced:
            await town.clock.sleep(20)
            assert spaced.group == "readers"
            assert spaced._running.group == "shop%readers"
        assert reader.bodies == [b"000", b"001", b"001"]
        assert {message.topic for message in reader.got} == {"orders"}
        assert sorted(message.reconsume_times for message in reader.got) == [0, 0, 1]
        assert {message.queue.topic for message in reader.got} == {"orders", "%RETRY%readers"}
        letter = await town.admin.messages.at_offset(MessageQueue("%DLQ%shop%readers", "broker-a", 0), 0)
        assert letter is not None
        assert letter.body == b"001"
