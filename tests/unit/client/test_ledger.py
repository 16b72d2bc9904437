"""The ledger by its client, against one broker and several, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from turbopump.broker.transactions.ledger import requests
from turbopump.client.admin.calls import ServerUnreachable
from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.client.produce import ledger as ledgers
from turbopump.client.produce.ledger import Ended, Fenced, Ledger, LedgerNotSupported, SpoiledWriter, cut
from turbopump.protocol import batch, properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import Refused, RequestNotSupported, TopicNotFound
from turbopump.testing.cluster import AsyncCluster
from turbopump.testing.loop import run_virtual

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
PROBE_ROUND_S = 40  # rounds of checks are 30 s apart


def with_cluster(scenario: Callable[[AsyncCluster], Coroutine[Any, Any, None]], brokers: int = 2) -> None:
    async def run() -> None:
        async with AsyncCluster(brokers, clock="virtual") as cluster:
            await cluster.create_topic("T", queues=2)
            await scenario(cluster)

    run_virtual(run())


def ledger(cluster: AsyncCluster, **more: Any) -> Ledger:
    return Ledger("query", **cluster.client_settings.of_client(), **more)


def rows(batch: int, count: int = 50) -> list[Message]:
    return [Message("T", b"%d/%d" % (batch, number)) for number in range(count)]


async def wrote(ledger: Ledger, batch: int, count: int = 50) -> Any:
    writer = ledger.writer(batch)
    await writer.send(rows(batch, count))
    return writer.written


async def seen(cluster: AsyncCluster) -> Counter[bytes]:
    return Counter(message.body for message in await cluster.messages("T"))


def once(*batches: int) -> Counter[bytes]:
    return Counter(message.body for batch in batches for message in rows(batch))


@pytest.mark.parametrize("brokers", [1, 3])
def test_each_row_of_the_winners_is_seen_once(brokers: int) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            assert one.home == "broker-a"
            for batch in range(3):
                assert not await one.decided(batch)
                winner, loser = await wrote(one, batch), await wrote(one, batch)
                assert (winner.count, len(winner.brokers)) == (50, brokers)
                assert await one.decide(batch, [winner]) == {winner.token}
                assert await one.decide(batch, [loser]) == {winner.token}
                assert await one.decided(batch)
                ended = await one.end(batch)
                assert ended.behind == ()
            assert await seen(cluster) == once(0, 1, 2)

    with_cluster(scenario, brokers)


def test_rows_of_one_key_keep_their_queue_and_their_order() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            writer = one.writer(0)
            await writer.send(rows(0), by=lambda message: int(message.body.split(b"/")[1]) % 3)
            await one.decide(0, [writer.written])
            await one.end(0)
            found: dict[int, list[tuple[Any, int, int]]] = {}
            for message in await cluster.messages("T"):
                number = int(message.body.split(b"/")[1])
                found.setdefault(number % 3, []).append((message.queue, message.record.queue_offset, number))
            for places in found.values():
                assert len({queue for queue, _, _ in places}) == 1
                assert [number for _, _, number in sorted(places)] == sorted(n for _, _, n in places)

    with_cluster(scenario)


def test_many_rows_end_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_ENDED", 100)

    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            await wrote(one, 0, 1000)
            await one.decide(0, [await wrote(one, 0, 1000)])
            assert await one.end(0) == Ended(1000, 1000, ())
            assert sum((await seen(cluster)).values()) == 1000

    with_cluster(scenario)


def test_brokers_that_are_not_home_settle_by_asking_it() -> None:
    """The driver dies after its decision, and nobody ends anything."""

    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            winner = await wrote(one, 0)
            await wrote(one, 0)
            await one.decide(0, [winner])
            cluster.kill_client(one)
            await cluster.advance(PROBE_ROUND_S)
            assert await seen(cluster) == once(0)

    with_cluster(scenario, 3)


def test_a_home_that_is_away_is_waited_for() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            await one.decide(0, [await wrote(one, 0)])
            await cluster.kill_broker("broker-a")
            await cluster.restart_broker("broker-b")
            await cluster.advance(hours=1)
            await cluster.start_broker("broker-a")
            await cluster.advance(2 * PROBE_ROUND_S)
            assert await seen(cluster) == once(0)

    with_cluster(scenario)


def test_a_broker_that_is_away_gets_the_winners_however_many_batches_later() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            winner = await wrote(one, 0)
            assert winner.brokers == ("broker-a", "broker-b")
            await cluster.stop_broker("broker-b")
            await one.decide(0, [winner])
            assert (await one.end(0)).behind == ("broker-b",)
            for batch in range(1, 100):  # more than settled ones are remembered
                await one.decide(batch, [])
                assert (await one.end(batch)).behind == ("broker-b",)
            await cluster.start_broker("broker-b")
            await cluster.advance(PROBE_ROUND_S)
            assert await seen(cluster) == once(0)
            assert (await one.end(99)).behind == ()

    with_cluster(scenario)


def test_a_new_run_ends_the_one_before() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as old, ledger(cluster) as new:
            await old.open("r1")
            zombies = await wrote(old, 0)
            await new.open("r2")
            with pytest.raises(Fenced):
                await old.decide(0, [zombies])
            with pytest.raises(Fenced):
                await wrote(old, 0)
            with pytest.raises(Fenced):
                await old.open("r1")
            await new.decide(0, [await wrote(new, 0)])
            await new.end(0)
            await cluster.advance(PROBE_ROUND_S)
            assert await seen(cluster) == once(0)

    with_cluster(scenario)


def test_a_writer_elsewhere_needs_run_and_home_alone() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as driver:
            await driver.open("r1")
            async with ledger(cluster, run="r1", home=driver.home) as task:
                assert not await task.decided(0)
                written = await wrote(task, 0)
            await driver.decide(0, [written])
            await driver.end(0)
            assert await seen(cluster) == once(0)

    with_cluster(scenario)


def test_the_home_of_an_id_stays_where_it_was() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await cluster.stop_broker("broker-a")
        async with ledger(cluster) as one:
            await one.open("r1")
            assert one.home == "broker-b"
            await one.decide(0, [])
        await cluster.start_broker("broker-a")
        async with ledger(cluster) as one:
            await one.open("r2")
            assert one.home == "broker-b"
            assert await one.decided(0)
        await cluster.stop_broker("broker-b")
        async with ledger(cluster) as one:
            with pytest.raises(ServerUnreachable, match="the home of query is not registered"):
                await one.open("r3")
        async with ledger(cluster, home="broker-a") as one:
            with pytest.raises(InvalidArgument, match="must have one home"):
                await one.open("r3")

    with_cluster(scenario)


def test_a_decision_waits_for_a_broker_that_restarts() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            written = await wrote(one, 0)
            await cluster.kill_broker(0)
            deciding = asyncio.create_task(one.decide(0, [written]))
            await asyncio.sleep(1.5)
            await cluster.start_broker(0)
            assert await deciding == {written.token}
            await one.end(0)
            assert await seen(cluster) == once(0)

    with_cluster(scenario, 1)


def test_a_writer_whose_frame_was_not_acknowledged_is_spoiled() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            writer = one.writer(0)
            await writer.send(rows(0))
            await cluster.kill_broker("broker-b")
            with pytest.raises(ServerUnreachable):
                await writer.send(rows(0))
            with pytest.raises(SpoiledWriter):
                _ = writer.written
            with pytest.raises(SpoiledWriter):
                await writer.send(rows(0))

    with_cluster(scenario)


def test_messages_that_cannot_be_right_are_refused_before_anything_is_sent() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            with pytest.raises(InvalidArgument, match="open the ledger first"):
                one.writer(0)
            await one.open("r1")
            writer = one.writer(0)
            with pytest.raises(InvalidArgument):
                await writer.send([Message("T", b"")])
            with pytest.raises(InvalidArgument):
                await writer.send([Message("T", b"x", priority=1)])
            with pytest.raises(InvalidArgument):
                await writer.send([Message("%RETRY%g", b"x")])
            with pytest.raises(TopicNotFound):
                await writer.send([Message("Absent", b"x")])
            assert writer.written.count == 0
            assert await cluster.messages(HALF) == []

    with_cluster(scenario)


def test_delayed_messages_come_in_their_time_after_the_commit() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            writer = one.writer(0)
            now_ms = one.admin.clock.now_ms()
            kinds: list[dict[str, Any]] = [
                {},
                {"delay_level": 2},
                {"delay": 7},
                {"deliver_at": now_ms + 13_000},
            ]
            await writer.send([Message("T", b"%d" % number, **kind) for number, kind in enumerate(kinds)])
            await one.decide(0, [writer.written])
            assert (await one.end(0)).behind == ()
            begin_ms = one.admin.clock.now_ms()
        await asyncio.sleep(20)
        found = {message.body: message.record.store_timestamp for message in await cluster.messages("T")}
        late = [found[b"%d" % number] - begin_ms for number in range(4)]
        for late_ms, due_ms in zip(late, (0, 5_000, 7_000, 13_000 - (begin_ms - now_ms)), strict=True):
            assert -50 <= late_ms - due_ms <= 150

    with_cluster(scenario)


def test_brokers_without_a_ledger_are_named_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            asks = one.admin.asking.ask

            async def as_apache(address: str, code: RequestCode, *more: Any) -> Any:
                if code >= RequestCode.LEDGER_OPEN:
                    raise RequestNotSupported(f" request type {code} not supported")
                return await asks(address, code, *more)

            monkeypatch.setattr(one.admin.asking, "ask", as_apache)
            with pytest.raises(LedgerNotSupported, match=r"broker-a at .* Write at least once instead"):
                await one.open("r1")

    with_cluster(scenario)


def test_a_cluster_without_brokers_is_out_of_reach() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await cluster.stop_broker(0)
        async with ledger(cluster) as one:
            with pytest.raises(ServerUnreachable, match="no broker is registered"):
                await one.open("r1")

    with_cluster(scenario, 1)


def test_frames_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "MAX_FRAME_MESSAGES", 3)
    monkeypatch.setattr(ledgers, "MAX_FRAME_BYTES", 10)
    sizes = [1, 1, 1, 1, 9, 1, 99, 1]
    frames = list(cut([(0, b"x" * size, b"") for size in sizes]))
    assert [[len(body) for _, body, _ in frame] for frame in frames] == [[1, 1, 1], [1, 9], [1], [99], [1]]


def test_a_refusal_of_a_broker_reaches_the_writer() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            await one.decide(5, [])
            with pytest.raises(Refused, match="is decided already"):
                await wrote(one, 5)

    with_cluster(scenario, 1)


def test_who_asks_is_told_the_last_decision_and_whether_he_is_still_the_one() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one, ledger(cluster) as other:
            await one.check_supported()
            await one.open("r1")
            assert await one.highest() == -1
            await one.decide(3, [await wrote(one, 3)])
            assert await one.highest() == 3
            assert await one.is_current()
            await other.open("r2")
            assert not await one.is_current()
            assert await other.is_current()

    with_cluster(scenario)


def test_packed_frames_are_seen_as_messages_are() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with ledger(cluster) as one:
            await one.open("r1")
            writer = one.writer(0)
            pairs = {"REAL_TOPIC": "T", "REAL_QID": "1", "UNIQ_KEY": "0" * 32}
            frame = batch.join([(0, b"packed", properties.pack(pairs).encode())])
            await writer.send_packed([("broker-b", await one.address("broker-b"), [(frame, 1)])])
            assert (writer.written.count, writer.written.brokers) == (1, ("broker-b",))
            await one.decide(0, [writer.written])
            await one.end(0)
        (found,) = await cluster.messages("T")
        assert (found.body, found.queue.id) == (b"packed", 1)

    with_cluster(scenario)
