"""A name server on a disk that hangs: whoever asks for nothing that has to be kept is answered."""

import asyncio
from pathlib import Path

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork
from turbopump.testing.faulty import FaultyDisk


def test_a_sync_that_hangs_holds_up_no_other_client(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        config = NamesrvConfig(
            listen_port=0,
            bind_address="127.0.0.1",
            kv_config_path=str(tmp_path / "kvConfig.json"),
            config_store_path=str(tmp_path / "namesrv.properties"),
        )
        server = NameServer(config, SystemNetwork(), SystemClock(), disk, 1, "127.0.0.1")
        address = f"127.0.0.1:{await server.start()}"
        clients = [Client(SystemNetwork(), SystemClock()) for _ in range(2)]
        loop = asyncio.get_running_loop()

        async def ask(client: Client, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> int:
            return (await client.call(address, Command(code, ext=ext, body=body), 20)).code

        value = {"namespace": "N", "key": "k", "value": "v"}
        changes = (
            (RequestCode.PUT_KV_CONFIG, value, b""),
            (RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\n"),
            (RequestCode.DELETE_KV_CONFIG, {"namespace": "N", "key": "k"}, b""),
        )
        for code, ext, body in changes:
            disk.hangs_s = 1.5
            change = asyncio.create_task(ask(clients[0], code, ext, body))
            answers = 0
            while not change.done():
                began = loop.time()
                assert await ask(clients[1], RequestCode.GET_BROKER_CLUSTER_INFO) == 0
                assert loop.time() - began < 0.7, f"held up by request {code}"
                answers += 1
                await asyncio.sleep(0.02)
            assert await change == 0
            assert answers > 3
        for client in clients:
            await client.close()
        await server.stop()

    asyncio.run(main())
