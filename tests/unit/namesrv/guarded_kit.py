"""A name server with access control in memory, for the tests of several parts."""

from typing import Any

from tests.unit.guard.kit import SETTINGS

from turbopump.auth.signature import Credentials
from turbopump.namesrv.config import NamesrvConfig, configure
from turbopump.namesrv.server import NameServer
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork

IP, TOOL = "10.0.0.9", "10.0.0.8"
CONFIG, _ = configure(
    NamesrvConfig(listen_port=9876, bind_address=IP, kv_config_path="/data/kvConfig.json"),
    "".join(f"{key}={text}\n" for key, text in SETTINGS.items()),
)


class GuardedNameServer:
    """A name server in memory, and a tool that asks it."""

    def __init__(self, config: NamesrvConfig = CONFIG, disk: SimulatedDisk | None = None) -> None:
        self.clock = VirtualClock()
        self.network = MemoryNetwork()
        self.disk = disk or SimulatedDisk(Chance(1), self.clock)
        self.server = NameServer(config, self.network.at(IP), self.clock, self.disk)
        self.client = Client(self.network.at(TOOL), self.clock)

    async def __aenter__(self) -> "GuardedNameServer":
        await self.server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.close()
        await self.server.stop()

    async def ask(
        self, who: Credentials | None, code: int, ext: dict[str, Any] | None = None, body: bytes = b""
    ) -> Command:
        fields = {name: str(value) for name, value in (ext or {}).items()}
        signed = fields if who is None else who.signed(fields, body)
        return await self.client.call(f"{IP}:9876", Command(code, ext=signed or None, body=body), 10)
