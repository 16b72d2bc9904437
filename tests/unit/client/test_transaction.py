"""Transactions of our producer, through brokers of ours, in virtual time."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.kit import virtual

from turbopump import Decision, Message
from turbopump.client.errors import InvalidArgument, NotPrepared, NotRunning
from turbopump.client.message import MessageExt, SendStatus
from turbopump.client.produce.transaction import CheckResponder
from turbopump.protocol.errors import IllegalOperation
from turbopump.testing import AsyncCluster, Cluster
from turbopump.testing.loop import run_virtual

PAID = Message("orders", b"paid", tags="paid", keys="A-1", properties={"own": "x"})


@virtual
async def in_cluster(scene: Callable[[AsyncCluster], Awaitable[None]], **settings: str) -> None:
    async with AsyncCluster(clock="virtual", settings=settings) as cluster:
        await cluster.create_topic("orders")
        await scene(cluster)


async def bodies(cluster: AsyncCluster) -> list[bytes]:
    return [message.body for message in await cluster.messages("orders")]


def test_the_message_is_there_when_the_block_has_ended_and_not_before() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop") as producer:
            async with producer.transaction(PAID) as transaction:
                assert transaction.receipt.status is SendStatus.SEND_OK
                assert await bodies(cluster) == []
            (message,) = await cluster.messages("orders")
            assert (message.body, message.tags, message.keys) == (b"paid", "paid", ("A-1",))
            assert message.properties["own"] == "x"
            assert message.message_id == transaction.receipt.message_id
            assert (transaction.decision, transaction.is_confirmed) == (Decision.COMMIT, True)

    in_cluster(scene)


def test_an_exception_in_the_block_takes_the_message_back() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop") as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(PAID) as transaction:
                    raise ZeroDivisionError
            assert transaction.decision is Decision.ROLLBACK
            await asyncio.sleep(100)
            assert await bodies(cluster) == []

    in_cluster(scene)


def test_a_block_that_is_cancelled_leaves_the_decision_to_the_check() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", check=lambda message: Decision.COMMIT) as producer:

            async def work() -> None:
                async with producer.transaction(PAID):
                    await asyncio.sleep(1000)

            task = asyncio.create_task(work())
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait([task])
            assert await bodies(cluster) == []
            await asyncio.sleep(60)
            assert await bodies(cluster) == [b"paid"]

    in_cluster(scene)


@pytest.mark.parametrize(("way", "seen"), [("commit", [b"paid"]), ("rollback", [])])
def test_the_decision_can_be_said_in_the_block(way: str, seen: list[bytes]) -> None:
    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop") as producer:
            async with producer.transaction(PAID) as transaction:
                await getattr(transaction, way)()
                assert await bodies(cluster) == seen
            assert await bodies(cluster) == seen
            await getattr(transaction, way)()
            assert await bodies(cluster) == seen

    in_cluster(scene)


def test_a_second_and_other_decision_is_refused() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop") as producer:
            async with producer.transaction(PAID) as transaction:
                await transaction.rollback()
            with pytest.raises(IllegalOperation, match="has ended before, by rollback"):
                await transaction.commit()
            assert await bodies(cluster) == []

    in_cluster(scene)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(("decision", "seen"), [(Decision.COMMIT, [b"paid"]), (Decision.ROLLBACK, [])])
def test_the_check_is_asked_about_what_was_left_open(
    is_async: bool, decision: Decision, seen: list[bytes]
) -> None:
    asked: list[MessageExt] = []

    async def async_check(message: MessageExt) -> Decision:
        asked.append(message)
        return decision

    def check(message: MessageExt) -> Decision:
        asked.append(message)
        return decision

    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", check=async_check if is_async else check) as producer:
            async with producer.transaction(PAID) as transaction:
                await transaction.unknown()
            await asyncio.sleep(60)
            assert await bodies(cluster) == seen
            (message,) = asked
            assert (message.topic, message.body, message.keys) == ("orders", b"paid", ("A-1",))
            assert message.message_id == transaction.receipt.message_id
            await asyncio.sleep(300)
            assert len(asked) == 1

    in_cluster(scene)


def test_a_check_that_fails_or_does_not_know_is_asked_again() -> None:
    said: list[Any] = [RuntimeError("no connection"), None, "what?", Decision.UNKNOWN, Decision.COMMIT]

    async def check(message: MessageExt) -> Any:
        answer = said.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", check=check) as producer:
            async with producer.transaction(PAID) as transaction:
                await transaction.unknown()
            await asyncio.sleep(200)
            assert said == []
            assert await bodies(cluster) == [b"paid"]

    in_cluster(scene)


def test_another_producer_of_the_group_is_asked_when_one_has_died() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        first = cluster.producer("shop")
        await first.start()
        await first.transaction(PAID).begin()
        cluster.kill_client(first)
        others = cluster.producer("others", check=lambda message: Decision.ROLLBACK)
        async with others, cluster.producer("shop", check=lambda message: Decision.COMMIT) as second:
            await others.send(Message("orders", b"plain"))
            await second.send(Message("orders", b"plain"))
            await asyncio.sleep(60)
            assert sorted(await bodies(cluster)) == [b"paid", b"plain", b"plain"]

    in_cluster(scene)


def test_a_broker_that_is_away_at_the_end_asks_when_it_is_back() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", check=lambda message: Decision.COMMIT) as producer:
            async with producer.transaction(PAID) as transaction:
                await cluster.kill_broker()
            assert (transaction.decision, transaction.is_confirmed) == (Decision.COMMIT, False)
            await cluster.start_broker()
            await asyncio.sleep(90)
            assert await bodies(cluster) == [b"paid"]

    in_cluster(scene, flushDiskType="SYNC_FLUSH")


def test_a_half_message_that_is_not_safe_is_rolled_back() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", check=lambda message: Decision.COMMIT) as producer:
            with pytest.raises(NotPrepared, match="SLAVE_NOT_AVAILABLE"):
                async with producer.transaction(PAID):
                    raise AssertionError("the block was entered")
            await asyncio.sleep(60)
            assert await bodies(cluster) == []

    in_cluster(scene, brokerRole="SYNC_MASTER")


# With a function


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("said", "decision", "seen"),
    [
        (Decision.COMMIT, Decision.COMMIT, [b"paid"]),
        (Decision.ROLLBACK, Decision.ROLLBACK, []),
        (None, Decision.UNKNOWN, []),
        (ZeroDivisionError(), Decision.UNKNOWN, []),
    ],
)
def test_a_transaction_ends_as_the_function_says(
    said: Any, decision: Decision, seen: list[bytes], is_async: bool
) -> None:
    def execute(message: Message) -> Any:
        assert message is PAID
        if isinstance(said, Exception):
            raise said
        return said

    async def async_execute(message: Message) -> Any:
        return execute(message)

    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop") as producer:
            result = await producer.send_in_transaction(PAID, async_execute if is_async else execute)
            assert result.decision is decision
            assert result.failure is (said if isinstance(said, Exception) else None)
            assert await bodies(cluster) == seen

    in_cluster(scene)


def test_work_that_takes_long_asks_for_time() -> None:
    asked: list[MessageExt] = []

    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", check=asked.append) as producer:
            async with producer.transaction(PAID, check_after=120):
                await asyncio.sleep(110)
            assert asked == []
            assert await bodies(cluster) == [b"paid"]

    in_cluster(scene)


def test_in_a_namespace() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        await cluster.create_topic("ns%orders")
        topics: list[str] = []

        def check(message: MessageExt) -> Decision:
            topics.append(message.topic)
            return Decision.COMMIT

        async with cluster.producer("shop", namespace="ns", check=check) as producer:
            async with producer.transaction(PAID):
                pass
            async with producer.transaction(PAID) as transaction:
                await transaction.unknown()
            await asyncio.sleep(60)
            assert topics == ["orders"]
            assert len(await cluster.messages("ns%orders")) == 2

    in_cluster(scene)


# What cannot be right


def test_wrong_use_is_told_at_once() -> None:
    async def scene(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop") as producer:
            with pytest.raises(InvalidArgument, match="must not be delayed"):
                await producer.transaction(Message("orders", b"x", delay_level=3)).begin()
            transaction = producer.transaction(PAID)
            with pytest.raises(NotRunning, match="has not begun"):
                await transaction.commit()
            await transaction.begin()
            with pytest.raises(InvalidArgument, match="begun before"):
                await transaction.begin()
            result = await producer.send_in_transaction(PAID, lambda message: "yes")  # type: ignore[arg-type,return-value]
            assert isinstance(result.failure, InvalidArgument)

    in_cluster(scene)


def test_questions_are_answered_a_few_at_a_time_and_a_bounded_number_waits() -> None:
    running = most = answered = 0

    async def check(message: MessageExt) -> Decision:
        nonlocal running, most, answered
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        answered += 1
        return Decision.UNKNOWN

    class Line:
        is_closing = False

        def send_oneway(self, request: object) -> None: ...

    async def main() -> None:
        answers = CheckResponder("shop", check, max_concurrent=2, max_waiting=5)
        record: Any = _half()
        for _ in range(9):
            answers.answer(record)
        await asyncio.sleep(10)
        assert (most, answered) == (2, 5)
        await answers.close()

    def _half() -> Any:
        from turbopump.client.produce.transaction import CheckRequest
        from turbopump.protocol.headers.send import CheckTransactionStateRequest
        from turbopump.protocol.record import Record

        half = Record("orders", 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), properties=b"PGROUP\x01shop\x02")
        asked = CheckTransactionStateRequest(tranStateTableOffset=0, commitLogOffset=0)
        line: Any = Line()
        return CheckRequest(asked, half, line)

    run_virtual(main())


# For those who wait


def test_the_blocking_producer_does_the_work_in_the_thread_of_the_caller() -> None:
    accounts = sqlite3.connect(":memory:")  # may be used in this thread alone
    accounts.execute("create table paid (id text)")

    def pay(message: Message) -> Decision:
        accounts.execute("insert into paid values (?)", message.keys)
        accounts.commit()
        return Decision.COMMIT

    with Cluster(clock="virtual") as cluster, cluster.producer("shop") as producer:
        cluster.create_topic("orders")
        result = producer.send_in_transaction(PAID, pay)
        assert result.decision is Decision.COMMIT
        with producer.transaction(PAID) as transaction:
            pay(PAID)
            assert len(cluster.messages("orders")) == 1
        assert transaction.decision is Decision.COMMIT
        assert transaction.receipt.status is SendStatus.SEND_OK
        with pytest.raises(ZeroDivisionError), producer.transaction(PAID):
            raise ZeroDivisionError
        assert len(cluster.messages("orders")) == 2


def test_the_check_of_the_blocking_producer_is_called_in_a_thread_of_its_own() -> None:
    threads: list[threading.Thread] = []

    def check(message: MessageExt) -> Decision:
        threads.append(threading.current_thread())
        return Decision.COMMIT

    with Cluster(clock="virtual") as cluster, cluster.producer("shop", check=check) as producer:
        cluster.create_topic("orders")
        with producer.transaction(PAID) as transaction:
            transaction.unknown()
        assert not transaction.is_confirmed
        cluster.wait_until(lambda: len(cluster.messages("orders")) == 1, timeout=100)
        assert threads[0] is not threading.current_thread()
