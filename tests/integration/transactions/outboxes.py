"""What holds for the outbox with every database and every kind of connection."""

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.integration.transactions.databases import AsyncDatabase, Database, command_async, run, run_async

from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.message import CopiedMessage, Message
from turbopump.protocol import properties
from turbopump.transactions import outbox
from turbopump.transactions.connections import close
from turbopump.transactions.database import TransactionCommand
from turbopump.transactions.relay import TABLE


class Broker:
    """An async producer that remembers what was stored, in order. `refuses` are bodies it will not take."""

    def __init__(self, refuses: set[bytes] | None = None) -> None:
        self.stored: list[tuple[bytes, str | None, str]] = []
        self.refuses = refuses or set()
        self.pause_s = 0.0
        self.asked = asyncio.Event()

    async def send(self, message: Message, *, by: object = None) -> str:
        self.asked.set()
        await asyncio.sleep(self.pause_s)
        if message.body in self.refuses:
            raise ConnectionError("no broker answers")
        self.stored.append((message.body, by, message.properties[properties.UNIQUE_KEY]))  # type: ignore[arg-type]
        return "receipt"

    @property
    def bodies(self) -> list[bytes]:
        return [body for body, _, _ in self.stored]


class BlockingBroker(Broker):
    def send(self, message: Message, *, by: object = None) -> str:  # type: ignore[override]
        return asyncio.run(super().send(message, by=by))


@pytest.fixture
def broker() -> Broker:
    return Broker()


def begun(database: Database) -> Any:
    """A connection in a transaction."""
    connection = database.connect()
    if "without transactions" in database.kind or "autocommit" in database.kind:
        run(connection, "BEGIN")
    return connection


def write(database: Database, *bodies: bytes, by: str | None = None) -> list[str]:
    connection = begun(database)
    ids = [outbox.send(connection, Message("orders", body), by=by) for body in bodies]
    connection.commit()
    connection.close()
    return ids


def create_outbox(database: Database) -> None:
    connection = database.connect()
    outbox.create_table(connection)
    connection.close()


def left(database: Database) -> list[outbox.Pending]:
    connection = database.connect()
    try:
        return outbox.pending(connection)
    finally:
        connection.close()


def relay(database: Database, broker: Broker, rounds: int = 1, **more: Any) -> int:
    one = outbox.Relay(broker, database.connect, **more)

    async def go() -> int:
        return sum([await one.run_once() for _ in range(rounds)])

    return asyncio.run(go())


def hurry(database: Database) -> int:
    connection = database.connect()
    try:
        return outbox.retry_now(connection)
    finally:
        connection.close()


def test_a_message_is_sent_after_its_transaction_is_committed(database: Database, broker: Broker) -> None:
    create_outbox(database)
    database.run("CREATE TABLE orders (id INTEGER)")
    connection = begun(database)
    run(connection, "INSERT INTO orders VALUES (7)")
    given = Message("orders", b"\x00paid\xff", "paid", ["A-1", "é"], {"shop": "ü"}, 3, flag=9)
    message_id = outbox.send(connection, given, by="A-1")
    assert relay_elsewhere(database, broker) == 0
    connection.commit()
    connection.close()

    (waiting,) = left(database)
    assert (waiting.message_id, waiting.by, waiting.attempts) == (message_id, "A-1", 0)
    assert waiting.message == outbox.stamped(waiting.message)
    assert waiting.message.property_map() == {**given.property_map(), properties.UNIQUE_KEY: message_id}
    assert (waiting.message.body, waiting.message.flag) == (given.body, 9)
    assert relay(database, broker) == 1
    assert broker.stored == [(b"\x00paid\xff", "A-1", message_id)]
    assert left(database) == []
    assert database.count("orders") == 1


def relay_elsewhere(database: Database, broker: Broker) -> int:
    """A look while the writer's transaction is open; SQLite's writer holds the lock, so there it waits."""
    return 0 if database.is_sqlite else relay(database, broker)


def test_a_transaction_that_is_rolled_back_sends_nothing(database: Database, broker: Broker) -> None:
    connection = begun(database)
    outbox.send(connection, Message("orders", b"never"))
    connection.rollback()
    connection.close()
    assert relay(database, broker) == 0
    assert broker.stored == []


def test_order_is_kept_for_each_key(database: Database) -> None:
    for number in range(12):
        write(database, b"%d" % number, by="even" if number % 2 == 0 else "odd")
    broker = Broker()
    assert relay(database, broker, rounds=4, batch=5) == 12
    assert [body for body, by, _ in broker.stored if by == "even"] == [b"0", b"2", b"4", b"6", b"8", b"10"]
    assert [body for body, by, _ in broker.stored if by == "odd"] == [b"1", b"3", b"5", b"7", b"9", b"11"]


def test_a_failed_send_is_kept_and_tried_again_and_holds_back_its_key_alone(database: Database) -> None:
    ids = write(database, b"1", b"2", by="A")
    write(database, b"3")
    broker = Broker(refuses={b"1"})
    relay(database, broker, rounds=3)
    assert broker.bodies == [b"3"]
    first, second = left(database)
    assert (first.attempts, first.last_error) == (1, "ConnectionError: no broker answers")
    assert first.next_try_ms > first.created_ms
    assert (second.attempts, second.last_error) == (0, "")
    hurry(database)
    relay(database, broker)
    assert left(database)[0].attempts == 2

    broker.refuses = set()
    assert hurry(database) == 1
    relay(database, broker)
    assert broker.bodies == [b"3", b"1", b"2"]
    assert [key for _, _, key in broker.stored[1:]] == ids
    assert left(database) == []


def test_relays_at_the_same_time_send_each_message_once_and_in_order(database: Database) -> None:
    for number in range(60):
        write(database, b"%02d" % number, by=f"key {number % 3}")
    brokers = [Broker() for _ in range(3)]
    for one in brokers:
        one.pause_s = 0.001
    stored: list[tuple[bytes, str | None, str]] = []
    for one in brokers:
        one.stored = stored

    def work(one: Broker) -> None:
        for _ in range(100):
            if not left(database):
                return
            relay(database, one, batch=4)

    threads = [threading.Thread(target=work, args=(one,)) for one in brokers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(body for body, _, _ in stored) == [b"%02d" % number for number in range(60)]
    for key in ("key 0", "key 1", "key 2"):
        of_key = [body for body, by, _ in stored if by == key]
        assert of_key == sorted(of_key)


def test_what_a_dead_relay_had_taken_is_sent_when_its_lease_is_over(database: Database) -> None:
    write(database, b"1", by="A")
    write(database, b"2", by="A")
    stuck = Broker()
    stuck.pause_s = 60

    async def die() -> None:
        one = outbox.Relay(stuck, database.connect, lease=3600)
        one._settle = lambda *_: asyncio.sleep(0)  # type: ignore[method-assign]
        task = asyncio.create_task(one.run_once())
        await stuck.asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(die())
    broker = Broker()
    write(database, b"3", by="A")
    assert relay(database, broker) == 0
    end_leases(database)
    run_until_sent(database, broker, 3)
    assert broker.bodies == [b"1", b"2", b"3"]


def end_leases(database: Database) -> None:
    """Lets the leases of all relays end just now, as if their time had passed."""
    connection = begun(database)
    now_ms = time.time_ns() // 1_000_000
    run(connection, f"UPDATE {TABLE} SET taken_until = {now_ms} WHERE taken_until > {now_ms}")
    connection.commit()
    connection.close()


def run_until_sent(database: Database, broker: Broker, count: int) -> None:
    async def go() -> None:
        one = outbox.Relay(broker, database.connect, interval=0.05)
        running = asyncio.create_task(one.run())
        for _ in range(2000):
            if len(broker.stored) >= count:
                break
            await asyncio.sleep(0.01)
        one.close()
        await asyncio.wait_for(running, 10)

    asyncio.run(go())


def test_a_relay_that_is_cancelled_lets_go_of_what_it_had_taken(database: Database) -> None:
    write(database, b"1")
    stuck = Broker()
    stuck.pause_s = 60

    async def cancel() -> None:
        task = asyncio.create_task(outbox.Relay(stuck, database.connect).run())
        await stuck.asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.2)

    asyncio.run(cancel())
    broker = Broker()
    assert relay(database, broker) == 1
    assert broker.bodies == [b"1"]


def test_a_relay_in_a_thread_serves_a_blocking_producer(database: Database) -> None:
    broker = BlockingBroker()
    arrived = threading.Event()
    stored = broker.send

    class Signals(BlockingBroker):
        def send(self, message: Message, *, by: object = None) -> str:
            receipt = stored(message, by=by)
            arrived.set()
            return receipt

    with outbox.RelayThread(Signals(), database.connect, interval=30) as one:
        write(database, b"1")
        one.wake()
        assert arrived.wait(10)
    assert broker.bodies == [b"1"]
    assert left(database) == []


def test_a_direct_send_that_fails_is_kept_with_its_id_and_its_error(database: Database) -> None:
    broker = BlockingBroker(refuses={b"1"})
    kept = outbox.send_or_keep(broker, database.connect, Message("orders", b"1"), by="A")
    assert isinstance(kept, outbox.Kept)
    assert isinstance(kept.failure, ConnectionError)
    later = outbox.send_or_keep(broker, database.connect, Message("orders", b"2"), by="A")
    assert (type(later), later.failure) == (outbox.Kept, None)
    assert outbox.send_or_keep(broker, database.connect, Message("orders", b"3"), by="B") == "receipt"
    first, second = left(database)
    assert (first.message_id, first.attempts) == (kept.message_id, 1)
    assert "no broker answers" in first.last_error
    assert (second.message_id, second.attempts) == (later.message_id, 0)

    broker.refuses = set()
    hurry(database)
    relay(database, broker)
    assert broker.bodies == [b"3", b"1", b"2"]
    assert broker.stored[1][2] == kept.message_id


def test_keeping_by_hand_commits_by_itself(database: Database) -> None:
    connection = database.connect()
    message = outbox.stamped(Message("orders", b"1"))
    assert outbox.keep(connection, message) == message.properties[properties.UNIQUE_KEY]
    connection.close()
    assert len(left(database)) == 1


def test_a_message_is_dropped_only_on_demand(database: Database, broker: Broker) -> None:
    write(database, b"1", b"2")
    connection = database.connect()
    assert outbox.discard(connection, left(database)[0].id)
    assert not outbox.discard(connection, 999)
    connection.close()
    relay(database, broker)
    assert broker.bodies == [b"2"]


def test_a_producer_that_is_closed_ends_the_relay_and_keeps_the_messages(database: Database) -> None:
    write(database, b"1")

    class Closed(Broker):
        async def send(self, message: Message, *, by: object = None) -> str:
            raise NotRunning("this producer is closed")

    with pytest.raises(NotRunning):
        asyncio.run(asyncio.wait_for(outbox.Relay(Closed(), database.connect).run(), 10))
    assert left(database)[0].attempts == 0
    assert relay(database, Broker()) == 1


def test_what_could_never_be_sent_is_refused_at_once(database: Database) -> None:
    connection = begun(database)
    for message, text in (
        (Message("orders", b""), "the body must not be empty"),
        (CopiedMessage("", b"x"), "the topic must not be empty"),
        (Message("orders", bytes(5 << 20)), "max_message_size"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            outbox.send(connection, message)
    with pytest.raises(InvalidArgument, match="by must be text in the outbox"):
        outbox.send(connection, Message("orders", b"x"), by=7)  # type: ignore[call-overload]
    connection.rollback()
    connection.close()


def test_async_connections_write_and_relay_too(async_database: AsyncDatabase) -> None:
    broker = Broker()

    async def go() -> None:
        connection = async_database.connect()
        if hasattr(connection, "__await__"):
            connection = await connection
        await run_async(connection, "CREATE TABLE orders (id INTEGER)")
        for body, end in ((b"1", TransactionCommand.ROLLBACK), (b"2", TransactionCommand.COMMIT)):
            await command_async(connection, TransactionCommand.BEGIN)
            await outbox.send(connection, Message("orders", body), by="A")
            await command_async(connection, end)
        assert [one.message.body for one in await outbox.pending(connection)] == [b"2"]
        await close(connection)
        one = outbox.Relay(broker, async_database.connect)
        assert [await one.run_once() for _ in range(2)] == [1, 0]

        class Down(Broker):
            async def send(self, message: Message, *, by: object = None) -> str:
                raise ConnectionError("no broker answers")

        kept = await outbox.send_or_keep(Down(), async_database.connect, Message("orders", b"3"))
        assert isinstance(kept, outbox.Kept)

    asyncio.run(go())
    assert broker.bodies == [b"2"]
    assert [one.message.body for one in left(async_database.blocking)] == [b"3"]
