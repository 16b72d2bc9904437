"""An Apache slave counts for our master only if its last record is the one that the master has there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import FILE_SIZE, Node, Pair, pair
from tests.unit.replication.played import PlayedBroker, PlayedLog, PlayedSlave

from turbopump.protocol.codes import ResponseCode

SLAVE_IP = "10.0.0.7"
NOT_COMPARED = "gets the log, but does not count: it could not be compared"


@dataclass
class Scene:
    world: Pair
    master: Node
    host: PlayedBroker
    log: PlayedLog

    async def connect(self) -> PlayedSlave:
        slave = await PlayedSlave.connect(self.host, self.log, self.master)
        slave.report()
        return slave

    async def counts(self, within_s: float = 1.0) -> bool:
        """Whether a send finds the slave, after the time that a comparison may take."""
        await asyncio.sleep(within_s)
        return (await self.world.send(self.master, b"x")).code == ResponseCode.SUCCESS

    async def wait(self, slave: PlayedSlave, seconds: float) -> None:
        """Waits while the slave reports every five seconds, as Apache's does."""
        for _ in range(round(seconds / 5)):
            slave.report()
            await asyncio.sleep(5.0)

    def tail(self, size: int) -> bytes:
        """Returns the last bytes of the master's log."""
        return self.master.log[-size:]


@contextlib.asynccontextmanager
async def scene(sends: int = 20, body: int = 1000, registered: bool = True) -> AsyncIterator[Scene]:
    async with pair() as world:
        master = world.node("brokerRole=SYNC_MASTER\n")
        await master.start()
        for number in range(sends):
            await world.send(master, b"number %03d" % number + bytes(body))
        host, log = PlayedBroker(world, SLAVE_IP, 1), PlayedLog()
        await host.serve(log.routes())
        if registered:
            await host.register()
        try:
            yield Scene(world, master, host, log)
        finally:
            await host.stop()


@virtual
async def test_an_empty_slave_is_not_compared_and_gets_the_last_file() -> None:
    async with scene(sends=100, body=30_000) as it:
        assert it.master.store.log.end > 2 * FILE_SIZE
        await it.connect()
        assert await it.counts()
        assert it.log.begin == it.master.store.log.end // FILE_SIZE * FILE_SIZE
        assert it.log.data == it.master.log[it.log.begin :]
        assert it.log.asked == []


@virtual
async def test_a_slave_that_is_a_copy_goes_on_where_it_was() -> None:
    async with scene() as it:
        it.log.data = it.master.log[:-1500]  # its last record is incomplete
        await it.connect()
        assert await it.counts()
        assert it.log.data == it.master.log
        assert len(it.log.asked) == 1
        assert it.log.asked[0] + 1000 < it.master.store.log.end - 1500


@virtual
async def test_a_slave_with_another_record_never_counts(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as it:
        copy = it.master.log
        at = copy.rindex(b"number 017")
        it.log.data = copy[:at] + b"NUMBER" + copy[at + 6 : -1200]
        slave = await it.connect()
        await slave.is_closed.wait()
        assert not await it.counts()
        assert len(it.log.data) == len(copy) - 1200
        assert "it is not a copy" in caplog.text
        assert f"{SLAVE_IP}:10911" in caplog.text


@virtual
async def test_a_slave_without_a_record_there_never_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Its own records are longer or shorter: where the master has a record, it has the middle of one."""
    async with scene() as it:
        it.log.data = bytes(len(it.master.log) - 700)
        slave = await it.connect()
        await slave.is_closed.wait()
        assert not await it.counts()
        assert "it is not a copy" in caplog.text


@virtual
async def test_a_slave_that_is_ahead_never_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Known failure 23: Apache's master takes the report of a slave that is ahead for an acknowledgement."""
    async with scene() as it:
        it.log.data = it.master.log + bytes(100_000)
        slave = await it.connect()
        await slave.is_closed.wait()
        assert not await it.counts()
        assert "beyond this master's end" in caplog.text
        assert "is gone" not in caplog.text  # one line says it


@virtual
async def test_a_slave_ahead_does_not_count_either_once_the_master_has_grown_past_it() -> None:
    async with scene() as it:
        it.log.data = it.master.log + bytes(10_000)
        slave = await it.connect()
        await slave.is_closed.wait()
        for _ in range(20):
            await it.world.send(it.master, bytes(1000))
        assert it.master.store.log.end > it.log.end
        before = it.log.data
        slave = await it.connect()
        await slave.is_closed.wait()
        assert not await it.counts()
        assert it.log.data == before


@virtual
async def test_a_slave_that_ends_at_the_end_of_a_file_is_compared_with_its_last_record() -> None:
    async with scene(sends=60, body=30_000) as it:
        it.log.data = it.master.log[:FILE_SIZE]
        await it.connect()
        assert await it.counts(3.0)
        assert it.log.data == it.master.log
        assert FILE_SIZE - 70_000 < it.log.asked[0] < FILE_SIZE


@virtual
async def test_a_slave_with_the_first_bytes_of_a_file_is_compared_in_the_file_before() -> None:
    async with scene(sends=60, body=30_000) as it:
        it.log.data = it.master.log[: FILE_SIZE + 500]
        await it.connect()
        assert await it.counts(3.0)
        assert it.log.asked[0] < FILE_SIZE
        assert it.log.data == it.master.log


@virtual
async def test_a_slave_that_no_name_server_knows_is_served_and_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Apache's master, and ours before, took its reports for copies."""
    async with scene(registered=False) as it:
        it.log.data = it.master.log[:-1500]
        slave = await it.connect()
        assert not await it.counts(1.0)  # it may register soon
        await it.wait(slave, 60.0)
        assert not await it.counts()
        await asyncio.sleep(1.0)
        assert it.log.data == it.master.log
        assert caplog.text.count(NOT_COMPARED) == 1
        assert f"on host {SLAVE_IP}" in caplog.text
        await it.host.register()
        assert await it.counts(15.0)


@virtual
async def test_a_slave_that_does_not_answer_for_its_record_does_not_count() -> None:
    async with scene() as it:
        it.log.data = it.master.log[:-1500]
        it.log.busy = 20
        await it.connect()  # each send lets it report
        for _ in range(6):
            assert not await it.counts(10.0)
        it.log.busy = 0
        assert await it.counts(15.0)


@virtual
async def test_a_slave_with_other_records_that_was_served_before_it_could_be_compared_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it was sent proves nothing, neither on this connection nor on the next."""
    for reconnects in (False, True):
        async with scene(registered=False) as it:
            copy = it.master.log
            at = copy.rindex(b"number 017")
            it.log.data = copy[:at] + b"NUMBER" + copy[at + 6 : -1200]
            slave = await it.connect()
            await it.wait(slave, 30.0)
            assert it.log.end == it.master.store.log.end
            if reconnects:
                slave.close()
                await asyncio.sleep(1.0)
                slave = await it.connect()
            await it.host.register()
            await slave.is_closed.wait()
            assert not await it.counts()
            assert "it is not a copy" in caplog.text


@virtual
async def test_a_slave_that_registers_after_it_has_connected_is_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene(registered=False) as it:
        it.log.data = it.master.log
        await it.connect()
        await asyncio.sleep(1.0)
        await it.host.register()
        assert await it.counts(3.0)
        assert len(it.log.asked) == 1
        assert NOT_COMPARED not in caplog.text


@virtual
async def test_a_slave_shorter_than_one_record_counts_when_it_has_the_record_of_its_master() -> None:
    async with scene() as it:
        it.log.data = it.master.log[:100]
        await it.connect()
        assert not await it.counts()
        assert await it.counts(15.0)
        assert it.log.data == it.master.log
        assert it.log.asked == [0]


@virtual
async def test_a_slave_with_other_bytes_than_the_first_record_never_counts() -> None:
    async with scene() as it:
        it.log.data = b"\0\0\0\x65" + bytes(96)
        slave = await it.connect()
        await slave.is_closed.wait()
        assert not await it.counts()
        assert it.log.asked == [0]


@virtual
async def test_of_two_slaves_on_one_host_the_one_with_that_end_is_asked() -> None:
    async with scene() as it:
        other = PlayedBroker(it.world, SLAVE_IP, 2, port=10921)
        different = PlayedLog(bytes(5000))
        await other.serve(different.routes())
        await other.register()
        it.log.data = it.master.log[:-1500]
        await it.connect()
        assert await it.counts()
        assert different.asked == []
        await other.stop()


@virtual
async def test_a_slave_that_leaves_while_it_is_compared_never_counts() -> None:
    async with scene(registered=False) as it:
        it.log.data = it.master.log
        slave = await it.connect()
        await asyncio.sleep(1.0)
        slave.close()
        await asyncio.sleep(10.0)
        assert not await it.counts()
