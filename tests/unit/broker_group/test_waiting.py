"""Every request that waits at a leader is answered when its leadership ends, whatever it waits for."""

import asyncio
import json
from collections.abc import Awaitable

import pytest
from tests.kit import virtual
from tests.unit.broker import producers
from tests.unit.broker_group.failover import desk_of_leader
from tests.unit.broker_group.kit import Group, broker_of, group, member_of
from tests.unit.broker_group.partition_kit import cut_off
from tests.unit.replication.kit import BrokerDesk, Node

from turbopump.protocol.bodies import LockBatchRequestBody, WireQueue
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.headers.replicas import RaftTransferRequest

OK = ResponseCode.SUCCESS
ANSWERED_WITHIN_S = 12.0  # six seconds without followers, and the wait for a majority
PATIENCE_S = 60.0


def pull(desk: BrokerDesk, group: str) -> Awaitable[Command]:
    """Asks for the next message of a queue and waits for it."""
    ext = {
        "consumerGroup": group, "topic": "T", "queueId": 3, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 6,
        "commitOffset": 0, "suspendTimeoutMillis": 45_000, "subscription": "*", "subVersion": 0,
    }  # fmt: skip
    return desk.ask(RequestCode.PULL_MESSAGE, ext, timeout_s=PATIENCE_S)


def topic_change(desk: BrokerDesk) -> Awaitable[Command]:
    ext = {
        "topic": "New", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    return desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext, timeout_s=PATIENCE_S)


def lock(desk: BrokerDesk) -> Awaitable[Command]:
    wish = LockBatchRequestBody(clientId="one", consumerGroup="G", mqSet=[WireQueue("T", "broker-a", 0)])
    return desk.ask(RequestCode.LOCK_BATCH_MQ, body=wish.encode(), timeout_s=PATIENCE_S)


async def lose_members(world: Group, leader: Node) -> None:
    cut_off(world, leader)
    await asyncio.sleep(0.1)


async def transfer(world: Group, leader: Node) -> None:
    header = RaftTransferRequest(member=member_of(world.followers()[0]).group.own_id)
    await world.call(leader, RequestCode.RAFT_TRANSFER, header)


@pytest.mark.parametrize("is_cut_off", [True, False])
@virtual
async def test_everything_that_waits_at_a_leader_is_answered_when_it_leads_no_longer(
    is_cut_off: bool,
) -> None:
    async with group("autoCreateTopicEnable=true\n") as world:
        desk = await desk_of_leader(world)
        leader = await world.leader()
        assert (await desk.send("T", b"first")).code == OK
        half = await producers.prepare(desk, b"half")
        await asyncio.sleep(1)
        await world.equal()
        parked = [asyncio.ensure_future(pull(desk, f"CG{number}")) for number in range(3)]
        await asyncio.sleep(0.1)
        if is_cut_off:
            await lose_members(world, leader)
        commit = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1}
        subscription = json.dumps({"groupName": "CG2", "consumeEnable": True}).encode()
        end = producers.end_fields(half, producers.COMMIT)
        ask = desk.ask
        waiting = {
            "send": ask(RequestCode.SEND_MESSAGE_V2, desk_fields(), b"x", timeout_s=PATIENCE_S),
            "end of a transaction": ask(RequestCode.END_TRANSACTION, end, timeout_s=PATIENCE_S),
            "topic": topic_change(desk),
            "group": ask(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=subscription, timeout_s=PATIENCE_S
            ),
            "lock": lock(desk),
            "commit of an offset": ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit, timeout_s=PATIENCE_S),
            "deletion": ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, timeout_s=PATIENCE_S),
        }
        tasks = {name: asyncio.ensure_future(work) for name, work in waiting.items()}
        tasks |= {f"pull {number}": task for number, task in enumerate(parked)}
        await asyncio.sleep(0)
        if not is_cut_off:
            await transfer(world, leader)
        _, late = await asyncio.wait(tasks.values(), timeout=ANSWERED_WITHIN_S)
        assert not late, [name for name, task in tasks.items() if task in late]
        codes = {name: task.result().code for name, task in tasks.items()}
        if is_cut_off:
            await world.until(lambda: broker_of(leader).config.identity.is_slave)
            # A change right after another one is answered at once (see `table_files`).
            unsure = {"send", "end of a transaction", "topic", "group"}
            assert {name for name in unsure if codes[name] == OK} == set(), codes


def desk_fields() -> dict[str, str]:
    return {
        "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "",
        "j": "0", "k": "false",
    }  # fmt: skip
