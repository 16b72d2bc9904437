"""Name servers on real sockets: several in one process, a port that is taken, a client that finds its way."""

import asyncio
import urllib.request
from pathlib import Path

import pytest
from tests.integration.namesrv.registration_kit import broker_fields, registration

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.protocol.bodies import TopicRouteData
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import SystemNetwork


def name_server(**settings: object) -> NameServer:
    config = NamesrvConfig(bind_address="127.0.0.1", **{"listen_port": 0, **settings})  # type: ignore[arg-type]
    return NameServer(config, SystemNetwork(), SystemClock(), SystemDisk())


def test_several_name_servers_in_one_process_and_a_broker_at_each(tmp_path: Path) -> None:
    async def main() -> None:
        servers = [name_server(kv_config_path=str(tmp_path / f"{number}.json")) for number in range(3)]
        addresses = [f"127.0.0.1:{await server.start()}" for server in servers]
        broker, client = Client(SystemNetwork(), SystemClock()), Client(SystemNetwork(), SystemClock())
        for address in addresses[:2]:
            assert (await broker.call(address, registration("T", "U"))).code == 0
        answers = [await client.call(address, Command(105, ext={"topic": "T"})) for address in addresses]
        assert [answer.code for answer in answers] == [0, 0, 17]
        assert TopicRouteData.decode(answers[0].body).brokerDatas[0].brokerAddrs == {0: "10.0.0.5:10911"}
        await broker.call(addresses[0], Command(104, ext=broker_fields()))
        await broker.close()
        for address in addresses[:2]:  # one unregistered, the other lost its connection: both forget at once
            assert (await client.call(address, Command(105, ext={"topic": "T"}))).code == 17
        await client.close()
        for server in servers:
            await server.stop()

    asyncio.run(main())


def test_a_taken_port_is_an_error_and_leaves_nothing_running() -> None:
    async def main() -> None:
        first = name_server()
        port = await first.start()
        with pytest.raises(OSError, match="in use"):
            await name_server(listen_port=port).start()
        await first.stop()
        second = name_server(listen_port=port)
        assert await second.start() == port
        await second.stop()

    asyncio.run(main())


def test_the_address_list_is_what_java_clients_would_fetch() -> None:
    async def main() -> None:
        server = name_server(http_port=0, name_servers="127.0.0.1:1;127.0.0.1:2")
        await server.start()
        url = f"http://127.0.0.1:{server.http_port}/rocketmq/nsaddr"

        def fetch(url: str) -> tuple[int, bytes]:
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.status, response.read()

        for asked in (url, f"{url}-unit1?nofix=1"):
            assert await asyncio.to_thread(fetch, asked) == (200, b"127.0.0.1:1;127.0.0.1:2")
        await server.stop()

    asyncio.run(main())
