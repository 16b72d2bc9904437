"""The push consumer against a broker in memory, in virtual time."""

from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.listening import Reader, committed, consumer, plain, world

from turbopump.client.message import MessageQueue
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, decode, request
from turbopump.protocol.frame import Frame
from turbopump.protocol.frame import cut as cut_frames
from turbopump.protocol.headers.client import GetConsumerListByGroupRequest
from turbopump.protocol.packed_send import PackedSend
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import run_virtual


async def sent(town: MemoryCluster, count: int, start: int = 0, **message: Any) -> list[bytes]:
    texts = [b"%03d" % number for number in range(start, start + count)]
    for text in texts:
        await town.send("orders", text, **message)
    return texts


@virtual
async def test_what_was_sent_and_what_comes_is_consumed_and_the_next_run_goes_on_there() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        texts = await sent(town, 20)
        reader = Reader()
        async with consumer(town, reader):
            await town.clock.sleep(2)
            texts += await sent(town, 20, 20)
            await town.clock.sleep(2)
            assert reader.bodies == texts
        assert await committed(town) == [10, 10, 10, 10]
        again = Reader()
        async with consumer(town, again):
            await town.clock.sleep(5)
        assert again.got == []


@virtual
async def test_offsets_are_committed_every_five_seconds() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 8)
        async with consumer(town, Reader()):
            await town.clock.sleep(6)
            assert await committed(town) == [2, 2, 2, 2]


@virtual
async def test_only_wanted_tags_are_consumed_and_the_others_are_passed_over() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 8, tags="paid")
        await sent(town, 8, 100, tags="open")
        reader = Reader()
        async with consumer(town, reader, topics={"orders": "paid || lost"}):
            await town.clock.sleep(2)
        assert [message.tags for message in reader.got] == ["paid"] * 8
        assert await committed(town) == [4, 4, 4, 4]


@pytest.mark.parametrize("ordered", [False, True])
@virtual
async def test_a_namespace_is_on_the_wire_and_handlers_do_not_see_it(ordered: bool) -> None:
    async with cluster() as town:
        await town.create_topic("shop%orders")
        await town.send("shop%orders", b"paid")
        reader = Reader()
        made = plain(town, namespace="shop")
        made.subscribe("orders", reader, ordered=ordered)
        async with made:
            await town.clock.sleep(30)
        assert [(one.topic, one.reconsume_times) for one in reader.got] == [("orders", 0)]


@virtual
async def test_two_members_share_the_queues_and_the_one_left_takes_all() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        first, second = Reader(), Reader()
        async with consumer(town, first, 1):
            async with consumer(town, second, 2):
                await town.clock.sleep(2)
                await sent(town, 8)
                await town.clock.sleep(1)
                owners = [{message.queue.id for message in one.got} for one in (first, second)]
                assert sorted(map(sorted, owners)) == [[0, 1], [2, 3]]
            await town.clock.sleep(1)
            texts = await sent(town, 8, 8)
            await town.clock.sleep(1)
            assert set(texts) <= {message.body for message in first.got}
        assert sorted(first.bodies + second.bodies) == [b"%03d" % number for number in range(16)]


def test_a_group_that_starts_at_the_end_sees_only_what_comes() -> None:
    """The broker says 0 for a young queue without a committed offset; a queue that has lost its first
    messages has an end of its own."""

    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            reader = Reader()
            at_the_end = consumer(town, reader, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
            queue = MessageQueue("orders", "broker-a", 0)
            await sent(town, 3)
            async with at_the_end:
                engine = at_the_end._running
                assert await engine._start_of(queue) == 0
                engine._offsets.query = nothing  # type: ignore[method-assign]
                assert await engine._start_of(queue) == 3
                assert await engine._start_of(MessageQueue("%RETRY%readers", "broker-a", 0)) == 0

    async def nothing(queue: MessageQueue) -> int | None:
        return None

    run_virtual(scene())


@virtual
async def test_a_topic_that_is_created_later_is_found() -> None:
    async with cluster() as town:
        await town.create_topic("other")
        reader = Reader()
        async with consumer(town, reader, topics={"orders": "*", "other": "*"}):
            await town.clock.sleep(30)
            await town.create_topic("orders")
            await sent(town, 4)
            await town.clock.sleep(5)
            assert len(reader.got) == 4


@virtual
async def test_a_consumer_may_be_there_before_its_topic() -> None:
    async with cluster() as town:
        reader = Reader()
        async with consumer(town, reader):
            await town.clock.sleep(45)
            await town.create_topic("orders")
            await sent(town, 4)
            await town.clock.sleep(3)
            assert len(reader.got) == 4


@virtual
async def test_queues_that_are_added_are_taken_up() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        reader = Reader()
        async with consumer(town, reader):
            await town.clock.sleep(2)
            await town.create_topic("orders", 4)
            await town.clock.sleep(25)
            await town.admin.routes.refresh("orders")
            await sent(town, 8)
            await town.clock.sleep(2)
            assert len(reader.got) == 8
            assert {message.queue.id for message in reader.got} == {0, 1, 2, 3}


@virtual
async def test_a_lost_connection_costs_a_moment_and_no_message() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        reader = Reader()
        async with consumer(town, reader):
            await town.clock.sleep(2)
            town.network.break_connections("127.0.0.1")
            await sent(town, 8)
            await town.clock.sleep(4)
            assert len({message.message_id for message in reader.got}) == 8
            listed = await town.admin.client.call(town.brokers[0].address, _members_of("readers"), 3.0)
            assert len(bodies.ConsumerListBody.decode(listed.body).consumerIdList) == 1


@virtual
async def test_a_message_that_can_neither_be_consumed_nor_sent_back_holds_its_offset() -> None:
    """Row 17 of the known failures: the send-back fails, the offset must stay, the message comes again."""

    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 5)
        reader = Reader(lambda body: body == b"002")
        async with consumer(town, reader) as broken:
            refuse(broken, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2)
            await town.clock.sleep(10)
            assert await committed(town, queues=1) == [2]
            assert reader.bodies.count(b"002") == 2  # again here, five seconds after three of tries
            assert [one.reconsume_times for one in reader.got if one.body == b"002"] == [0, 1]
        assert await committed(town, queues=1) == [2]
        healed = Reader()
        async with consumer(town, healed):
            await town.clock.sleep(2)
        assert healed.bodies == [b"002", b"003", b"004"]
        assert await committed(town, queues=1) == [5]


@virtual
async def test_a_message_that_is_sent_back_lets_the_offset_go_on() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 3)
        reader = Reader(lambda body: body == b"001")
        async with consumer(town, reader) as accepting:
            asked = accept(accepting, RequestCode.CONSUMER_SEND_MSG_BACK)
            await town.clock.sleep(2)
            (back,) = asked
            assert back.ext is not None
            assert (back.ext["group"], back.ext["originTopic"], back.ext["delayLevel"]) == (
                "readers",
                "orders",
                "0",
            )
        assert await committed(town, queues=1) == [3]


@virtual
async def test_when_the_broker_takes_nothing_back_a_copy_is_sent() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await town.send("orders", b"no", tags="t", keys=("k",))
        async with consumer(town, Reader(lambda body: True)) as lonely:
            refuse(lonely, RequestCode.CONSUMER_SEND_MSG_BACK)
            copies = accept(lonely, RequestCode.SEND_MESSAGE_V2)
            await town.clock.sleep(2)
            (copy,) = copies
            assert copy.ext is not None
            assert (copy.ext["b"], copy.ext["j"], copy.ext["l"]) == ("%RETRY%readers", "1", "16")
            for pair in ("RETRY_TOPIC\x01orders", "DELAY\x013", "TAGS\x01t", "KEYS\x01k"):
                assert pair in copy.ext["i"]
            assert "RECONSUME_TIME" not in copy.ext["i"]
        assert await committed(town, queues=1) == [1]


@virtual
async def test_stopping_waits_for_what_listeners_have_in_hand() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 3)
        reader = Reader()
        reader.pause_s = 4.0
        slow = consumer(town, reader, workers=1)
        async with slow:
            await town.clock.sleep(1)
        assert reader.bodies == [b"000"]
        assert await committed(town, queues=1) == [1]


@virtual
async def test_stopping_gives_up_a_listener_that_never_ends() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 1)
        reader = Reader()
        reader.pause_s = 1e9
        async with consumer(town, reader, await_termination_when_shutdown=3.0):
            await town.clock.sleep(1)
        assert await committed(town, queues=1) == [0]


@virtual
async def test_a_consumer_tells_about_itself_and_consumes_one_message_for_a_tool() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 2)
        reader = Reader()
        async with consumer(town, reader) as told:
            await town.clock.sleep(2)
            answer = told._running.running_info(with_stacks=False)
            assert answer.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            (queue,) = [one for one in answer.mqTable if one.topic == "orders"]
            assert answer.mqTable[queue].commitOffset == 2
            assert answer.statusTable["orders"].consumeOKTPS > 0
            result = await told._running.consume_directly(reader.got[0])
            assert (result.consumeResult, len(reader.got)) == ("CR_SUCCESS", 3)
            reader.refuses = lambda body: True
            result = await told._running.consume_directly(reader.got[0])
            assert (result.consumeResult, result.remark) == (
                "CR_THROW_EXCEPTION",
                "ValueError: not this one",
            )


@virtual
async def test_a_reset_to_the_beginning_delivers_everything_again() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        texts = await sent(town, 3)
        reader = Reader()
        async with consumer(town, reader) as moved:
            await town.clock.sleep(2)
            queue = MessageQueue("orders", "broker-a", 0)
            await moved._running.reset({queue: 1})
            await town.clock.sleep(2)
            assert reader.bodies == sorted(texts + texts[1:])
        assert await committed(town, queues=1) == [3]


@virtual
async def test_a_failed_message_comes_again_with_growing_delays_and_dies_at_last() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        began_ms = town.clock.now_ms()
        await sent(town, 2)
        reader = Reader(lambda body: body == b"001")
        async with consumer(town, reader, max_reconsume_times=3):
            await town.clock.sleep(200)
        failed = [one for one in reader.got if one.body == b"001"]
        assert [one.reconsume_times for one in failed] == [0, 1, 2, 3]
        assert {one.topic for one in failed} == {"orders"}
        assert len({one.message_id for one in failed}) == 1
        seconds = [(one.store_timestamp - began_ms) // 1000 for one in failed]
        assert seconds[1:] == [10, 40, 100]  # 10 s, 30 s and 1 min one after the other
        letter = await town.admin.messages.at_offset(MessageQueue("%DLQ%readers", "broker-a", 0), 0)
        assert letter is not None
        assert (letter.body, letter.message_id) == (b"001", failed[0].message_id)
        assert await committed(town, queues=1) == [2]


def test_members_come_and_go_and_nothing_is_lost_or_taken_back() -> None:
    """Row 18 of the known failures: with every change of the members, offsets only grow."""

    async def scene(seed: int) -> None:
        chance = Chance(seed)
        async with cluster() as town:
            await town.create_topic("orders", 8)
            readers: list[Reader] = []
            members: list[Consumer] = []
            texts: list[bytes] = []
            highest = [0] * 8
            for turn in range(40):
                if len(members) < 4 and chance.random() < 0.5:
                    readers.append(Reader())
                    readers[-1].pause_s = chance.random()
                    members.append(consumer(town, readers[-1], 100 * seed + turn))
                    await members[-1].start()
                elif members and chance.random() < 0.4:
                    await members.pop(chance.randrange(len(members))).close()
                texts += await sent(town, 5, len(texts))
                await town.clock.sleep(chance.uniform(0.1, 5))
                now = [offset or 0 for offset in await committed(town, queues=8)]
                assert all(new >= old for new, old in zip(now, highest, strict=True))
                highest = now
            for member in members:
                await member.close()
            last = Reader()
            async with consumer(town, last):
                await town.clock.sleep(10)
            assert {one.body for reader in (*readers, last) for one in reader.got} == set(texts)
            assert sum(offset or 0 for offset in await committed(town, queues=8)) == len(texts)

    for seed in range(3):
        run_virtual(scene(seed))


@virtual
async def test_an_answer_that_cannot_be_read_ends_nothing() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 2)
        reader = Reader()
        async with consumer(town, reader) as patient:
            call, broken = patient._running._instance.client.call, [0]

            async def answer(address: str, question: Command, timeout_s: float = 3.0) -> Command:
                found = await call(address, question, timeout_s)
                if broken[0] < 20:
                    broken[0] += 1
                    found.body = b"nonsense"
                return found

            patient._running._instance.client.call = answer  # type: ignore[method-assign]
            await town.clock.sleep(40)
            assert reader.bodies == [b"000", b"001"]


@virtual
async def test_without_a_name_server_it_does_not_start() -> None:
    async with cluster(brokers=0) as town:
        alone = Consumer("readers", name_servers="127.0.0.1:9999", world=world(town))
        alone.subscribe("orders", Reader())
        with pytest.raises(OSError):
            await alone.start()


def refuse(consumer: Consumer, *codes: int) -> None:
    """From now on these requests never arrive."""
    call = consumer._running._instance.client.call

    async def cut(address: str, question: Command, timeout_s: float = 3.0) -> Command:
        if question.code in codes:
            raise ConnectionResetError("cut")
        return await call(address, question, timeout_s)

    consumer._running._instance.client.call = cut  # type: ignore[method-assign]
    consumer._running._instance.client.ask = lambda *_: None  # type: ignore[method-assign]


def accept(consumer: Consumer, code: int) -> list[Command]:
    """From now on these requests are answered with success and collected."""
    call = consumer._running._instance.client.call
    asked: list[Command] = []

    async def answer(address: str, question: Command, timeout_s: float = 3.0) -> Command:
        if question.code != code:
            return await call(address, question, timeout_s)
        asked.append(readable(question))
        return Command(0, ext={"msgId": "", "queueId": "0", "queueOffset": "0"})

    consumer._running._instance.client.call = answer  # type: ignore[method-assign]
    consumer._running._instance.client.ask = lambda *_: None  # type: ignore[method-assign]
    return asked


def readable(question: Command | PackedSend) -> Command:
    """A send is written for the wire before its connection sees it."""
    if isinstance(question, Command):
        return question
    frames: list[Frame] = []
    cut_frames(question.frame(1), frames)
    return decode(frames[0])


def _members_of(group: str) -> Command:
    return request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequest(group))
