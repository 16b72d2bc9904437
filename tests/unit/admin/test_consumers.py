"""Commands of consumer groups, their offsets and their queues."""

import asyncio
import json
from typing import Any

from tests.kit import virtual
from tests.unit.admin.kit import cluster, golden
from tests.unit.admin.steady import sent, steady
from tests.unit.client.listening import Reader, committed, consumer

from turbopump.client.admin.offsets import Offsets
from turbopump.client.message import MessageQueue
from turbopump.protocol.errors import ConsumerNotOnline
from turbopump.testing.loop import run_virtual

BROKER = "127.0.0.1:10911"


@virtual
async def test_a_group_is_created_shown_and_deleted() -> None:
    async with cluster(brokers=2) as town:
        policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
        printed = [
            await town.mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "readers"),
            await town.mqadmin(
                *(
                    "updateSubGroup",
                    "-b",
                    BROKER,
                    "-g",
                    "readers",
                    "-s",
                    "false",
                    "-m",
                    "true",
                    "-d",
                    "true",
                ),
                *("-q", "2", "-r", "3", "-i", "1", "-w", "2", "-a", "false", "-o", "true", "-p", policy),
            ),
            await town.mqadmin("getConsumerConfig", "-g", "readers"),
            await town.mqadmin("getConsumerConfig", "-g", "nobody"),
            await town.mqadmin("updateSubGroup", "-g", "readers"),
            await town.mqadmin("updateSubGroup", "-g", "readers", "-b", BROKER, "-p", "nonsense"),
            await town.mqadmin("deleteSubGroup", "-g", "readers", "-b", BROKER),
            await town.mqadmin("deleteSubGroup", "-g", "readers", "-c", "DefaultCluster", "-r", "true"),
            await town.mqadmin("getConsumerConfig", "-g", "readers"),
        ]
        golden("group", *printed)


@virtual
async def test_groups_in_json() -> None:
    async with cluster() as town:
        made = (await town.mqadmin("updateSubGroup", "-b", BROKER, "-g", "readers", "-r", "3", "--json")).json
        assert (made["brokers"], made["group"]["retryMaxTimes"]) == ([BROKER], 3)
        (shown,) = (await town.mqadmin("getConsumerConfig", "-g", "readers", "--json")).json["configs"]
        assert (shown["brokerName"], shown["consumeBroadcastEnable"]) == ("broker-a", False)
        gone = (await town.mqadmin("deleteSubGroup", "-b", BROKER, "-g", "readers", "--json")).json
        assert gone == {"group": "readers", "brokers": [BROKER], "topics": []}


@virtual
async def test_the_progress_of_a_group() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        for number in range(5):
            await sent(town, number % 2)
        reader = Reader(lambda body: body == b"bad")
        async with consumer(town, reader):
            await town.clock.sleep(6)
            printed = [
                await town.mqadmin("consumerProgress", "-g", "readers"),
                await town.mqadmin("consumerProgress", "-g", "readers", "-t", "orders", "-s", "true"),
                await town.mqadmin("consumerProgress"),
            ]
        await sent(town, 0)
        printed += [
            await town.mqadmin("consumerProgress"),
            await town.mqadmin("consumerProgress", "-g", "readers", "-t", "orders"),
            await town.mqadmin("consumerProgress", "-g", "nobody"),
        ]
        golden("progress", *steady(*printed))
        shown = (await town.mqadmin("consumerProgress", "-g", "readers", "--json")).json
        assert shown["diffTotal"] == 1
        assert shown["queues"][-1]["consumerOffset"] == 2
        overview = (await town.mqadmin("consumerProgress", "--json")).json["groups"]
        assert [(one["group"], one["count"], one["diff"]) for one in overview] == [("readers", 0, 1)]


@virtual
async def test_the_members_of_a_group_tell_about_themselves() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        await sent(town, 0)
        async with consumer(town, Reader()) as member:
            await town.clock.sleep(6)
            all_of_them = await town.mqadmin("consumerStatus", "-g", "readers")
            one = await town.mqadmin("consumerStatus", "-g", "readers", "-i", member.client_id)
            golden("consumer_status", *steady(all_of_them, one))
            (path,) = [word for word in all_of_them.out.split() if word.endswith(f"/{member.client_id}")]
            assert town.disk.read(path).decode() == one.out
            shown = (await town.mqadmin("consumerStatus", "-g", "readers", "--json")).json
            assert shown["sameSubscription"] is True
            assert {queue["topic"] for queue in shown["members"][0]["queues"]} == {
                "orders",
                "%RETRY%readers",
            }
        gone = await town.mqadmin("consumerStatus", "-g", "readers")
        assert (gone.status, gone.err) == (1, "no consumer of group readers is online")


@virtual
async def test_a_member_consumes_one_message_for_a_tool() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        first = await sent(town, 0)
        reader = Reader()
        async with consumer(town, reader) as member:
            await town.clock.sleep(2)
            asked = ("queryMsgById", "-t", "orders", "-i", first.offset_message_id, "-g", "readers", "-d")
            told = await town.mqadmin(*asked, member.client_id)
            assert told.out.startswith("ConsumeMessageDirectlyResult [order=false, autoCommit=true, ")
            assert "consumeResult=CR_SUCCESS" in told.out
            assert len(reader.got) == 2
            reader.refuses = lambda body: True
            by_key = (
                "queryMsgByUniqueKey",
                "-t",
                "orders",
                "-i",
                first.message_id,
                "-g",
                "readers",
                "-d",
            )
            (result,) = (await town.mqadmin(*by_key, member.client_id, "--json")).json["results"]
            assert result["consumeResult"] == "CR_THROW_EXCEPTION"
            nobody = await town.mqadmin(*asked, "nobody")
            assert nobody.status == 1


@virtual
async def test_offsets_are_moved_to_a_time_while_the_group_runs_and_while_it_is_stopped() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        for number in range(6):
            await sent(town, number % 2, b"%d" % number)
            await town.clock.sleep(10)
        reader = Reader()
        middle = town.clock.now_ms() - 35_000
        reset = ("resetOffsetByTime", "-g", "readers", "-t", "orders", "-s")
        async with consumer(town, reader):
            await town.clock.sleep(6)
            reader.got.clear()
            running = await town.mqadmin(*reset, str(middle))
            await town.clock.sleep(30)
            assert reader.bodies == [b"3", b"4", b"5"]
        assert await committed(town, queues=2) == [3, 3]
        stopped = await town.mqadmin(*reset, str(middle))
        again = Reader()
        async with consumer(town, again):
            await town.clock.sleep(30)
        assert again.bodies == [b"3", b"4", b"5"]
        golden("reset", *steady(running, stopped, await town.mqadmin(*reset, "yesterday")))
        shown = (await town.mqadmin(*reset, "now", "--json")).json
        assert shown["offsets"] == [
            {"brokerName": "broker-a", "queueId": 0, "offset": 3},
            {"brokerName": "broker-a", "queueId": 1, "offset": 3},
        ]


@virtual
async def test_one_queue_is_moved() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        for number in range(6):
            await sent(town, number % 2, b"%d" % number)
        async with consumer(town, Reader()):
            await town.clock.sleep(6)
        one = ("resetOffsetByTime", "-g", "readers", "-t", "orders", "-b", BROKER, "-q", "1", "-s", "now")
        moved = await town.mqadmin(*one, "-o", "1")
        assert moved.lines[-1] == "reset consumer offset to 1"
        again = Reader()
        async with consumer(town, again):
            await town.clock.sleep(30)
        assert again.bodies == [b"3", b"5"]


@virtual
async def test_what_accumulated_is_skipped() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        async with consumer(town, Reader()):
            await town.clock.sleep(6)
        for number in range(6):
            await sent(town, number % 2)
        skip = ("skipAccumulatedMessage", "-g", "readers", "-t", "orders")
        golden("skip", await town.mqadmin(*skip))
        late = Reader()
        async with consumer(town, late):
            await town.clock.sleep(30)
        assert late.got == []


def test_a_stopped_group_is_moved_queue_by_queue_where_brokers_cannot_do_it(monkeypatch: Any) -> None:
    """A 4.9 broker says that nobody is online."""

    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 2)
            async with consumer(town, Reader()):
                await town.clock.sleep(6)
            for number in range(4):
                await sent(town, number % 2)
                await town.clock.sleep(10)
            middle = town.clock.now_ms() - 15_000
            reset = ("resetOffsetByTime", "-g", "readers", "-t", "orders", "-s")
            skip = ("skipAccumulatedMessage", "-g", "readers", "-t", "orders")
            printed = [
                await town.mqadmin(*reset, str(middle), "-f", "false"),
                await town.mqadmin(*reset, str(middle)),
                await town.mqadmin(*skip),
                await town.mqadmin(*(word.replace("readers", "fresh") for word in skip)),
            ]
            golden("reset_stopped", *steady(*printed))
            assert await committed(town, queues=2) == [2, 2]

    async def nobody(*_: object) -> dict[MessageQueue, int]:
        raise ConsumerNotOnline("Consumer not online, so can not reset offset.")

    monkeypatch.setattr(Offsets, "reset", nobody)
    run_virtual(scene())


@virtual
async def test_offsets_are_cloned() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        for number in range(4):
            await sent(town, number % 2)
        async with consumer(town, Reader()):
            await town.clock.sleep(6)
        await town.mqadmin("updateSubGroup", "-b", BROKER, "-g", "others")
        clone = ("cloneGroupOffset", "-s", "readers", "-d", "others", "-t", "orders")
        done = await town.mqadmin(*clone)
        words = "clone group offset success. srcGroup[readers], destGroup=[others], topic[orders]"
        assert done.lines == [words]
        shown = (await town.mqadmin(*clone, "--json")).json["offsets"]
        assert [one["offset"] for one in shown] == [2, 2]
        late = Reader()
        async with consumer(town, late, group="others"):
            await town.clock.sleep(6)
        assert late.got == []


@virtual
async def test_what_a_group_does_not_have_is_not_cloned() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await town.create_topic("letters", 1)
        await sent(town, 0)
        async with consumer(town, Reader()):
            await town.clock.sleep(6)
        words = ("cloneGroupOffset", "-d", "readers", "-t", "orders", "-s")
        unknown = await town.mqadmin(*words, "nogroup")
        assert (unknown.status, unknown.out) == (1, "")
        assert unknown.err == "no broker knows a consumer group nogroup"
        elsewhere = await town.mqadmin("cloneGroupOffset", "-d", "others", "-t", "letters", "-s", "readers")
        assert elsewhere.status == 1
        assert elsewhere.err == "group readers has committed no offset in topic letters"
        assert await committed(town, queues=1) == [1]


@virtual
async def test_entries_of_a_queue_are_shown() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        await sent(town, 1, tags="paid")
        await sent(town, 1, tags="open")
        query = ("queryCq", "-t", "orders", "-q", "1")
        printed = [
            await town.mqadmin(*query, "-i", "0"),
            await town.mqadmin(*query, "-i", "1", "-c", "1", "-b", BROKER),
            await town.mqadmin(*query, "-i", "9"),
        ]
        golden("queue", *printed)
        entries = (await town.mqadmin(*query, "-i", "0", "--json")).json
        assert (entries["maxQueueIndex"], len(entries["queueData"])) == (2, 2)


@virtual
async def test_monitoring_tells_who_is_behind_until_it_is_interrupted() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader = Reader()
        async with consumer(town, reader, workers=1):
            await town.clock.sleep(6)
            reader.pause_s = 200.0
            for _ in range(3):
                await sent(town, 0)
            await town.clock.sleep(65)
            watching = [
                asyncio.create_task(town.mqadmin("startMonitoring", *more)) for more in ((), ("--json",))
            ]
            await town.clock.sleep(70)
            for task in watching:
                task.cancel()
            told, in_json = await asyncio.gather(*watching)
            reader.pause_s = 0.0
        assert told.status == 0
        assert told.out.count("beginRound") == 2
        line = "[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup=readers, topic=orders, "
        assert f"{line}undoneMsgsTotal=3, undoneMsgsSingleMQ=3, " in told.out
        assert "can't consume for a while, maybe blocked" in told.out
        rounds = [json.loads(line) for line in in_json.lines]
        behind = [one for each in rounds for one in each["undone"] if one["topic"] == "orders"]
        assert [one["undoneMsgsTotal"] for one in behind] == [3, 3]
