"""Commands of messages: find, print, send, hand to a consumer."""

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster, golden
from tests.unit.admin.steady import sent, steady
from tests.unit.client.listening import Reader, consumer

from turbopump.client.message import MessageQueue, SendResult
from turbopump.client.observe.trace import FIELD_END, RECORD_END
from turbopump.client.pull.puller import Puller
from turbopump.testing.loop import run_virtual


@virtual
async def test_a_message_is_found_by_id_key_unique_key_and_place() -> None:
    async with cluster(brokers=2) as town:
        await town.create_topic("orders", 2)
        first = await sent(town, 1, tags="paid", keys=("k1", "k2"))
        await sent(town, 1, b"world", keys=("k1",))
        printed = [
            await town.mqadmin("queryMsgById", "-t", "orders", "-i", first.offset_message_id),
            await town.mqadmin("queryMsgById", "-i", first.offset_message_id, "-f", "UTF-8"),
            await town.mqadmin("queryMsgById", "-t", "orders", "-i", first.message_id),
            await town.mqadmin("queryMsgByUniqueKey", "-t", "orders", "-i", first.message_id),
            await town.mqadmin("queryMsgByKey", "-t", "orders", "-k", "k1"),
            await town.mqadmin("queryMsgByKey", "-t", "orders", "-k", "k1", "-m", "2"),
            await town.mqadmin("queryMsgByKey", "-t", "orders", "-k", "nothing"),
            await town.mqadmin("queryMsgByOffset", "-t", "orders", "-b", "broker-a", "-i1", "-o0"),
            await town.mqadmin("queryMsgByOffset", "-t", "orders", "-b", "broker-a", "-i1", "-o9"),
            await town.mqadmin("queryMsgById", "-t", "orders", "-i", "0" * 32),
        ]
        golden("message_found", *steady(*printed))
        assert town.disk.read(f"/tmp/rocketmq/msgbodys/{first.message_id}") == b"hello"


@virtual
async def test_messages_in_json() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        first = await sent(town, 0, b"\xff\x00", tags="paid", keys=("k1", "k2"), properties={"a": "b"})
        asked = await town.mqadmin("queryMsgById", "-t", "orders", "-i", first.message_id, "--json")
        (found,) = asked.json["messages"]
        assert (found["msgId"], found["offsetMsgId"]) == (first.message_id, first.offset_message_id)
        assert (found["tags"], found["keys"], found["properties"]["a"]) == ("paid", "k1 k2", "b")
        assert (found["bodyBase64"], "body" in found, found["tracks"]) == ("/wA=", False, [])
        by_key = (await town.mqadmin("queryMsgByKey", "-t", "orders", "-k", "k2", "-m1", "--json")).json
        assert by_key["messages"][0]["indexKey"].startswith("16999992")
        assert "more" in by_key["cut"]
        assert not town.disk.exists("/tmp/rocketmq/msgbodys")


NASTY = b"\x1b[2Jboo\r\nMSGID: forged \xc2\x9b31m"


@virtual
async def test_no_command_prints_what_a_terminal_would_obey() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        first = await sent(town, 0, NASTY, keys=("k1",), properties={"note": "\x1b]0;title\x07"})
        of_queue = ("-t", "orders", "-b", "broker-a", "-i", "0")
        for words in (
            ("printMsg", "-t", "orders"),
            ("printMsgByQueue", "-t", "orders", "-a", "broker-a", "-i", "0", "-p", "true", "-d", "true"),
            ("consumeMessage", "-t", "orders"),
            ("queryMsgById", "-i", first.offset_message_id, "-f", "UTF-8"),
            ("queryMsgByOffset", *of_queue, "-o", "0", "-f", "UTF-8"),
            ("queryMsgByUniqueKey", "-t", "orders", "-i", first.message_id),
        ):
            for more in ((), ("--json",)):
                printed = await town.mqadmin(*words, *more)
                assert printed.status == 0, printed.err
                assert not [char for char in printed.out if not char.isprintable() and char != "\n"], words
                assert not [line for line in printed.lines if line.startswith("MSGID: forged")], words
        printed = await town.mqadmin("printMsg", "-t", "orders")
        assert r"BODY: \x1b[2Jboo\r\nMSGID: forged \x9b31m" in printed.out


def test_what_became_of_a_message_is_told_for_each_group() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            first = await sent(town, 0, tags="paid")
            async with consumer(town, Reader(), 1):
                async with consumer(town, Reader(), 2, group="other", topics={"orders": "lost"}):
                    await town.clock.sleep(6)
                    found = await tracks(town, first)
                    assert found == {"readers": "CONSUMED", "other": "CONSUMED_BUT_FILTERED"}
                    await town.clock.sleep(1)
                last = await sent(town, 0)
                slow = await tracks(town, last)
                assert slow["readers"] == "NOT_CONSUME_YET"
                assert slow["other"] == "NOT_ONLINE"

    async def tracks(town: MemoryCluster, result: SendResult) -> dict[str, str]:
        asked = await town.mqadmin("queryMsgByUniqueKey", "-t", "orders", "-i", result.message_id, "--json")
        return {track["consumerGroup"]: track["trackType"] for track in asked.json["messages"][0]["tracks"]}

    run_virtual(scene())


@virtual
async def test_a_message_is_sent_again() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        first = await sent(town, 0, tags="paid", keys=("k1",), properties={"a": "b"})
        again = await town.mqadmin(
            "queryMsgById", "-t", "orders", "-i", first.offset_message_id, "-s", "true"
        )
        assert again.out.startswith(f"prepare resend msg. originalMsgId={first.message_id}SendResult [")
        found = await town.mqadmin(
            "queryMsgByUniqueKey", "-t", "orders", "-i", first.message_id, "-a", "--json"
        )
        one, two = found.json["messages"]
        for same in ("body", "tags", "keys", "properties", "msgId"):
            assert one[same] == two[same]
        text = await town.mqadmin("queryMsgByUniqueKey", "-t", "orders", "-i", first.message_id, "-a")
        assert f"/tmp/rocketmq/msgbodys/{first.message_id}_1" in text.out


@virtual
async def test_a_file_name_made_by_a_sender_is_not_trusted() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        evil = await sent(town, 0, properties={"UNIQ_KEY": "../../../etc/passwd"})
        asked = await town.mqadmin("queryMsgById", "-t", "orders", "-i", evil.offset_message_id)
        assert f"Message Body Path:   /tmp/rocketmq/msgbodys/{evil.offset_message_id}\n" in asked.out


@virtual
async def test_queues_are_printed() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        await sent(town, 0, tags="paid")
        await sent(town, 1, b"\xe4\xbd\xa0", tags="open", keys=("k",))
        await sent(town, 1, b"three", tags="open")
        of_queue = ("printMsgByQueue", "-t", "orders", "-a", "broker-a", "-i", "1")
        printed = [
            await town.mqadmin("printMsg", "-t", "orders"),
            await town.mqadmin("printMsg", "-t", "orders", "-s", "paid", "-d", "false"),
            await town.mqadmin("printMsg", "-t", "orders", "-b", "2030-01-01#00:00:00:000"),
            await town.mqadmin(*of_queue),
            await town.mqadmin(*of_queue, "-p", "true", "-d", "true", "-f", "true"),
            await town.mqadmin("consumeMessage", "-t", "orders"),
            await town.mqadmin("consumeMessage", "-t", "orders", "-c", "2"),
            await town.mqadmin("consumeMessage", "-t", "orders", "-b", "broker-a", "-i1", "-o1"),
            await town.mqadmin("consumeMessage", "-t", "orders", "-b", "broker-a", "-i1", "-o7"),
            await town.mqadmin("consumeMessage", "-t", "orders", "-i", "1"),
            await town.mqadmin("consumeMessage", "-t", "orders", "-s", "2030-01-01#00:00:00:000"),
        ]
        golden("message_printed", *steady(*printed))
        found = (await town.mqadmin("printMsg", "-t", "orders", "--json")).json
        assert [one["body"] for one in found] == ["hello", "你", "three"]
        counted = (await town.mqadmin(*of_queue, "-p", "true", "-f", "true", "--json")).json
        assert (counted["count"], counted["tags"], len(counted["messages"])) == (2, {"open": 2}, 2)


@virtual
async def test_the_id_of_a_message_is_no_key() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        first = await sent(town, 0, keys=("k",))
        asked = await town.mqadmin("queryMsgByKey", "-t", "orders", "-k", first.message_id)
        assert (asked.status, asked.out) == (1, "")


@virtual
async def test_a_group_that_is_named_is_the_one_that_pulls() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 0)
        broker = town.brokers[0].address
        assert (await town.mqadmin("consumeMessage", "-t", "orders")).status == 0
        assert "lookers" not in await town.admin.groups.configs(broker)
        assert (await town.mqadmin("consumeMessage", "-t", "orders", "-g", "lookers")).status == 0
        assert "lookers" in await town.admin.groups.configs(broker)


@virtual
async def test_what_waits_for_a_group_is_printed_with_the_topic_that_holds_it() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 0)
        async with consumer(town, Reader(lambda body: True), max_reconsume_times=1):
            await town.clock.sleep(30)
        for topic in ("%RETRY%readers", "%DLQ%readers"):
            printed = await town.mqadmin("printMsg", "-t", topic)
            assert f"toString()=Message{{topic='{topic}', " in printed.out
        async with consumer(town, reader := Reader(), 2, group="g", topics={"%DLQ%readers": "*"}):
            await town.clock.sleep(6)
        assert [one.topic for one in reader.got] == ["%DLQ%readers"]


@virtual
async def test_a_broker_that_answers_with_the_last_message_before_a_time_hides_none() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        for body in (b"one", b"two"):
            await sent(town, 0, body)
            await town.clock.sleep(10)
        now = town.clock.now_ms()
        exact = Puller.offset_at

        async def nearest(self: Puller, queue: MessageQueue, time_ms: int) -> int:
            return min(await exact(self, queue, time_ms), 1)  # as 4.x with a time after the last message

        async def printed(begin: int, end: int) -> list[str]:
            asked = ("-b", str(now - begin), "-e", str(now - end), "--json")
            found = (await town.mqadmin("printMsg", "-t", "orders", *asked)).json
            of_queue = ("printMsgByQueue", "-t", "orders", "-a", "broker-a", "-i0", "-p", "true")
            assert (await town.mqadmin(*of_queue, *asked)).json["messages"] == found
            return [one["body"] for one in found]

        for offset_at in (exact, nearest):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Puller, "offset_at", offset_at)
                assert await printed(30_000, 0) == ["one", "two"]
                assert await printed(15_000, 0) == ["two"]
                assert await printed(30_000, 15_000) == ["one"]
                assert await printed(5_000, 0) == []


@virtual
async def test_a_message_is_sent_to_any_queue_or_to_one() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        to_one = (
            "sendMessage",
            "-t",
            "orders",
            "-p",
            "hello",
            "-k",
            "k",
            "-c",
            "t",
            "-b",
            "broker-a",
            "-i",
            "1",
        )
        printed = [
            await town.mqadmin(*to_one),
            await town.mqadmin("sendMessage", "-t", "orders", "-p", "x", "-i", "1"),
            await town.mqadmin("sendMessage", "-t", "orders", "-p", "x", "-b", "broker-a", "-i", "9"),
        ]
        golden("message_sent", *steady(*printed))
        any_queue = (await town.mqadmin("sendMessage", "-t", "orders", "-p", "x", "--json")).json
        assert any_queue["sendStatus"] == "SEND_OK"
        found = await town.mqadmin(
            "queryMsgByOffset", "-t", "orders", "-b", "broker-a", "-i1", "-o0", "--json"
        )
        (message,) = found.json["messages"]
        assert (message["body"], message["tags"], message["keys"]) == ("hello", "t", "k")


@virtual
async def test_a_trace_is_shown() -> None:
    async with cluster() as town:
        await town.create_topic("traces", 1)
        fields = [
            "Pub",
            "1700000000000",
            "r",
            "senders",
            "orders",
            "ID1",
            "t",
            "k",
            "host",
            "5",
            "7",
            "0",
        ]
        sent = FIELD_END.join([*fields, "OFFSET", "true"]) + RECORD_END
        after = ["SubAfter", "R1", "ID1", "3", "false", "k", "0", "1700000001000", "readers"]
        consumed = FIELD_END.join(after) + RECORD_END
        other = sent.replace("ID1", "ID2") + "nonsense" + RECORD_END + "Pub\x01short" + RECORD_END
        await town.send("traces", (other + sent).encode(), keys=("ID1", "ID2"))
        await town.send("traces", consumed.encode(), keys=("ID1",))
        asked = await town.mqadmin("queryMsgTraceById", "-i", "ID1", "-t", "traces")
        golden("message_trace", asked)
        assert (await town.mqadmin("QueryMsgTraceById", "-i", "ID1", "-t", "traces")).out == asked.out
        as_json = await town.mqadmin("queryMsgTraceById", "-i", "ID1", "-t", "traces", "--json")
        assert [(one["type"], one["status"]) for one in as_json.json["traces"]] == [
            ("Pub", "success"),
            ("SubAfter", "failed"),
        ]
