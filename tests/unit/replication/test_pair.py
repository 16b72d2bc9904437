"""A master and its slave, whole brokers in virtual time."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import FILE_SIZE, pair

from turbopump.protocol.bodies import ReplicaStatus
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.replication.slave import SlaveState
from turbopump.runtime.network import ProtocolFactory
from turbopump.testing.network import Host

MASTER = "brokerRole=ASYNC_MASTER\n"
SYNC = "brokerRole=SYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"


@virtual
async def test_a_slave_that_starts_empty_gets_the_whole_log() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        for number in range(100):
            answer = await world.send(master, b"%03d" % number + bytes(30_000))
            assert answer.code == ResponseCode.SUCCESS
        assert master.store.log.end > 2 * FILE_SIZE
        await slave.start()
        await world.copied(master, slave)
        assert slave.log == master.log
        assert [body[:3] for body in await world.pull(slave)][:3] == [b"000", b"001", b"002"]


@virtual
async def test_an_empty_slave_is_complete_although_parts_come_before_it_knows_that_it_is_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine a task that waits for a connection may run after its first bytes have come."""
    connect = Host.connect

    async def late(self: Host, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        protocol = await connect(self, factory, host, port)
        await asyncio.sleep(0.5)
        return protocol

    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await world.send(master, b"first")
        monkeypatch.setattr(Host, "connect", late)
        await slave.start()
        await world.copied(master, slave)
        await world.until(lambda: slave.slave.state is SlaveState.FOLLOWING)
        answer = await world.call(slave, RequestCode.REPLICA_STATUS)
        assert ReplicaStatus.decode(answer.body).missing == ""


@virtual
async def test_a_sync_master_answers_when_its_slave_has_the_message() -> None:
    async with pair() as world:
        master, slave = world.node(SYNC), world.node(SLAVE)
        await master.start()
        answer = await world.send(master, b"alone")
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert (answer.ext or {})["replicas"] == "1"
        await slave.start()
        await world.copied(master, slave)
        answer = await world.send(master, b"both")
        assert answer.code == ResponseCode.SUCCESS
        assert (answer.ext or {})["replicas"] == "2"
        await slave.stop()
        answer = await world.send(master, b"alone again")
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE


@virtual
async def test_a_slave_refuses_sends() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await slave.start()
        answer = await world.send(slave, b"no")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


@virtual
async def test_of_two_slaves_with_one_id_the_second_waits_until_the_first_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They replaced each other's connection every second, without end."""
    async with pair() as world:
        master, first, second = world.node(MASTER), world.node(SLAVE), world.node(SLAVE)
        await master.start()
        await first.start()
        await world.until(lambda: first.slave.state is SlaveState.FOLLOWING)
        await second.start()
        await asyncio.sleep(60)
        assert first.slave.state is SlaveState.FOLLOWING
        assert second.slave.state is not SlaveState.FOLLOWING
        text = f"brokerId=1 is that of the slave at {first.ip}"
        assert 1 <= caplog.text.count(text) <= 10
        await first.kill()
        await world.until(lambda: second.slave.state is SlaveState.FOLLOWING)
