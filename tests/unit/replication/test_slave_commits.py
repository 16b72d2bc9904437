"""Offsets committed at a slave while its master is away: served there, and brought to the master."""

import asyncio
from collections.abc import Callable

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import Node, Pair, pair
from tests.unit.replication.reading_kit import MASTER, SLAVE, commit, committed, kill, until

from turbopump.broker.replicas.slave_commits import FILE, SlaveCommits
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.remoting.client import Client
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.runtime.chance import Chance
from turbopump.store.config_files import ConfigFiles
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork

SAVED_S = 6.0  # offsets are saved every five seconds


async def send_some(world: Pair, master: Node, count: int) -> None:
    for number in range(count):
        assert (await world.send(master, b"%d" % number)).code == 0


async def follows(world: Pair, master: Node, slave: Node) -> None:
    await world.copied(master, slave)
    await asyncio.sleep(10)  # until the slave has found its master, and brought what it has


async def brought(world: Pair, master: Node, offset: int) -> None:
    """Waits until the master has this offset, and not longer: it has not saved it yet."""
    while await committed(world, master) != offset:  # noqa: ASYNC110 - there is no event at a broker
        await asyncio.sleep(0.01)


async def a_pair(world: Pair, messages: int = 10, offset: int = 3) -> tuple[Node, Node]:
    """A master and a slave with these messages; the group has committed this offset at the master."""
    master, slave = world.node(MASTER), world.node(SLAVE)
    await master.start()
    await slave.start()
    await send_some(world, master, messages)
    assert await commit(world, master, offset) == 0
    await asyncio.sleep(SAVED_S)
    await world.copied(master, slave)
    return master, slave


@virtual
async def test_a_slave_serves_offsets_while_the_master_is_away_and_brings_them_when_it_is_back() -> None:
    async with pair() as world:
        master, slave = await a_pair(world)
        assert await committed(world, slave) == 3
        await kill(world, master)
        assert await committed(world, slave) == 3
        assert await commit(world, slave, 7) == 0
        assert await committed(world, slave) == 7
        await master.start()
        assert await committed(world, master) == 3
        await follows(world, master, slave)
        assert await committed(world, master) == 7
        assert await committed(world, slave) == 7
        await asyncio.sleep(SAVED_S)
        await kill(world, master)
        await master.start()
        assert await committed(world, master) == 7


@virtual
async def test_what_a_master_took_and_did_not_save_before_it_died_is_brought_again() -> None:
    async with pair() as world:
        master, slave = await a_pair(world)
        await kill(world, master)
        assert await commit(world, slave, 7) == 0
        await master.start()
        await brought(world, master, 7)
        await kill(world, master)
        await master.start()
        assert await committed(world, master) == 3, "it had not saved its offsets"
        await follows(world, master, slave)
        assert await committed(world, master) == 7


@virtual
async def test_an_offset_that_was_reset_after_it_was_brought_stays_reset() -> None:
    async with pair() as world:
        master, slave = await a_pair(world)
        await kill(world, master)
        assert await commit(world, slave, 7) == 0
        await master.start()
        await brought(world, master, 7)
        await asyncio.sleep(2)
        assert await commit(world, master, 4) == 0
        await asyncio.sleep(SAVED_S)
        await kill(world, master)
        await master.start()
        await follows(world, master, slave)
        assert await committed(world, master) == 4


@virtual
async def test_a_newer_offset_of_the_master_wins() -> None:
    async with pair() as world:
        master, slave = await a_pair(world)
        world.network.cut(master.ip, slave.ip)
        assert await commit(world, master, 9) == 0
        await asyncio.sleep(SAVED_S)
        await kill(world, master)
        world.network.join(master.ip, slave.ip)
        assert await commit(world, slave, 7) == 0
        await master.start()
        await follows(world, master, slave)
        assert await committed(world, master) == 9
        assert await committed(world, slave) == 9


@virtual
async def test_what_a_slave_has_not_copied_is_not_committed_for_it() -> None:
    async with pair() as world:
        master, slave = await a_pair(world)
        world.network.cut(master.ip, slave.ip)
        await send_some(world, master, 15)
        await kill(world, master)
        world.network.join(master.ip, slave.ip)
        # A consumer that has read all 25 from the master.
        assert await commit(world, slave, 25) == 0
        assert await committed(world, slave) == 25
        await master.start()
        await follows(world, master, slave)
        assert await committed(world, master) == 10


@virtual
async def test_commits_survive_a_restart_of_the_slave() -> None:
    async with pair() as world:
        master, slave = await a_pair(world)
        await kill(world, master)
        assert await commit(world, slave, 7) == 0
        await asyncio.sleep(SAVED_S)
        await kill(world, slave)
        await slave.start()
        assert await committed(world, slave) == 7
        await master.start()
        await follows(world, master, slave)
        assert await committed(world, master) == 7


@virtual
async def test_a_commit_beside_the_master_is_brought_to_it_soon() -> None:
    async with pair() as world:
        master, slave = await a_pair(world)
        assert await commit(world, slave, 7) == 0
        await asyncio.sleep(2)
        assert await committed(world, master) == 7
        # A late and older one moves nothing back.
        assert await commit(world, slave, 5) == 0
        await asyncio.sleep(2)
        assert await committed(world, master) == 7


@virtual
async def test_a_slave_that_becomes_the_master_has_nothing_left_to_bring() -> None:
    async with pair() as world:
        master, slave = await a_pair(world)
        await kill(world, master)
        assert await commit(world, slave, 7) == 0
        await slave.stop()
        await slave.start(MASTER)
        assert await committed(world, slave) == 7
        assert slave.disk.read(f"/store/config/{FILE}") == b"[]\n"


# with a master of Apache's, which stores whatever it is told


class ApacheMaster:
    """Answers queries and commits of offsets as Apache's brokers do."""

    def __init__(self, network: MemoryNetwork, clock: VirtualClock) -> None:
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.updates = 0
        self.trouble: int | None = None
        routes: dict[int, Route[object]] = {
            RequestCode.QUERY_CONSUMER_OFFSET: Route(QueryConsumerOffsetRequest, self.query),  # type: ignore[dict-item]
            RequestCode.UPDATE_CONSUMER_OFFSET: Route(UpdateConsumerOffsetRequest, self.update),  # type: ignore[dict-item]
        }
        self.server = Server(Router(routes), network, clock)

    def query(self, request: Request[QueryConsumerOffsetRequest]) -> Answer:
        header = request.header
        if self.trouble is not None:
            return Answer(code=self.trouble, remark="busy")
        offset = self.offsets.get((header.consumerGroup, header.topic, header.queueId))
        if offset is None:
            return Answer(code=ResponseCode.QUERY_NOT_FOUND, remark="Not found")
        return Answer(OffsetResponse(offset))

    def update(self, request: Request[UpdateConsumerOffsetRequest]) -> Answer:
        header = request.header
        assert header.queueId is not None
        assert header.commitOffset is not None
        self.offsets[header.consumerGroup, header.topic, header.queueId] = header.commitOffset
        self.updates += 1
        return Answer()


class Scene:
    """A slave's commits beside a played master."""

    def __init__(self, end_of: Callable[[str, int], int] = lambda topic, queue_id: 100) -> None:
        self.clock = VirtualClock()
        self.network = MemoryNetwork()
        self.master = ApacheMaster(self.network, self.clock)
        self.client = Client(self.network, self.clock)
        self.disk = SimulatedDisk(Chance(1), self.clock)
        self.end_of = end_of
        self.commits = self.load()

    def load(self) -> SlaveCommits:
        files, workers = ConfigFiles("/config", self.disk), SimulatedWorkers(self.disk)
        return SlaveCommits(files, workers, self.client, self.clock, self.end_of)

    async def __aenter__(self) -> "Scene":
        port = await self.master.server.start("127.0.0.1", 10911)
        self.address = f"127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.commits.close()
        await self.client.close()
        await self.master.server.stop()


@virtual
async def test_an_apache_master_gets_what_it_lacks_and_keeps_what_is_newer() -> None:
    async with Scene() as scene:
        scene.master.offsets = {("G", "T", 0): 5, ("G", "T", 1): 50}
        for queue_id in range(3):
            scene.commits.committed("G", "T", queue_id, 20)
        scene.commits.follow(scene.address)
        await until(lambda: not scene.commits.pending)
        assert scene.master.offsets == {("G", "T", 0): 20, ("G", "T", 1): 50, ("G", "T", 2): 20}
        assert scene.master.updates == 2


@virtual
async def test_nothing_is_committed_beyond_the_queue() -> None:
    async with Scene(lambda topic, queue_id: 8) as scene:
        scene.commits.committed("G", "T", 0, 20)
        scene.commits.follow(scene.address)
        await until(lambda: not scene.commits.pending)
        assert scene.master.offsets == {("G", "T", 0): 8}


@virtual
async def test_a_master_that_cannot_answer_is_asked_again() -> None:
    async with Scene() as scene:
        scene.master.trouble = ResponseCode.SYSTEM_BUSY
        scene.commits.committed("G", "T", 0, 20)
        scene.commits.follow(scene.address)
        await asyncio.sleep(5)
        assert scene.commits.pending == {("G", "T", 0): 20}
        scene.master.trouble = None
        await until(lambda: not scene.commits.pending, within_s=3)
        assert scene.master.offsets == {("G", "T", 0): 20}


@virtual
async def test_without_a_master_commits_wait() -> None:
    async with Scene() as scene:
        scene.commits.committed("G", "T", 0, 20)
        scene.commits.follow(None)
        await asyncio.sleep(60)
        assert scene.master.updates == 0
        assert scene.load().pending == {("G", "T", 0): 20}


def test_a_damaged_file_is_no_reason_not_to_start(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def main() -> None:
        async with Scene() as scene:
            scene.disk.make_dirs("/config")
            scene.disk.write(f"/config/{FILE}", b'[["G"]]', sync=True)
            assert scene.load().pending == {}

    main()
    assert f"/config/{FILE} is damaged" in caplog.text
