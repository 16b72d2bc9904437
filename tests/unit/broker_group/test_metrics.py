"""Metrics of members, read from their pages: role, term and how far followers are."""

import asyncio

from tests.kit import virtual
from tests.unit.broker_group.kit import Group, group, member_of
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


@virtual
async def test_the_pages_of_a_group_show_who_leads_and_who_is_behind() -> None:
    async with group(PAGE) as world:
        leader = await world.leader()
        await world.equal()
        behind, other = world.followers()
        for node in world.running:
            if node is not behind:
                world.network.cut(node.ip, behind.ip)
        for number in range(5):
            assert (await world.send(leader, b"%d" % number)).code == 0
        shown, follower = await figures(world, leader), await figures(world, other)
        assert (shown['rolerole="leader"'], follower['rolerole="follower"']) == (1, 1)
        assert shown["term"] == follower["term"] == member_of(leader).term
        name_of = member_of(behind).group.own_id
        assert shown[f'follower_distance_entriesmember="{name_of}"'] >= 5
        assert shown[f'follower_distance_entriesmember="{member_of(other).group.own_id}"'] == 0
        assert not any(name.startswith("follower_distance") for name in follower)
        assert shown["pending_appends"] == shown["commit_distance_entries"] == 0
        assert shown["elections_total"] >= 1
