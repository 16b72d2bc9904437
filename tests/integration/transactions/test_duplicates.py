"""The three ways in which RocketMQ brings a message twice: each produced for real, each with one effect.

Our own producer, broker and consumer in virtual time; the work of the handlers goes into an SQLite file.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.databases import Database, run, sqlite
from tests.unit.admin.kit import NAMESRV, MemoryCluster, cluster
from tests.unit.client.listening import FIRST
from tests.unit.client.producing import producing, stored

from turbopump.client.message import Message, MessageExt
from turbopump.client.produce.producer import Producer
from turbopump.client.push.consumer import Consumer
from turbopump.client.world import World
from turbopump.runtime.chance import Chance
from turbopump.runtime.network import Network
from turbopump.testing.loop import run_virtual
from turbopump.transactions import outbox
from turbopump.transactions.idempotent import idempotent


@pytest.fixture
def bills(tmp_path: Path) -> Database:
    database = sqlite("sqlite3", tmp_path / "database")
    database.run("CREATE TABLE bills (what TEXT)")
    return database


class Billing:
    """A handler with an effect in the database, which counts its deliveries too."""

    def __init__(self, bills: Database) -> None:
        self.deliveries: list[str] = []
        self._bill = idempotent(connect=bills.connect, group="billing")(_bill)

    def __call__(self, message: MessageExt) -> None:
        self.deliveries.append(message.message_id)
        self._bill(message)


def _bill(message: MessageExt, connection: Any) -> None:
    run(connection, "INSERT INTO bills VALUES (:what)", what=message.text)


def consumer(town: MemoryCluster, handler: Callable[[MessageExt], None], ip: str = "10.0.0.1") -> Consumer:
    world = World(town.network.at(ip), town.clock, Chance(ip))
    made = Consumer("billing", name_servers=NAMESRV, world=world, consume_from_where=FIRST, client_ip=ip)
    made.subscribe("orders", handler)
    return made


async def until(town: MemoryCluster, is_true: Callable[[], bool]) -> None:
    """Virtual time goes on in small steps, and threads get a little real time in each."""
    for _ in range(3000):
        if is_true():
            return
        await town.clock.sleep(0.1)
        time.sleep(0.001)  # noqa: ASYNC251
    raise AssertionError("it never came to that")


class LosesAnswers:
    """A network in which the first receipt of a broker is lost, and the connection with it."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.lost = 0

    async def listen(self, *given: Any) -> Any:
        return await self._network.listen(*given)

    async def resolve(self, host: str) -> str:
        return await self._network.resolve(host)

    async def connect(self, factory: Any, host: str, port: int) -> Any:
        own = factory()
        await self._network.connect(lambda: _Line(own, self), host, port)
        return own


class _Line(asyncio.Protocol):
    def __init__(self, own: asyncio.Protocol, network: LosesAnswers) -> None:
        self._network = network
        self._own = own
        for name in ("connection_lost", "pause_writing", "resume_writing", "eof_received"):
            setattr(self, name, getattr(own, name))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._own.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if b"queueOffset" in data and not self._network.lost:
            self._network.lost += 1
            self._transport.abort()  # type: ignore[attr-defined]
        else:
            self._own.data_received(data)


def test_a_send_that_is_tried_again_has_one_effect(bills: Database) -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            line = LosesAnswers(town.network)
            world = World(line, town.clock, Chance(3))
            async with Producer("makers", name_servers=NAMESRV, world=world) as one:
                receipt = await one.send(Message("orders", b"7"))
            copies = [message.message_id for message in await stored(town, "orders")]
            assert (line.lost, copies) == (1, [receipt.message_id] * 2), "no duplicate was produced"
            billing = Billing(bills)
            async with consumer(town, billing):
                await until(town, lambda: len(billing.deliveries) == 2)
                await until(town, lambda: bills.count("bills") == 1)
            assert billing.deliveries == copies

    run_virtual(scene())
    assert bills.run("SELECT what FROM bills") == [("7",)]


def test_a_delivery_that_is_tried_again_has_one_effect(bills: Database) -> None:
    """The work is committed, and then the consumer hears of a failure all the same."""
    billing = Billing(bills)

    def unlucky(message: MessageExt) -> None:
        billing(message)
        if len(billing.deliveries) < 3:
            raise ConnectionError("after the commit")

    async def scene() -> None:
        async with cluster() as town, producing(town) as one:
            await town.create_topic("orders", 1)
            await one.send(Message("orders", b"7"))
            async with consumer(town, unlucky):
                await until(town, lambda: len(billing.deliveries) == 3)

    run_virtual(scene())
    assert len(set(billing.deliveries)) == 1
    assert bills.run("SELECT what FROM bills") == [("7",)]


def test_a_queue_that_changes_its_owner_has_each_effect_once(bills: Database) -> None:
    """A member does its work and dies before it commits its offset; another one gets the same messages."""
    dying, living = Billing(bills), Billing(bills)

    async def scene() -> None:
        async with cluster() as town, producing(town) as one:
            await town.create_topic("orders", 1)
            first = consumer(town, dying, "10.0.0.1")
            await first.start()
            await until(town, lambda: len(first.queues()) == 1)
            for number in range(5):
                await one.send(Message("orders", b"%d" % number))
            for _ in range(2000):  # in real time: its offsets would be committed after 5 virtual seconds
                if bills.count("bills") == 5:
                    break
                await asyncio.sleep(0)
                time.sleep(0.001)  # noqa: ASYNC251
            town.network.cut("10.0.0.1", "127.0.0.1")
            town.network.break_connections("10.0.0.1")
            async with consumer(town, living, "10.0.0.2"):
                await until(town, lambda: bool(living.deliveries))  # closing waits for the rest
            await first.close()

    run_virtual(scene())
    assert set(living.deliveries) <= set(dying.deliveries)  # its last pull may have told of the first ones
    assert sorted(bills.run("SELECT what FROM bills")) == [(str(number),) for number in range(5)]


def test_from_outbox_to_bill_through_a_broker_with_one_effect_for_each_order(bills: Database) -> None:
    """A relay that dies after its sends, and a second one that sends the same again."""
    connection = bills.connect()
    ids = [outbox.send(connection, Message("orders", b"%d" % number), by="shop") for number in range(4)]
    connection.commit()
    connection.close()
    billing = Billing(bills)

    async def scene() -> None:
        async with cluster() as town, producing(town) as one:
            await town.create_topic("orders", 4)
            await outbox.Relay(Forgetful(one), bills.connect).run_once()
            bills.run("UPDATE turbopump_outbox SET taken_until = 0, next_at = 0")
            await outbox.Relay(one, bills.connect).run_once()
            copies = await stored(town, "orders")
            assert [message.message_id for message in copies] == [ids[0], *ids], "in one queue, in order"
            async with consumer(town, billing):
                await until(town, lambda: len(billing.deliveries) == 5)
                await town.clock.sleep(1)

    run_virtual(scene())
    assert sorted(bills.run("SELECT what FROM bills")) == [(str(number),) for number in range(4)]
    assert bills.count("turbopump_outbox") == 0


class Forgetful:
    """A producer whose sends succeed and are reported as failures."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    async def send(self, message: Message, *, by: object = None) -> None:
        await self._producer.send(message, by=by)
        raise TimeoutError("no answer")
