"""What operators see of a pair: status, Apache's HA status, the runtime table, metrics, and promotion."""

import asyncio
import re

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import Node, Pair, pair
from tests.unit.replication.operation_kit import MASTER, SLAVE, followed

from turbopump.broker.config import MasterRole
from turbopump.broker.metrics.replicas import ReplicaFigures
from turbopump.protocol.bodies import HARuntimeInfo, KVTable, ReplicaStatus
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.headers.offsets import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from turbopump.protocol.headers.replicas import ReplicaPromoteRequest

# What 5.5.0 answers to 907, a master with a slave and the slave.
FROM_5_5_MASTER = (
    '{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,"maxOffset":0,'
    '"transferredByteInSecond":0},"haConnectionInfo":[{"addr":"127.0.0.1:60686","diff":0,"inSync":true,'
    '"slaveAckOffset":0,"transferFromWhere":0,"transferredByteInSecond":0}],"inSyncSlaveNums":1,"master":true,'
    '"masterCommitLogMaxOffset":0}'
)
FROM_5_5_SLAVE = (
    '{"haClientRuntimeInfo":{"lastReadTimestamp":1794965470026,"lastWriteTimestamp":1794965469987,'
    '"masterAddr":"127.0.0.1:25224","masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},'
    '"haConnectionInfo":[],"inSyncSlaveNums":0,"master":false,"masterCommitLogMaxOffset":0}'
)


async def status(world: Pair, node: Node) -> ReplicaStatus:
    return ReplicaStatus.decode((await world.call(node, RequestCode.REPLICA_STATUS)).body)


async def figures(world: Pair, node: Node) -> dict[str, str]:
    answer = await world.call(node, RequestCode.GET_BROKER_RUNTIME_INFO)
    return {key: text for key, text in KVTable.decode(answer.body).table.items() if key.startswith("replica")}


@virtual
async def test_master_and_slave_tell_about_their_copies() -> None:
    async with pair() as world:
        master, slave = await followed(world)
        end = master.store.log.end
        mine = await status(world, master)
        assert (mine.role, mine.brokerName, mine.brokerId, mine.end) == ("ASYNC_MASTER", "broker-a", 0, end)
        (row,) = mine.slaves
        assert (row.brokerId, row.received, row.behindBytes, row.behindMs) == (1, end, 0, 0)
        assert row.isInSync
        theirs = await status(world, slave)
        assert (theirs.role, theirs.state, theirs.trouble, theirs.missing) == ("SLAVE", "following", "", "")
        assert (theirs.master, theirs.end, theirs.brokerId) == (master.address, end, 1)
        assert world.clock.now_ms() - theirs.heardMs < 6000
        assert await figures(world, master) == {
            "replicaRole": "ASYNC_MASTER", "replicaSlaves": "1", "replicaSlavesInSync": "1",
            "replicaBehindBytes": "0", "replicaBehindMillis": "0",
        }  # fmt: skip
        shown = await figures(world, slave)
        assert (shown["replicaState"], shown["replicaMaster"]) == ("following", master.address)
        assert "replicaTrouble" not in shown


@virtual
async def test_apaches_ha_status_is_answered_by_both() -> None:
    async with pair() as world:
        master, slave = await followed(world)
        end = master.store.log.end
        of_master = HARuntimeInfo.decode((await world.call(master, RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (of_master.master, of_master.masterCommitLogMaxOffset) == (True, end)
        (row,) = of_master.haConnectionInfo
        assert (row.slaveAckOffset, row.diff, row.inSync, row.transferFromWhere) == (end, 0, True, end)
        assert of_master.inSyncSlaveNums == 1
        of_slave = HARuntimeInfo.decode((await world.call(slave, RequestCode.GET_BROKER_HA_STATUS)).body)
        client = of_slave.haClientRuntimeInfo
        assert (of_slave.master, client.maxOffset) == (False, end)
        assert client.masterAddr == f"{master.ip}:10912"
        assert min(client.lastReadTimestamp, client.lastWriteTimestamp) > world.clock.now_ms() - 6000


@virtual
async def test_the_ha_status_has_the_fields_of_5_5() -> None:
    async with pair() as world:
        for node, recorded in zip(await followed(world), (FROM_5_5_MASTER, FROM_5_5_SLAVE), strict=True):
            body = (await world.call(node, RequestCode.GET_BROKER_HA_STATUS)).body.decode()
            assert re.findall(r'"\w+":', body) == re.findall(r'"\w+":', recorded)


@virtual
async def test_the_distance_of_a_slave_that_takes_nothing_grows() -> None:
    async with pair() as world:
        master, slave = await followed(world)
        assert master.broker is not None
        handler = master.broker._replicas
        assert handler is not None
        world.network.cut(slave.ip, master.ip)
        await world.send(master, b"unseen")
        await asyncio.sleep(8)
        (row,) = handler.slaves()
        assert row.behindBytes == master.store.log.end - row.received > 0
        assert 6000 <= row.behindMs <= 9000
        shown = {family.name: family for family in await ReplicaFigures(handler).families()}
        ((labels, distance),) = shown["turbopump_slave_distance_bytes"].samples
        assert (labels["slave_id"], distance) == ("1", row.behindBytes)
        ((_, late),) = shown["turbopump_slave_distance_milliseconds"].samples
        assert late == row.behindMs
        ((_, count),) = shown["turbopump_slaves"].samples
        assert count == 1


@virtual
async def test_a_slave_shows_its_state_as_a_metric_and_is_well_without_its_master() -> None:
    async with pair() as world:
        master, slave = await followed(world)
        assert slave.broker is not None
        handler = slave.broker._replicas
        assert handler is not None
        (family, *_) = await ReplicaFigures(handler).families()
        assert family.name == "turbopump_replica_state"
        assert [labels["state"] for labels, value in family.samples if value] == ["following"]
        await master.stop()
        await asyncio.sleep(5)
        assert handler.state is not None
        assert handler.state.value == "searching"
        assert slave.broker.trouble is None  # it serves reads


class Promotions:
    """A process that is asked to start its broker again."""

    def __init__(self) -> None:
        self.roles: list[str] = []

    def __call__(self, role: MasterRole) -> None:
        self.roles.append(role)


@virtual
async def test_a_slave_is_promoted_when_its_master_is_gone() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        asked = slave.promote = Promotions()
        await master.start()
        await world.send(master, b"one")
        await slave.start()
        code, header = RequestCode.REPLICA_PROMOTE, ReplicaPromoteRequest()
        early = await world.call(slave, code, header)
        assert early.code == ResponseCode.SYSTEM_ERROR
        assert "it has copied nothing yet" in (early.remark or "")
        await world.copied(master, slave)
        await asyncio.sleep(2)
        refused = await world.call(slave, code, header)
        assert "its master lives" in (refused.remark or "")
        wrong = await world.call(slave, code, ReplicaPromoteRequest(role="SLAVE"))
        assert "role must be ASYNC_MASTER or SYNC_MASTER" in (wrong.remark or "")
        assert "a master already" in ((await world.call(master, code, header)).remark or "")
        await master.stop()
        await asyncio.sleep(2)
        assert asked.roles == []
        assert (await world.call(slave, code, header)).code == ResponseCode.SUCCESS
        assert asked.roles == ["ASYNC_MASTER"]


@virtual
async def test_a_process_that_cannot_restart_its_broker_says_what_to_do() -> None:
    async with pair() as world:
        slave = world.node(SLAVE)
        await slave.start()
        answer = await world.call(slave, RequestCode.REPLICA_PROMOTE, ReplicaPromoteRequest(force=True))
        assert "set brokerRole and brokerId=0 in broker.conf" in (answer.remark or "")


@virtual
async def test_a_sync_master_says_once_that_no_slave_is_in_reach(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "turbopump.broker.replicas.acknowledgement")
    async with pair() as world:
        master, slave = world.node("brokerRole=SYNC_MASTER\n"), world.node(SLAVE)
        await master.start()
        for _ in range(3):
            await world.send(master, b"alone")
        await slave.start()
        await world.copied(master, slave)
        await asyncio.sleep(1)
        for _ in range(3):
            await world.send(master, b"both")
        lines = [one.getMessage() for one in caplog.records if one.name.endswith("replicas.acknowledgement")]
    assert lines == [
        "No slave is in reach (none is connected): sends are answered SLAVE_NOT_AVAILABLE",
        "Slaves are in reach again: sends wait for their copies",
    ]


# --- deviations from Apache, named in docs/compatibility.md -------------------------------------------------


@virtual
async def test_a_connection_that_has_reported_nothing_does_not_count() -> None:
    async with pair() as world:
        master = world.node("brokerRole=SYNC_MASTER\n")
        await master.start()
        await world.network.at("10.0.0.7").connect(asyncio.Protocol, master.ip, 10912)
        await asyncio.sleep(0.5)
        before = world.clock.now_ms()
        answer = await world.send(master, b"alone")
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert world.clock.now_ms() - before < 1000  # it waited for nobody


@virtual
async def test_a_slave_with_records_of_its_own_is_stopped() -> None:
    async with pair() as world:
        master, other = world.node(MASTER), world.node(MASTER)
        await other.start()
        await world.send(other, b"only here")
        await other.stop()
        await master.start()
        for number in range(5):
            await world.send(master, b"there %d" % number)
        await other.start(SLAVE)
        end = other.store.replica.end
        await asyncio.sleep(3)
        found = await status(world, other)
        assert found.state == "stopped"
        assert "holds other records than the master's" in found.trouble
        assert "turbopump replica resync" in found.trouble
        assert (await status(world, master)).slaves == []
        assert other.store.replica.end == end  # nothing was appended
        assert other.broker is not None
        assert other.broker.trouble is not None


@virtual
async def test_offsets_committed_at_a_slave_are_brought_to_its_master() -> None:
    async with pair() as world:
        master, slave = await followed(world)
        await master.stop()
        await asyncio.sleep(3)
        commit = UpdateConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0, commitOffset=7)
        assert (await world.call(slave, RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        await master.start()
        await asyncio.sleep(40)
        question = QueryConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0)
        answer = await world.call(master, RequestCode.QUERY_CONSUMER_OFFSET, question)
        assert (answer.ext or {}).get("offset") == "7"
