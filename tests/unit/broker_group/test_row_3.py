"""Row 3 of the known failures: after a restart of all members, messages are found by id and by key."""

import pytest
from tests.kit import virtual
from tests.unit.broker_group.failover import desk_of_leader
from tests.unit.broker_group.kit import group
from tests.unit.replication.kit import BrokerDesk

from turbopump.protocol.codes import RequestCode
from turbopump.protocol.record import decode_all
from turbopump.testing.simulated_files import Survival

COUNT = 30


async def found_by(desk: BrokerDesk, key: str, is_unique: bool) -> list[bytes]:
    ext = {"topic": "T", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    if is_unique:
        ext["_UNIQUE_KEY_QUERY"] = "true"
    answer = await desk.ask(RequestCode.QUERY_MESSAGE, ext)
    return [record.body for record in decode_all(answer.body)] if answer.code == 0 else []


@pytest.mark.parametrize("survival", [Survival.KEPT, Survival.LOST, Survival.RANDOM])
@virtual
async def test_row_3_messages_are_found_by_id_and_key_after_all_brokers_were_killed(
    survival: Survival,
) -> None:
    """apache/rocketmq#7477: found by their offset, not by their message id."""
    async with group("flushDiskType=SYNC_FLUSH\n") as world:
        desk = await desk_of_leader(world)
        for number in range(COUNT):
            pairs = {"UNIQ_KEY": f"{number:032}", "KEYS": f"order{number}"}
            assert (await desk.send("T", b"%d" % number, pairs=pairs)).code == 0
        await world.equal()
        for node in world.nodes:
            await node.kill(survival)
        for node in world.nodes:
            await node.start()
        await world.leader()
        await world.equal()
        for node in world.nodes:
            desk = BrokerDesk(world, node)
            for number in range(COUNT):
                assert await found_by(desk, f"{number:032}", is_unique=True) == [b"%d" % number]
                assert await found_by(desk, f"order{number}", is_unique=False) == [b"%d" % number]
