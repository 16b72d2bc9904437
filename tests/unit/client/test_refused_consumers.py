"""A consumer that access control refuses says so: at its start, or in the log when some brokers refuse it."""

import asyncio
import logging
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.listening import Reader, consumer
from tests.unit.client.pulling import consumer as pull_consumer

from turbopump.client.instance import instances
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import AccessRefused, NoPermission
from turbopump.remoting.connection import Connection

REMARK = "User:joe has no permission to access Group:readers from 127.0.0.1, no matched policies."


class Gate:
    """A link that refuses the groups' requests while it is closed."""

    def __init__(self, *codes: RequestCode) -> None:
        self.codes = codes

    def check(self, command: Command, connection: Connection) -> None:
        if command.code in self.codes:
            raise NoPermission(REMARK)

    def permits_plain_sends(self, connection: Connection) -> bool:
        return True


async def guarded(town: MemoryCluster, number: int, gate: Gate) -> None:
    """Starts a broker again behind a gate."""
    broker = town.brokers[number]
    await broker.stop()
    broker.before = (gate,)
    await broker.start()
    await town.registered()


@virtual
@pytest.mark.parametrize("make", [lambda town: consumer(town, Reader()), pull_consumer])
async def test_a_consumer_that_all_brokers_refuse_does_not_start(make: Any) -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        gate = Gate(RequestCode.HEART_BEAT)
        await guarded(town, 0, gate)
        with pytest.raises(AccessRefused, match="mqadmin createAcl"):
            await make(town).start()
        assert not instances().named, "and leaves nothing behind"
        gate.codes = ()
        async with make(town):
            pass


@virtual
async def test_a_consumer_that_is_refused_later_logs_one_line_that_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "turbopump.client")
    async with cluster() as town:
        await town.create_topic("orders")
        gate = Gate()
        await guarded(town, 0, gate)
        async with consumer(town, Reader(), heartbeat_broker_interval=5):
            await asyncio.sleep(10)
            assert not caplog.records
            gate.codes = (RequestCode.HEART_BEAT,)
            await asyncio.sleep(25)
            gate.codes = ()
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("turbopump.client")]
    assert lines == [
        f"Heartbeat to broker {town.brokers[0].address} failed: NO_PERMISSION (16): {REMARK}; allow it for "
        "the user: `mqadmin createAcl` or updateAcl, for 4.x updateAclConfig"
    ]
    refused = [one for one in caplog.records if one.name.startswith("turbopump.remoting")]
    assert len(refused) <= 5, "once per interval, not each second"


@virtual
async def test_refused_pulls_are_logged_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "turbopump.client")
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await guarded(town, 0, Gate(RequestCode.PULL_MESSAGE))
        async with consumer(town, Reader()):
            await asyncio.sleep(10)
    lines = [one.getMessage() for one in caplog.records if "orders" in one.getMessage()]
    assert len(lines) == 1
    assert "allow it for the user" in lines[0]
