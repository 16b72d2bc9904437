"""Resets: a group goes on from another place, and nothing that was sent to it is skipped by accident."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, Desk, records, running
from tests.unit.broker.resets_kit import SUSPENDED, beat

from turbopump.broker.config import OffsetRules
from turbopump.protocol.bodies import ResetOffsetBody, ResetOffsetBodyForC
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.remoting.router import Request, Route
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.simulated_files import Survival

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
COMMITS = 1
THROUGH_CONSUMERS = replace(CONFIG, offsets=OffsetRules(reset_here=False))


async def with_messages(desk: Desk, count: int = 5, topic: str = "T", queues: int = 1) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues}
    rest = {"perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
    await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | rest)
    for number in range(count):
        await desk.send(topic, f"m{number}".encode())
        await asyncio.sleep(1)
    await desk.ask(RequestCode.HEART_BEAT, body=beat("me", topic=topic))


async def reset(
    desk: Desk, topic: str = "T", group: str = "G", timestamp: int = 0, **changes: Any
) -> Command:
    ext = {"topic": topic, "group": group, "timestamp": timestamp, "isForce": "true"}
    return await desk.ask(RESET, ext | changes)


async def pull(desk: Desk, offset: int, sys_flag: int = 0, group: str = "G", **changes: Any) -> Command:
    return await desk.pull("T", offset, consumerGroup=group, sysFlag=sys_flag, **changes)


async def commit(desk: Desk, offset: int, group: str = "G") -> Command:
    ext = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": offset}
    return await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


async def committed(desk: Desk, group: str = "G", queue_id: int = 0) -> int | None:
    ext = {"consumerGroup": group, "topic": "T", "queueId": queue_id, "setZeroIfNotFound": "false"}
    answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    return int((answer.ext or {})["offset"]) if answer.code == 0 else None


def table(answer: Command) -> dict[int, int]:
    offsets = ResetOffsetBody.decode(answer.body).offsetTable
    return {queue.queueId: offset for queue, offset in offsets.items()}


@virtual
async def test_the_next_pull_is_told_and_the_one_after_reads_from_there() -> None:
    async with running() as desk:
        await with_messages(desk)
        await commit(desk, 4)
        answer = await reset(desk)
        assert (answer.code, answer.remark, table(answer)) == (0, None, {0: 0})
        assert await committed(desk) == 0
        answer = await pull(desk, 5)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert answer.ext == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "0",
            "minOffset": "0",
            "maxOffset": "5",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        answer = await pull(desk, 0)
        assert [record.body for record in records(answer)] == [b"m0", b"m1", b"m2", b"m3", b"m4"]


@virtual
async def test_by_time_by_offset_and_to_the_end() -> None:
    async with running() as desk:
        await with_messages(desk)
        third = records(await pull(desk, 2))[0].store_timestamp
        assert table(await reset(desk, timestamp=third)) == {0: 2}
        assert table(await reset(desk, timestamp=third + 1)) == {0: 3}
        assert table(await reset(desk, timestamp=-1)) == {0: 5}
        assert table(await reset(desk, timestamp=-1, queueId=0, offset=1)) == {0: 1}
        assert table(await reset(desk, timestamp=third, queueId=0, offset=-1)) == {0: 2}
        assert await committed(desk) == 2


@virtual
async def test_an_offset_that_the_queue_does_not_have_is_refused() -> None:
    async with running() as desk:
        await with_messages(desk)
        for offset in (-2, 6):
            answer = await reset(desk, queueId=0, offset=offset)
            remark = f"Target offset {offset} not in consume queue range [0-5]"
            assert (answer.code, answer.remark) == (1, remark)
        assert table(await reset(desk, queueId=0, offset=5)) == {0: 5}
        answer = await reset(desk, queueId=1)
        assert (answer.code, answer.remark) == (1, "No queues to reset.")
        answer = await reset(desk, queueId=1, offset=3)
        assert (answer.code, answer.remark) == (1, "Target offset 3 not in consume queue range [0-0]")


@virtual
async def test_a_stopped_group_is_reset_too_and_forwards_without_force() -> None:
    async with running() as desk:
        await with_messages(desk)
        await commit(desk, 1)
        await desk.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "me", "consumerGroup": "G"})
        assert table(await reset(desk, timestamp=-1, isForce="false")) == {0: 5}
        assert await committed(desk) == 5


@virtual
async def test_what_does_not_exist_is_refused() -> None:
    async with running() as desk:
        await with_messages(desk)
        answer = await reset(desk, topic="nope")
        assert (answer.code, answer.remark) == (17, "Topic nope does not exist")
        answer = await reset(desk, group="nobody")
        assert (answer.code, answer.remark) == (26, "Group nobody does not exist")


@virtual
async def test_every_queue_of_a_topic_is_reset() -> None:
    async with running() as desk:
        await with_messages(desk, queues=3)
        assert table(await reset(desk, timestamp=-1)) == {0: 5, 1: 0, 2: 0}


@virtual
async def test_a_late_commit_of_a_consumer_that_does_not_know_yet_is_ignored() -> None:
    async with running() as desk:
        await with_messages(desk)
        await reset(desk)
        answer = await commit(desk, 4)
        assert (answer.code, answer.remark, answer.ext) == (0, "Offset has been previously reset", {})
        assert await committed(desk) == 0
        assert (await pull(desk, 5, COMMITS, commitOffset=5)).remark == "OFFSET_RESET"
        assert await committed(desk) == 0, "nor is the offset that came with the pull"
        answer = await commit(desk, 3)
        assert (answer.code, answer.remark) == (0, None)
        assert await committed(desk) == 3


@virtual
async def test_a_pull_that_waits_is_told_at_once_and_one_of_another_group_goes_on_waiting() -> None:
    async with running() as desk:
        await with_messages(desk)
        await desk.ask(RequestCode.HEART_BEAT, body=beat("other", "H"))
        loop = asyncio.get_running_loop()
        mine = asyncio.create_task(pull(desk, 5, SUSPENDED))
        other = asyncio.create_task(pull(desk, 5, SUSPENDED, group="H"))
        await asyncio.sleep(3)
        began = loop.time()
        await reset(desk)
        answer = await mine
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert loop.time() - began < 0.1
        await asyncio.sleep(1)
        assert not other.done()
        assert (await other).code == ResponseCode.PULL_NOT_FOUND


@virtual
async def test_a_reset_that_nobody_was_told_of_survives_a_restart() -> None:
    async with running() as desk:
        await with_messages(desk)
        await commit(desk, 4)
        await reset(desk, timestamp=0)
        await reset(desk, timestamp=-1, group="TOOLS_CONSUMER")
        disk = desk.disk
    async with running(disk=disk) as desk:
        await desk.ask(RequestCode.HEART_BEAT, body=beat("me"))
        assert (await commit(desk, 5)).remark == "Offset has been previously reset"
        answer = await pull(desk, 5)
        assert (answer.remark, (answer.ext or {})["nextBeginOffset"]) == ("OFFSET_RESET", "0")
        assert (await pull(desk, 5)).remark == "OFFSET_OVERFLOW_ONE"


@virtual
async def test_deleting_a_group_or_topic_forgets_its_reset() -> None:
    async with running() as desk:
        await with_messages(desk)
        await reset(desk)
        await desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"})
        assert await committed(desk) is None
        assert (await pull(desk, 5)).remark == "OFFSET_OVERFLOW_ONE"


# Through the consumers


class Told:
    """A member of the group that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[Command] = []

    async def join(self, desk: Desk, client_id: str, version: int = 513) -> Client:
        client = desk.visitor({RequestCode.RESET_CONSUMER_CLIENT_OFFSET: Route(None, self._hear)})
        request = Command(RequestCode.HEART_BEAT, body=beat(client_id), version=version)
        assert (await client.call(desk.address, request)).code == 0
        return client

    def _hear(self, request: Request[None]) -> None:
        self.heard.append(request.command)


@virtual
async def test_without_resets_here_every_member_is_told_and_the_stored_offset_stays() -> None:
    async with running(THROUGH_CONSUMERS) as desk:
        await with_messages(desk)
        await commit(desk, 4)
        one, two = Told(), Told()
        clients = [await one.join(desk, "one"), await two.join(desk, "two")]
        answer = await reset(desk, timestamp=0)
        assert (answer.code, answer.remark) == (0, "not set any response code")
        assert table(answer) == {0: 0}
        await asyncio.sleep(0.1)
        for told in (one, two):
            (order,) = told.heard
            assert order.is_oneway
            fields = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "false", "queueId": "-1"}
            assert order.ext == fields
            assert order.body == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0}}'
        assert await committed(desk) == 4
        for client in clients:
            await client.close()


@virtual
async def test_a_tool_in_c_gets_its_members_a_list() -> None:
    async with running(THROUGH_CONSUMERS) as desk:
        await with_messages(desk)
        await commit(desk, 4)
        told = Told()
        client = await told.join(desk, "one")
        ext = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
        answer = await desk.client.call(desk.address, Command(RESET, ext=ext, language="CPP"))
        assert table(answer) == {0: 5}
        await asyncio.sleep(0.1)
        (row,) = ResetOffsetBodyForC.decode(told.heard[0].body).offsetTable
        assert (row.brokerName, row.topic, row.queueId, row.offset) == ("broker-a", "T", 0, 5)
        await client.close()


@virtual
async def test_through_consumers_offsets_move_back_only_unless_it_is_forced() -> None:
    async with running(THROUGH_CONSUMERS) as desk:
        await with_messages(desk)
        await commit(desk, 2)
        assert table(await reset(desk, timestamp=-1, isForce="false")) == {0: 2}
        assert table(await reset(desk, timestamp=-1)) == {0: 5}
        assert table(await reset(desk, timestamp=0, isForce="false")) == {0: 0}


@virtual
async def test_through_consumers_what_is_missing_has_its_own_code() -> None:
    async with running(THROUGH_CONSUMERS) as desk:
        await with_messages(desk)
        answer = await reset(desk, topic="nope")
        assert answer.code == 17
        answer = await reset(desk)
        assert (answer.code, answer.remark) == (1, "THe consumer group <G> not exist")
        await commit(desk, 1)
        await desk.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "me", "consumerGroup": "G"})
        answer = await reset(desk)
        words = "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: 0"
        assert (answer.code, answer.remark) == (206, words)
        client = await Told().join(desk, "old", version=27)
        answer = await reset(desk)
        assert (answer.code, answer.remark) == (
            1,
            "the client does not support this feature. version=V3_0_6",
        )
        await client.close()


@virtual
async def test_turning_resets_here_off_drops_those_that_nobody_was_told_of() -> None:
    async with running() as desk:
        await with_messages(desk)
        await reset(desk)
        await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"useServerSideResetOffset=false\n")
        assert (await commit(desk, 4)).remark is None
        assert (await pull(desk, 5)).remark == "OFFSET_OVERFLOW_ONE"


# Known failures, row 9 (apache/rocketmq 4771, 2181): the log lost its end, consumers did not


async def lose_the_end(disk: SimulatedDisk) -> SimulatedDisk:
    """The machine fails, and what was not synced is gone; the tasks of the broker with it."""
    after = disk.crash(Survival.LOST)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return after


class Cut:
    """A broker that kept five of ten messages, and clients that know nothing of it."""

    async def __aenter__(self) -> Desk:
        self.before = running(flush_interval_ms=1000, checkpoint_interval_ms=1000)
        desk = await self.before.__aenter__()
        await with_messages(desk, 5)
        await commit(desk, 4)
        await asyncio.sleep(30)  # all of this is on the disk
        for number in range(5, 10):
            await desk.send("T", f"m{number}".encode())
        await commit(desk, 10)
        disk = await lose_the_end(desk.disk)
        await self.before.__aexit__(None, None, None)  # without its power: it only ends
        self.after = running(disk=disk)
        desk = await self.after.__aenter__()
        await desk.ask(RequestCode.HEART_BEAT, body=beat("me"))
        return desk

    async def __aexit__(self, *error: Any) -> None:
        await self.after.__aexit__(*error)


@virtual
async def test_row_9_an_offset_beyond_what_is_left_comes_back_to_the_end() -> None:
    async with Cut() as desk:
        answer = await pull(desk, 10)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert (answer.ext or {})["nextBeginOffset"] == "4", "all that its group is known to have handled"
        assert await committed(desk) == 4


@virtual
async def test_row_9_a_consumer_goes_back_to_what_it_says_it_has_handled_as_far_as_that_is_left() -> None:
    for handled, goes_on_at in ((3, "4"), (5, "5"), (9, "5")):
        async with Cut() as desk:
            answer = await pull(desk, 10, COMMITS, commitOffset=handled)
            assert answer.code == ResponseCode.PULL_OFFSET_MOVED
            assert (answer.ext or {})["nextBeginOffset"] == goes_on_at
            assert await committed(desk) == 4, "that is said by the consumer itself, when it has moved"


@virtual
async def test_row_9_a_consumer_ahead_of_what_is_left_does_not_skip_what_is_sent_next() -> None:
    async with Cut() as desk:
        for number in range(10, 20):
            await desk.send("T", f"m{number}".encode())
        answer = await pull(desk, 10)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert (answer.remark, (answer.ext or {})["nextBeginOffset"]) == ("OFFSET_OVERFLOW_BADLY", "4")
        answer = await pull(desk, 4)
        assert [record.body for record in records(answer)][1:] == [b"m%d" % n for n in range(10, 20)]
        answer = await pull(desk, 10)
        assert answer.code == 0, "what it was handed, it may ask for"


@virtual
async def test_row_9_its_late_commit_does_not_make_another_consumer_skip() -> None:
    async with Cut() as desk:
        for number in range(10, 20):
            await desk.send("T", f"m{number}".encode())
        ext = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "10"}
        await desk.client.send_oneway(desk.address, Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext))
        await asyncio.sleep(0.1)
        assert await committed(desk) == 4
        await desk.ask(RequestCode.HEART_BEAT, body=beat("another"))
        assert (await pull(desk, 4)).code == 0
        await desk.client.send_oneway(
            desk.address, Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext | {"commitOffset": "99"})
        )
        await asyncio.sleep(0.1)
        assert await committed(desk) == 4, "nor when another of the group has begun meanwhile"


@virtual
async def test_row_9_what_another_member_was_handed_hides_no_consumer_that_is_ahead() -> None:
    async with Cut() as desk:
        for number in range(10, 20):
            await desk.send("T", f"m{number}".encode())
        assert len(records(await pull(desk, 4))) == 11, "handed to this one, which has handled none of it"
        ahead = Desk(desk.broker, desk.visitor(), desk.disk, desk.workers, desk.network)
        await ahead.ask(RequestCode.HEART_BEAT, body=beat("ahead"))
        answer = await pull(ahead, 10)
        assert (answer.code, (answer.ext or {})["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "4")
        assert len(records(await pull(ahead, 4))) == 11
        assert (await pull(ahead, 10)).code == 0, "what it was handed itself, it may ask for"
        await commit(desk, 12)
        late = Desk(desk.broker, desk.visitor(), desk.disk, desk.workers, desk.network)
        await late.ask(RequestCode.HEART_BEAT, body=beat("late"))
        assert (await pull(late, 10)).code == 0, "nothing before it is left to handle"
        for desk_of_one in (ahead, late):
            await desk_of_one.client.close()


@virtual
async def test_row_9_a_second_crash_before_the_consumer_is_back_changes_nothing() -> None:
    async with Cut() as desk:
        for number in range(10, 20):
            await desk.send("T", f"m{number}".encode())
        await asyncio.sleep(30)
        disk = await lose_the_end(desk.disk)
    async with running(disk=disk) as again:
        await again.ask(RequestCode.HEART_BEAT, body=beat("me"))
        answer = await pull(again, 10)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert (answer.ext or {})["nextBeginOffset"] == "4"
        assert records(await pull(again, 4))[1].body == b"m10"


@virtual
async def test_row_9_an_offset_that_was_brought_back_stays_back_through_a_second_crash() -> None:
    """The file said 10; the log ended at 5, was written to 15, and the machine failed again."""
    async with running(flush_interval_ms=1000) as desk:
        await with_messages(desk, 5)
        await asyncio.sleep(30)
        await commit(desk, 10)
        await asyncio.sleep(6)  # this is in consumerOffset.json
        disk = await lose_the_end(desk.disk)
    async with running(disk=disk, flush_interval_ms=100, flush_least_pages=0) as desk:
        for number in range(10):
            await desk.send("T", f"n{number}".encode())
        await asyncio.sleep(1)
        disk = await lose_the_end(desk.disk)
    async with running(disk=disk) as desk:
        assert await committed(desk) == 5
        assert len(records(await desk.pull("T", 0))) == 15


@virtual
async def test_a_consumer_that_begins_after_the_crash_begins_where_it_likes() -> None:
    async with Cut() as desk:
        for number in range(10, 20):
            await desk.send("T", f"m{number}".encode())
        await desk.ask(RequestCode.HEART_BEAT, body=beat("new", "NEW"))
        assert await committed(desk, "NEW") is None
        assert (await pull(desk, 12, group="NEW")).code == 0
        assert (await pull(desk, 12, 4, group="TOOLS_CONSUMER")).code == 0, "a tool looks where it likes"
        await commit(desk, 14)
        assert await committed(desk) == 14, "so does an operator"


@virtual
async def test_a_consumer_within_what_is_left_goes_on_undisturbed() -> None:
    async with Cut() as desk:
        answer = await pull(desk, 3)
        assert [record.body for record in records(answer)] == [b"m3", b"m4"]
        await desk.send("T", b"next")
        assert [record.body for record in records(await pull(desk, 5))] == [b"next"]
