"""Topics that change while they are used: more and fewer queues, other permissions, deletion."""

import asyncio
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import Desk, letters, records, running
from tests.unit.broker.resets_kit import SUSPENDED, beat

from turbopump.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command


async def shape(desk: Desk, read: int, write: int, perm: int = 6, topic: str = "T", **changes: Any) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": write}
    rest = {"perm": perm, "topicFilterType": "SINGLE_TAG", "order": "false"}
    answer = await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | rest | changes)
    assert answer.code == 0


async def send(desk: Desk, body: bytes, queue_id: int = 0) -> int:
    return (await desk.send("T", body, queue_id)).code


async def pull(desk: Desk, offset: int, queue_id: int = 0, **changes: Any) -> Command:
    return await desk.pull("T", offset, queue_id, consumerGroup="G", sysFlag=0, **changes)


async def waiting(desk: Desk, offset: int, queue_id: int = 0) -> asyncio.Task[Command]:
    """A pull that waits at the broker."""
    fields = {"consumerGroup": "G", "sysFlag": SUSPENDED}
    task = asyncio.create_task(desk.pull("T", offset, queue_id, **fields))
    await asyncio.sleep(0.1)
    assert not task.done()
    return task


async def committed(desk: Desk, queue_id: int = 0) -> Command:
    fields = {"consumerGroup": "G", "topic": "T", "queueId": queue_id, "setZeroIfNotFound": "false"}
    return await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)


async def join(desk: Desk) -> None:
    await desk.ask(RequestCode.HEART_BEAT, body=beat("me"))


@virtual
async def test_a_topic_scaled_out_takes_and_gives_in_its_new_queues() -> None:
    async with running() as desk:
        await shape(desk, 2, 2)
        await join(desk)
        await send(desk, b"old", 1)
        assert await send(desk, b"early", 3) == ResponseCode.INVALID_PARAMETER
        assert (await pull(desk, 0, 3)).code == ResponseCode.INVALID_PARAMETER
        await shape(desk, 4, 4)
        assert await send(desk, b"new", 3) == 0
        assert [record.body for record in records(await pull(desk, 0, 3))] == [b"new"]
        assert [record.body for record in records(await pull(desk, 0, 1))] == [b"old"]


@virtual
async def test_a_topic_scaled_in_first_stops_being_written_then_is_drained_then_stops_being_read() -> None:
    async with running() as desk:
        await shape(desk, 4, 4)
        await join(desk)
        await send(desk, b"one", 3)
        await shape(desk, 4, 2)
        assert await send(desk, b"late", 3) == 0, "a producer that has not heard of it yet loses nothing"
        answer = await desk.ask(RequestCode.SEND_MESSAGE_V2, letters("T", -1), b"any")
        assert int((answer.ext or {})["queueId"]) < 2
        assert [record.body for record in records(await pull(desk, 0, 3))] == [b"one", b"late"]
        await shape(desk, 2, 2)
        assert (await pull(desk, 2, 3)).code == ResponseCode.INVALID_PARAMETER
        assert await send(desk, b"too late", 3) == ResponseCode.INVALID_PARAMETER


@virtual
async def test_what_was_not_drained_is_there_when_the_topic_is_scaled_out_again() -> None:
    async with running() as desk:
        await shape(desk, 4, 4)
        await join(desk)
        await send(desk, b"forgotten", 3)
        await shape(desk, 2, 2)
        await shape(desk, 4, 4)
        assert [record.body for record in records(await pull(desk, 0, 3))] == [b"forgotten"]
        assert await send(desk, b"next", 3) == 0
        assert [record.body for record in records(await pull(desk, 1, 3))] == [b"next"]


@virtual
async def test_a_pull_that_waits_on_a_queue_that_goes_is_refused_not_served() -> None:
    async with running() as desk:
        await shape(desk, 2, 2)
        await join(desk)
        task = await waiting(desk, 0, 1)
        await shape(desk, 1, 1)
        assert (await task).code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(("perm", "readable"), [(2, False), (4, True), (6, True)])
def test_permissions_of_a_topic_that_change_while_it_is_used(perm: int, readable: bool) -> None:
    @virtual
    async def test() -> None:
        async with running() as desk:
            await shape(desk, 1, 1)
            await join(desk)
            task = await waiting(desk, 0)
            await shape(desk, 1, 1, perm)
            assert await send(desk, b"hello") == 0, "writing is forbidden by the route alone, as with Apache"
            answer = await task
            assert answer.code == (0 if readable else ResponseCode.NO_PERMISSION)
            answer = await pull(desk, 0)
            assert answer.code == (0 if readable else ResponseCode.NO_PERMISSION)
            if not readable:
                assert answer.ext == {"forbiddenType": "3"}
                assert answer.remark == "the topic[T] pulling message is forbidden"
            shown = await desk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
            assert TopicConfig.decode(shown.body).perm == perm
            await shape(desk, 1, 1, 6)
            assert [record.body for record in records(await pull(desk, 0))] == [b"hello"]

    test()


@virtual
async def test_a_group_that_may_not_consume_any_more_is_refused_even_where_it_waits() -> None:
    async with running() as desk:
        await shape(desk, 1, 1)
        await join(desk)
        task = await waiting(desk, 0)
        for enabled in (False, True):
            config = SubscriptionGroupConfig(groupName="G", consumeEnable=enabled)
            await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
            if not enabled:
                await send(desk, b"hello")
                answer = await task
                assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "2"})
                assert (await pull(desk, 0)).remark == "subscription group no permission, G"
        assert [record.body for record in records(await pull(desk, 0))] == [b"hello"]


@virtual
async def test_a_group_that_is_shut_out_of_one_topic_reads_others() -> None:
    async with running() as desk:
        await shape(desk, 1, 1)
        await join(desk)
        fields = {"group": "G", "topic": "T", "readable": "false"}
        await desk.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields)
        answer = await pull(desk, 0)
        assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "5"})
        assert answer.remark == "the consumer group[G] is forbidden for topic[T]"
        await desk.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields | {"readable": "true"})
        assert (await pull(desk, 0)).code == ResponseCode.PULL_NOT_FOUND


@virtual
async def test_a_group_that_may_not_broadcast_is_refused() -> None:
    async with running() as desk:
        await shape(desk, 1, 1)
        config = SubscriptionGroupConfig(groupName="G", consumeBroadcastEnable=False)
        await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
        await desk.ask(RequestCode.HEART_BEAT, body=beat("me", messageModel="BROADCASTING"))
        answer = await pull(desk, 0)
        assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "4"})
        assert answer.remark == "the consumer group[G] can not consume by broadcast way"


@virtual
async def test_lite_pulls_can_be_turned_off() -> None:
    async with running() as desk:
        await shape(desk, 1, 1)
        lite = RequestCode.LITE_PULL_MESSAGE
        assert (await desk.pull("T", 0, code=lite)).code == ResponseCode.PULL_NOT_FOUND
        await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"litePullMessageEnable=false\n")
        answer = await desk.pull("T", 0, code=lite)
        assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "1"})
        assert answer.remark == "the broker[127.0.0.1] for lite pull consumer is forbidden"
        assert (await desk.pull("T", 0)).code == ResponseCode.PULL_NOT_FOUND


@virtual
async def test_a_deleted_topic_is_gone_with_its_files_and_offsets_and_begins_anew() -> None:
    async with running() as desk:
        await shape(desk, 1, 1)
        await join(desk)
        for number in range(5):
            await send(desk, b"old %d" % number)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 5}
        await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        task = await waiting(desk, 5)
        assert (await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        assert (await task).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await pull(desk, 5)).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await committed(desk)).code == ResponseCode.QUERY_NOT_FOUND
        assert desk.disk.entries("/store/consumequeue/T") == []
        await shape(desk, 1, 1)
        assert await send(desk, b"new") == 0
        assert [record.body for record in records(await pull(desk, 0))] == [b"new"]
        disk = desk.disk
    async with running(disk=disk) as desk:
        await join(desk)
        assert [record.body for record in records(await pull(desk, 0))] == [b"new"]


@virtual
async def test_a_consumer_of_a_deleted_topic_does_not_skip_what_its_successor_holds() -> None:
    async with running() as desk:
        await shape(desk, 1, 1)
        await join(desk)
        for number in range(5):
            await send(desk, b"old %d" % number)
        assert len(records(await pull(desk, 0))) == 5
        await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        await shape(desk, 1, 1)
        for number in range(8):
            await send(desk, b"new %d" % number)
        answer = await pull(desk, 5)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert (answer.ext or {})["nextBeginOffset"] == "0"
        assert len(records(await pull(desk, 0))) == 8
        assert len(records(await pull(desk, 5))) == 3, "told once, it may look where it likes"


@virtual
async def test_deleting_one_topic_does_not_disturb_the_readers_of_another() -> None:
    async with running() as desk:
        await shape(desk, 1, 1)
        await shape(desk, 1, 1, topic="other")
        await join(desk)
        for number in range(5):
            await send(desk, b"m%d" % number)
        await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "other"})
        assert [record.body for record in records(await pull(desk, 3))] == [b"m3", b"m4"]


@virtual
async def test_order_and_unit_topics_keep_their_marks() -> None:
    async with running() as desk:
        await shape(desk, 1, 1, order="true", topicSysFlag=3)
        shown = TopicConfig.decode((await desk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})).body)
        assert (shown.order, shown.topicSysFlag) == (True, 3)
        await join(desk)
        assert (await pull(desk, 0)).ext is not None
        assert ((await pull(desk, 0)).ext or {})["topicSysFlag"] == "3"
        retry = TopicConfig.decode((await desk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "%RETRY%G"})).body)
        assert retry.order
        await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
        answer = await desk.send("T", b"hello")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the broker[127.0.0.1] sending message is forbidden"
        await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")
        assert await send(desk, b"hello") == 0
