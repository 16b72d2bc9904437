"""A slave that is started as a master goes on exactly where its log ends: nothing early, twice or lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from tests.kit import virtual
from tests.unit.broker import globals_kit, producers, writers
from tests.unit.broker.timers_kit import now_ms
from tests.unit.replication.kit import BrokerDesk, Node, Pair, pair
from tests.unit.replication.promotion_kit import MASTER, SYNC, bodies, promoted, stored

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.headers.offsets import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from turbopump.replication.slave import SlaveState

OK = ResponseCode.SUCCESS
SLAVE = "brokerRole=SLAVE\nbrokerId=1\nflushDiskType=SYNC_FLUSH\n"

ENDS = ["stopped", "killed", "crashed"]
"""How the slave ended before it is started as a master; a crash of its machine leaves what was synced."""


async def started(world: Pair, master_conf: str = MASTER) -> tuple[Node, Node]:
    master, slave = world.node(master_conf), world.node(SLAVE)
    await master.start()
    await slave.start()
    await world.until(lambda: slave.slave.state is SlaveState.FOLLOWING)
    return master, slave


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("role", [MASTER, SYNC])
@virtual
async def test_everything_that_was_copied_is_there_and_sends_go_on(end: str, role: str) -> None:
    async with pair() as world:
        master, slave = await started(world)
        for number in range(40):
            await world.send(master, b"%02d" % number)
        await world.copied(master, slave)
        before = master.log
        desk = await promoted(world, master, slave, end, role)
        assert slave.log[: len(before)] == before
        answer = await desk.send("T", b"new")
        assert answer.code in (OK, ResponseCode.SLAVE_NOT_AVAILABLE)
        assert bodies(slave) == [*(b"%02d" % number for number in range(40)), b"new"]


@pytest.mark.parametrize("end", ENDS)
@virtual
async def test_delayed_messages_come_once_and_in_their_time(end: str) -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk, due = BrokerDesk(world, master), {}
        for level, delay_ms in ((1, 1000), (2, 5000), (3, 10_000), (4, 30_000)):
            for number in range(5):
                body = b"%d-%d" % (level, number)
                due[body] = now_ms(desk) + delay_ms
                await desk.send("T", body, pairs={"DELAY": str(level)})
        await asyncio.sleep(6)  # the first two levels are delivered
        await world.copied(master, slave)
        assert len(bodies(slave)) == 10
        await promoted(world, master, slave, end)
        await asyncio.sleep(60)
        assert Counter(bodies(slave)) == Counter(list(due))
        for one in stored(slave, "T"):
            assert one.store_timestamp >= due[one.body]
            assert one.store_timestamp <= due[one.body] + 8000


@pytest.mark.parametrize("end", ENDS)
@virtual
async def test_a_delivery_that_the_slave_never_received_is_made_by_it(end: str) -> None:
    """The copy was lost with the master, so this is its only delivery."""
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        await desk.send("T", b"wait", pairs={"DELAY": "3"})
        await world.copied(master, slave)
        world.network.cut(master.ip, slave.ip)
        await asyncio.sleep(15)
        assert bodies(master) == [b"wait"]
        assert bodies(slave) == []
        await promoted(world, master, slave, end)
        await asyncio.sleep(5)
        assert bodies(slave) == [b"wait"]


@virtual
async def test_progress_beyond_the_end_of_the_log_is_not_believed() -> None:
    """Files of delays that count more than this log has came ahead of it, or are of a tail that was cut."""
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        for number in range(3):
            await desk.send("T", b"%d" % number, pairs={"DELAY": "3"})
        await world.copied(master, slave)
        world.network.cut(master.ip, slave.ip)
        await asyncio.sleep(25)  # all are delivered, and that is saved
        ahead = master.disk.read("/store/config/delayOffset.json")
        slave.disk.write("/store/config/delayOffset.json", ahead)
        await promoted(world, master, slave)
        await asyncio.sleep(5)
        assert bodies(slave) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("end", ENDS)
@virtual
async def test_global_transactions_go_on_with_their_decisions_leases_and_messages(end: str) -> None:
    async with pair() as world:
        master, slave = await started(world, SYNC)
        desk = BrokerDesk(world, master)
        await globals_kit.begun(desk)
        for gid in ("decided", "open"):
            await globals_kit.open_(desk, gid)
            assert (await globals_kit.append(desk, "tried", gid=gid)).code == OK
            assert (await globals_kit.write(desk, [gid.encode()], gid)).code == OK
        refused = await globals_kit.ask(BrokerDesk(world, slave), RequestCode.GLOBAL_READ, gid="open")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await globals_kit.decide(desk, "commit", "decided", brokers="broker-a")).decision == "commit"
        assert b"decided" not in bodies(master), "the master ends before it has settled"
        desk = await promoted(world, master, slave, end, SYNC)
        assert (await globals_kit.decide(desk, "abort", "decided")).decision == "commit"
        known = await globals_kit.read(desk, "open")
        assert (known.decision, known.lease, [one.event for one in known.records]) == ("", 1, ["tried"])
        await globals_kit.decide(desk, "abort", "open")
        await asyncio.sleep(3)
        assert bodies(slave).count(b"decided") == 1
        assert b"open" not in bodies(slave)


@pytest.mark.parametrize("end", ENDS)
@virtual
async def test_timers_come_once_and_in_their_time(end: str) -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk, due = BrokerDesk(world, master), {}
        for number, seconds in enumerate((2, 4, 20, 21, 40)):
            body = b"%d" % number
            due[body] = now_ms(desk) + seconds * 1000
            pairs = {"TIMER_DELIVER_MS": str(due[body]), "UNIQ_KEY": f"K{number}"}
            await desk.send("T", body, pairs=pairs)
        await asyncio.sleep(8)
        await world.copied(master, slave)
        assert len(bodies(slave)) == 2
        await promoted(world, master, slave, end)
        await asyncio.sleep(60)
        assert Counter(bodies(slave)) == Counter(list(due))
        for one in stored(slave, "T"):
            assert one.store_timestamp >= due[one.body] - 1000
            assert one.store_timestamp <= due[one.body] + 3000


@pytest.mark.parametrize("end", ENDS)
@virtual
async def test_transactions_end_once_on_the_new_master(end: str) -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        committed = await producers.prepare(desk, b"committed")
        rolled_back = await producers.prepare(desk, b"rolled")
        left_open = await producers.prepare(desk, b"open")
        assert (await producers.end(desk, committed, producers.COMMIT)).code == OK
        assert (await producers.end(desk, rolled_back, producers.ROLLBACK)).code == OK
        await asyncio.sleep(40)  # progress is saved and pushed
        await world.copied(master, slave)
        desk = await promoted(world, master, slave, end)
        assert bodies(slave) == [b"committed"]
        assert (await producers.end(desk, committed, producers.COMMIT)).code == OK
        assert (await producers.end(desk, rolled_back, producers.COMMIT)).code != OK
        assert (await producers.end(desk, left_open, producers.COMMIT)).code == OK
        assert bodies(slave) == [b"committed", b"open"]


@virtual
async def test_a_commit_that_the_slave_never_received_leaves_the_transaction_open() -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        first = await producers.prepare(desk, b"first")
        await producers.prepare(desk, b"second")
        await world.copied(master, slave)
        world.network.cut(master.ip, slave.ip)
        assert (await producers.end(desk, first, producers.COMMIT)).code == OK
        await asyncio.sleep(40)
        desk = await promoted(world, master, slave)
        assert bodies(slave) == []
        assert (await producers.end(desk, first, producers.COMMIT)).code == OK
        assert bodies(slave) == [b"first"]


@virtual
async def test_open_transactions_are_checked_by_the_new_master() -> None:
    async with pair() as world:
        master, slave = await started(world, "brokerRole=ASYNC_MASTER\ntransactionTimeOut=3000\n")
        await producers.prepare(BrokerDesk(world, master), b"open")
        await world.copied(master, slave)
        checks = "transactionTimeOut=3000\ntransactionCheckInterval=5000\n"
        desk = await promoted(world, master, slave, conf=MASTER + checks)
        member = producers.Member(lambda half: producers.COMMIT)
        client = await member.join(desk)
        await asyncio.sleep(60)
        assert bodies(slave) == [b"open"]
        assert len(member.questions) == 1
        await client.close()


@pytest.mark.parametrize("end", ENDS)
@virtual
async def test_what_a_ledger_decided_is_settled_once(end: str) -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        await writers.topic(desk)
        assert (await writers.open_(desk)).code == OK
        assert (await writers.write(desk, 0, "t0", [b"a", b"b"])).code == OK
        assert (await writers.decide(desk, 0, "t0")).code == OK
        assert (await writers.write(desk, 1, "t1", [b"c"])).code == OK
        await asyncio.sleep(1)
        await world.copied(master, slave)
        desk = await promoted(world, master, slave, end)
        assert await writers.seen(desk) == [b"a", b"b"]
        assert (await writers.decide(desk, 0, "t0")).code == OK
        assert (await writers.decide(desk, 1, "t1")).code == OK
        await writers.end(desk, 1)
        assert await writers.seen(desk) == [b"a", b"b", b"c"]


@virtual
async def test_a_message_that_was_sent_back_comes_again_once() -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        sent = await desk.send("T", b"retry")
        offset = int((sent.ext or {})["msgId"][16:], 16)
        ext = {"offset": offset, "group": "CG", "delayLevel": 3, "originTopic": "T", "unitMode": "false"}
        assert (await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == OK
        await world.copied(master, slave)
        await promoted(world, master, slave)
        await asyncio.sleep(30)
        assert bodies(slave, "%RETRY%CG") == [b"retry"]


async def commit(world: Pair, node: Node, offset: int) -> Command:
    header = UpdateConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0, commitOffset=offset)
    return await world.call(node, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def committed(world: Pair, node: Node) -> int:
    header = QueryConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0)
    answer = await world.call(node, RequestCode.QUERY_CONSUMER_OFFSET, header)
    assert answer.code == OK, answer.remark
    return int((answer.ext or {})["offset"])


@pytest.mark.parametrize("end", ENDS)
@virtual
async def test_consumer_offsets_are_there_and_never_beyond_the_end(end: str) -> None:
    async with pair() as world:
        master, slave = await started(world)
        for number in range(10):
            await world.send(master, b"%d" % number)
        await commit(world, master, 7)
        await world.copied(master, slave)
        await asyncio.sleep(6)
        world.network.cut(master.ip, slave.ip)
        for number in range(10):
            await world.send(master, b"lost %d" % number)
        await promoted(world, master, slave, end)
        assert await committed(world, slave) == 7


@virtual
async def test_an_offset_ahead_of_the_copied_log_comes_back_to_its_end() -> None:
    """Row 9: or the group would skip what the new master stores next."""
    async with pair() as world:
        master, slave = await started(world)
        for number in range(10):
            await world.send(master, b"%d" % number)
        await world.copied(master, slave)
        await commit(world, master, 25)
        await asyncio.sleep(6)
        await promoted(world, master, slave)
        assert await committed(world, slave) == 10


@virtual
async def test_topics_and_groups_made_right_before_the_death_are_there() -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        ext = {
            "topic": "Fresh", "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == OK
        group = b'{"groupName":"FreshGroup","retryQueueNums":2}'
        assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)).code == OK
        desk = await promoted(world, master, slave, conf=MASTER + "autoCreateTopicEnable=false\n")
        answer = await desk.send("Fresh", b"hello", queue_id=2)
        assert answer.code == OK, answer.remark
        answer = await desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert b"FreshGroup" in answer.body


@virtual
async def test_request_modes_set_right_before_the_death_are_there() -> None:
    async with pair() as world:
        master, slave = await started(world)
        await world.send(master, b"makes the topic")
        mode = b'{"consumerGroup":"CG","mode":"PULL","popShareQueueNum":2,"topic":"T"}'
        desk = BrokerDesk(world, master)
        assert (await desk.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, mode)).code == OK
        await asyncio.sleep(0.2)
        assert (await BrokerDesk(world, slave).ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, mode)).code != OK
        desk = await promoted(world, master, slave)
        answer = await desk.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert json.loads(answer.body)["messageRequestModeMap"]["T"]["CG"]["popShareQueueNum"] == 2


@virtual
async def test_a_group_that_was_deleted_is_not_there_again() -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        group = b'{"groupName":"Old","retryQueueNums":2}'
        assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)).code == OK
        await asyncio.sleep(1)
        answer = await BrokerDesk(world, slave).ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert b'"Old"' in answer.body
        assert (await desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Old"})).code == OK
        await asyncio.sleep(1)
        desk = await promoted(world, master, slave)
        answer = await desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert b'"Old"' not in answer.body


# the old master returns


@virtual
async def test_an_old_master_that_holds_other_records_stops_before_anything_is_appended() -> None:
    async with pair() as world:
        master, slave = await started(world)
        await world.send(master, b"both")
        await world.copied(master, slave)
        world.network.cut(master.ip, slave.ip)
        await world.send(master, b"only the old master")
        tail = master.log
        await promoted(world, master, slave)
        world.network.join(master.ip, slave.ip)
        await world.send(slave, b"only the new master, and longer than the other")
        await world.send(slave, b"more")
        await master.start("brokerRole=SLAVE\nbrokerId=1\n")
        await world.until(lambda: master.slave.state is SlaveState.STOPPED)
        assert "turbopump replica" in master.slave.trouble
        assert master.log == tail
        answer = await world.send(slave, b"goes on")
        assert answer.code == OK
        await asyncio.sleep(30)
        assert (master.slave.state, master.log) == (SlaveState.STOPPED, tail)
        assert master.store.replica.end not in (copy.received for copy in _slaves(slave))


def _slaves(node: Node) -> list:  # type: ignore[type-arg]
    assert node.broker is not None
    assert node.broker.replication.master is not None
    return list(node.broker.replication.master.copies.slaves.values())


@virtual
async def test_an_old_master_without_a_tail_of_its_own_follows_and_can_be_the_master_again() -> None:
    async with pair() as world:
        master, slave = await started(world)
        desk = BrokerDesk(world, master)
        due = {b"level": now_ms(desk) + 30_000, b"timer": now_ms(desk) + 25_000}
        await desk.send("T", b"level", pairs={"DELAY": "4"})
        await desk.send("T", b"timer", pairs={"TIMER_DELIVER_MS": str(due[b"timer"]), "UNIQ_KEY": "K"})
        half = await producers.prepare(desk, b"half")
        await asyncio.sleep(12)  # progress is saved
        await world.copied(master, slave)
        desk = await promoted(world, master, slave)
        assert (await producers.end(desk, half, producers.COMMIT)).code == OK
        await master.start("brokerRole=SLAVE\nbrokerId=1\n")
        await world.until(lambda: master.slave.state is SlaveState.FOLLOWING)
        await asyncio.sleep(40)
        await world.copied(slave, master)
        assert master.log == slave.log
        assert master.broker is not None
        await promoted(world, slave, master, "stopped")
        await asyncio.sleep(60)
        assert Counter(bodies(master)) == Counter([b"half", b"timer", b"level"])
        for one in stored(master, "T"):
            if one.body in due:
                assert one.store_timestamp >= due[one.body] - 1000
