"""The figures that the page of a broker shows."""

import asyncio

from tests.unit.broker_group.kit import Group
from tests.unit.replication.kit import Node

PORT = 5557
PAGE = f"metricsExporterType=PROM\nmetricsPromExporterPort={PORT}\n"


class Reader(asyncio.Protocol):
    """Asks for the page, and has it when the server closes the connection."""

    def __init__(self) -> None:
        self.text = ""
        self.is_read = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self.text += data.decode()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_read.set()


async def figures(world: Group, node: Node) -> dict[str, float]:
    """Returns the samples about the group on the page of a member, by name and own label."""
    reader = await world.network.connect(Reader, node.ip, PORT)
    assert isinstance(reader, Reader)
    await asyncio.wait_for(reader.is_read.wait(), 5)
    found = {}
    for line in reader.text.splitlines():
        if line.startswith("turbopump_raft_"):
            name, _, rest = line.partition("{")
            labels, _, value = rest.rpartition("} ")
            own = [label for label in labels.split(",") if label.startswith(("role=", "member="))]
            found[name.removeprefix("turbopump_raft_") + "".join(own)] = float(value.split()[0])
    return found
