"""What tools ask a consumer through its broker, and what comes of it when the consumer does not play."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import Desk, records, running
from tests.unit.broker.resets_kit import beat

from turbopump.broker.groups import relay
from turbopump.protocol import record
from turbopump.protocol.bodies import GetConsumerStatusBody, WireQueue
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, reply
from turbopump.remoting.client import Client
from turbopump.remoting.router import Answer, Request, Route

INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
ASKED = (INFO, DIRECTLY, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
QUEUE = WireQueue("broker-a", 0, "T")

Handler = Callable[[Request[None]], Any]


class Consumer:
    """A member of group G that answers as it is told to."""

    def __init__(self, answer: Handler) -> None:
        self.asked: list[Command] = []
        self._answer = answer

    async def join(self, desk: Desk, client_id: str = "me", version: int = 479) -> Client:
        client = desk.visitor(dict.fromkeys(ASKED, Route(None, self._asked)))
        request = Command(RequestCode.HEART_BEAT, body=beat(client_id), version=version, language="JAVA")
        assert (await client.call(desk.address, request)).code == 0
        return client

    def _asked(self, request: Request[None]) -> Any:
        self.asked.append(request.command)
        return self._answer(request)


def never(request: Request[None]) -> None:
    """It has the request, and that was all."""


def leave(request: Request[None]) -> None:
    request.connection.abort()


def at(offset: int) -> Handler:
    body = GetConsumerStatusBody(messageQueueTable={QUEUE: offset}).encode()
    return lambda request: Answer(body=body)


async def ask_info(desk: Desk, client_id: str = "me", group: str = "G") -> Command:
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
    return await desk.ask(INFO, fields)


@virtual
async def test_the_consumers_own_answer_comes_back_as_it_is() -> None:
    def answer(request: Request[None]) -> Command:
        answered = reply(request.command, 0, "not set any response code", {"k": "v"}, b'{"properties":{}}')
        answered.language, answered.version = "GO", 317
        return answered

    async with running() as desk:
        consumer = Consumer(answer)
        client = await consumer.join(desk)
        answered = await ask_info(desk)
        assert (answered.code, answered.remark) == (0, "not set any response code")
        assert (answered.ext, answered.body) == ({"k": "v"}, b'{"properties":{}}')
        assert (answered.language, answered.version) == ("GO", 317)
        (asked,) = consumer.asked
        assert asked.ext == {"consumerGroup": "G", "clientId": "me", "jstackEnable": "false"}
        assert not asked.is_oneway
        await client.close()


@virtual
async def test_a_refusal_of_the_consumer_comes_back_too() -> None:
    async with running() as desk:
        client = await Consumer(lambda request: Answer(code=1, remark="no such group")).join(desk)
        answered = await ask_info(desk)
        assert (answered.code, answered.remark) == (1, "no such group")
        await client.close()


@pytest.mark.parametrize(("group", "client_id"), [("G", "zz"), ("nobody", "me")])
def test_who_is_not_there_is_said_so(group: str, client_id: str) -> None:
    @virtual
    async def test() -> None:
        async with running() as desk:
            client = await Consumer(never).join(desk)
            answered = await ask_info(desk, client_id, group)
            assert answered.code == 1
            assert answered.remark == f"The Consumer <{group}> <{client_id}> not online"
            await client.close()

    test()


@virtual
async def test_a_client_that_is_too_old_is_not_asked() -> None:
    async with running() as desk:
        consumer = Consumer(never)
        client = await consumer.join(desk, version=61)
        answered = await ask_info(desk)
        words = "The Consumer <me> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
        assert (answered.code, answered.remark) == (1, words)
        assert consumer.asked == []
        await client.close()


@virtual
async def test_a_consumer_that_does_not_answer_holds_a_tool_for_ten_seconds_and_no_longer() -> None:
    async with running() as desk:
        client = await Consumer(never).join(desk)
        began = asyncio.get_running_loop().time()
        answered = await ask_info(desk)
        assert answered.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert (answered.remark or "").startswith("consumer <G> <me> Timeout: ")
        assert asyncio.get_running_loop().time() - began == pytest.approx(10, abs=0.1)
        await client.close()


@virtual
async def test_a_consumer_that_leaves_instead_of_answering_ends_the_wait() -> None:
    async with running() as desk:
        await Consumer(leave).join(desk)
        began = asyncio.get_running_loop().time()
        answered = await ask_info(desk)
        assert answered.code == 1
        assert (answered.remark or "").startswith("invoke consumer <G> <me> Exception: ")
        assert asyncio.get_running_loop().time() - began < 1
        assert (await ask_info(desk)).remark == "The Consumer <G> <me> not online"


@virtual
async def test_a_consumer_that_owes_answers_is_not_asked_again_and_again() -> None:
    async with running() as desk:
        consumer = Consumer(never)
        client = await consumer.join(desk)
        most = relay.MAX_UNANSWERED
        asking = [asyncio.create_task(ask_info(desk)) for _ in range(most + 4)]
        await asyncio.sleep(1)
        refused = [task.result() for task in asking if task.done()]
        assert [(answer.code, answer.remark) for answer in refused] == [
            (1, "invoke consumer <G> <me> Exception: it has too many unanswered requests")
        ] * 4
        assert len(consumer.asked) == most
        answers = await asyncio.gather(*asking)
        assert sum(answer.code == ResponseCode.CONSUME_MSG_TIMEOUT for answer in answers) == most
        assert (await ask_info(desk)).code == ResponseCode.CONSUME_MSG_TIMEOUT, "and it may be asked again"
        await client.close()


# Consume one message now


@virtual
async def test_consuming_directly_takes_the_record_along() -> None:
    async with running() as desk:
        consumer = Consumer(lambda request: Answer(body=b'{"consumeResult":"CR_SUCCESS"}'))
        client = await consumer.join(desk)
        sent = await desk.send("T", b"hello")
        fields = {"consumerGroup": "G", "clientId": "me", "msgId": (sent.ext or {})["msgId"], "topic": "T"}
        answered = await desk.ask(DIRECTLY, fields)
        assert (answered.code, answered.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
        (asked,) = consumer.asked
        more = {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
        assert asked.ext == fields | more
        assert record.decode(asked.body) == records(await desk.pull("T", 0))[0]
        await client.close()


@pytest.mark.parametrize(
    ("offset_id", "remark"),
    [
        ("7F00000100002A9F0000000000999999", "can not find message by the offset, 10066329"),
        ("nonsense", "illegal message id 'nonsense'"),
        ("", "illegal message id ''"),
    ],
)
def test_consuming_directly_what_is_not_there(offset_id: str, remark: str) -> None:
    @virtual
    async def test() -> None:
        async with running() as desk:
            consumer = Consumer(never)
            client = await consumer.join(desk)
            answered = await desk.ask(DIRECTLY, {"consumerGroup": "G", "clientId": "me", "msgId": offset_id})
            assert (answered.code, answered.remark) == (1, remark)
            assert consumer.asked == []
            await client.close()

    test()


@virtual
async def test_consuming_directly_by_nobody_in_particular() -> None:
    async with running() as desk:
        sent = await desk.send("T", b"hello")
        answered = await desk.ask(DIRECTLY, {"consumerGroup": "G", "msgId": (sent.ext or {})["msgId"]})
        assert (answered.code, answered.remark) == (1, "The Consumer <G> <null> not online")


# Where consumers are


async def ask_status(desk: Desk, client_id: str = "") -> Command:
    return await desk.ask(STATUS, {"topic": "T", "group": "G", "clientAddr": client_id})


def offsets(answer: Command) -> dict[str, dict[WireQueue, int]]:
    assert (answer.code, answer.remark) == (0, "not set any response code")
    return GetConsumerStatusBody.decode(answer.body).consumerTable


@virtual
async def test_where_all_consumers_of_a_group_are_or_one_of_them() -> None:
    async with running() as desk:
        one, two = Consumer(at(7)), Consumer(at(8))
        clients = [await one.join(desk, "one"), await two.join(desk, "two")]
        answered = await ask_status(desk)
        assert offsets(answered) == {"one": {QUEUE: 7}, "two": {QUEUE: 8}}
        assert b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:7' in answered.body
        assert one.asked[0].ext == {"topic": "T", "group": "G"}
        assert offsets(await ask_status(desk, "two")) == {"two": {QUEUE: 8}}
        assert offsets(await ask_status(desk, "zz")) == {}
        for client in clients:
            await client.close()


@virtual
async def test_who_is_silent_leaves_or_talks_nonsense_is_left_out_after_five_seconds() -> None:
    async with running() as desk:
        answers: list[Handler] = [at(7), never, leave, lambda request: Answer(body=b"nonsense")]
        answers += [lambda request: Answer(code=1), lambda request: Answer()]
        clients = [await Consumer(answer).join(desk, f"c{i}") for i, answer in enumerate(answers)]
        began = asyncio.get_running_loop().time()
        assert offsets(await ask_status(desk)) == {"c0": {QUEUE: 7}}
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.1)
        for client in clients:
            await client.close()


@virtual
async def test_a_large_group_is_asked_in_turns() -> None:
    async with running() as desk:
        clients = [await Consumer(at(i)).join(desk, f"c{i}") for i in range(relay.MAX_CONCURRENT_CALLS * 2)]
        assert len(offsets(await ask_status(desk))) == len(clients)
        for client in clients:
            await client.close()


@virtual
async def test_answers_beyond_a_bound_are_left_out() -> None:
    big = GetConsumerStatusBody(messageQueueTable={QUEUE: 1}).encode() + b" " * (relay.MAX_STATUS_BYTES // 2)
    async with running() as desk:
        clients = [await Consumer(lambda request: Answer(body=big)).join(desk, f"c{i}") for i in range(3)]
        assert len(offsets(await ask_status(desk))) == 1
        for client in clients:
            await client.close()


@virtual
async def test_a_group_without_members_or_with_one_too_old_has_no_status() -> None:
    async with running() as desk:
        answered = await ask_status(desk)
        assert (answered.code, answered.remark) == (1, "No Any Consumer online in the consumer group: [G]")
        client = await Consumer(at(1)).join(desk, version=27)
        answered = await ask_status(desk)
        words = "the client does not support this feature. version=V3_0_6"
        assert (answered.code, answered.remark) == (1, words)
        await client.close()


@virtual
async def test_a_broker_that_stops_waits_for_no_consumer() -> None:
    async with running() as desk:
        client = await Consumer(never).join(desk)
        asking = [asyncio.create_task(ask_info(desk)), asyncio.create_task(ask_status(desk))]
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        await desk.broker.stop()
        assert asyncio.get_running_loop().time() - began < 12
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await client.close()
