"""Servers of an embedded cluster over real sockets: restarts and kills."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from turbopump.client.admin import Admin
from turbopump.client.message import Message
from turbopump.client.world import World
from turbopump.testing.servers import EmbeddedServers


def with_servers(
    scene: Callable[[EmbeddedServers, Admin], Awaitable[None]], brokers: int = 1, **settings: str
) -> None:
    async def main() -> None:
        servers = EmbeddedServers(brokers, settings, World())
        try:
            await servers.start()
            async with Admin([servers.name_servers]) as admin:
                await scene(servers, admin)
        finally:
            await servers.stop()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_servers_start_in_less_than_a_third_of_a_second() -> None:
    """Of the processor's time: who else is at work on this machine is not to be tested."""
    began = time.process_time()

    async def scene(servers: EmbeddedServers, admin: Admin) -> None:
        assert time.process_time() - began < 0.3

    with_servers(scene)


def test_a_killed_broker_comes_back_with_what_it_had_stored_at_the_same_address() -> None:
    async def scene(servers: EmbeddedServers, admin: Admin) -> None:
        broker = servers.brokers[0]
        address = broker.address
        await admin.producer("senders").send(Message("orders", b"before"))
        await broker.kill()
        assert broker.messages("orders") == []
        await broker.start()
        assert broker.address == address
        assert [message.body for message in broker.messages("orders")] == [b"before"]

    with_servers(scene)


def test_a_killed_broker_says_no_goodbye_but_its_connection_does() -> None:
    async def scene(servers: EmbeddedServers, admin: Admin) -> None:
        await servers.brokers[1].kill()
        for _ in range(500):
            known = [one.name for one in (await admin.clusters.layout()).brokers]
            if known == ["broker-a"]:
                break
            await asyncio.sleep(0.01)
        assert known == ["broker-a"]

    with_servers(scene, brokers=2)


def test_more_messages_than_a_queue_file_has_entries_are_all_found() -> None:
    async def scene(servers: EmbeddedServers, admin: Admin) -> None:
        producer = admin.producer("senders")
        first = await producer.send(Message("orders", b"0"))
        rest = [producer.send(Message("orders", b"%d" % n)) for n in range(1, 200)]
        await asyncio.gather(*rest)
        found = servers.brokers[0].messages("orders")
        assert sorted(int(message.body) for message in found) == list(range(200))
        assert first.offset == 0

    with_servers(scene, mappedFileSizeConsumeQueue="400")
