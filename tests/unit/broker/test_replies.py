"""Request and reply: the answer reaches who asked, or the one who answers hears why not."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, Desk, letters, records, running

from turbopump.broker import config as configuration
from turbopump.broker.produce import replies
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.remoting.router import Answer, Request, Route

REPLY, REPLY_V2 = RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
TOPIC = "DefaultCluster_REPLY_TOPIC"
TO_ASKER = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c1", "MSG_TYPE": "reply", "TTL": "3000"}


class Asker:
    """The client that sent a request message and waits for its answer."""

    def __init__(self, answer: Any = None) -> None:
        self.got: list[Command] = []
        self._answer = answer

    async def join(self, desk: Desk, client_id: str = "asker") -> Client:
        client = desk.visitor({RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: Route(None, self._take)})
        beat = {"clientID": client_id, "producerDataSet": [{"groupName": "P"}]}
        request = Command(RequestCode.HEART_BEAT, body=msgspec.json.encode(beat))
        assert (await client.call(desk.address, request)).code == 0
        return client

    def _take(self, request: Request[None]) -> Any:
        self.got.append(request.command)
        return self._answer


async def answer_to(desk: Desk, body: bytes = b"answer", **pairs: str) -> Command:
    return await desk.ask(REPLY_V2, letters(TOPIC, pairs=TO_ASKER | pairs, f=1, h=7), body)


@virtual
async def test_a_reply_reaches_who_asked_and_is_kept() -> None:
    async with running() as desk:
        asker = Asker(Answer())
        client = await asker.join(desk)
        answer = await answer_to(desk)
        assert (answer.code, answer.remark) == (0, None)
        fields = answer.ext or {}
        assert (fields["queueId"], fields["queueOffset"]) == ("0", "0")
        assert fields["msgId"].startswith("7F000001")
        assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ("DefaultRegion", "true")
        assert "transactionId" not in fields
        (pushed,) = asker.got
        assert pushed.body == b"answer"
        ext = dict(pushed.ext or {})
        pairs = properties.parse(ext.pop("properties"))
        time_ms = ext.pop("storeTimestamp")
        assert ext.pop("bornHost").startswith("127.0.0.1:")
        assert ext == {
            "producerGroup": "PG",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "1",
            "bornTimestamp": "1794732388420",
            "flag": "7",
            "storeHost": "127.0.0.1:10911",
            "reconsumeTimes": "0",
            "unitMode": "false",
        }
        added = {"PUSH_REPLY_TIME": time_ms, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert pairs.items() >= (TO_ASKER | added).items()
        (kept,) = records(await desk.pull(TOPIC, 0))
        assert (kept.body, kept.sys_flag & 1, kept.flag) == (b"answer", 1, 7)
        assert kept.property_map()["CORRELATION_ID"] == "c1"
        await client.close()


@virtual
async def test_an_empty_reply_reaches_who_asked_and_is_kept() -> None:
    """Go's clients answer so when they have nothing to say."""
    async with running() as desk:
        asker = Asker(Answer())
        client = await asker.join(desk)
        answer = await answer_to(desk, b"")
        assert (answer.code, answer.remark) == (0, None)
        (pushed,) = asker.got
        assert pushed.body == b""
        assert properties.parse((pushed.ext or {})["properties"])["CORRELATION_ID"] == "c1"
        (kept,) = records(await desk.pull(TOPIC, 0))
        assert (kept.body, kept.property_map()["CORRELATION_ID"]) == (b"", "c1")
        await client.close()


@virtual
async def test_the_long_form_of_the_request_does_the_same() -> None:
    long = """producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag
        properties reconsumeTimes unitMode batch"""
    names = dict(zip("abcdefghijkm", long.split(), strict=True))
    async with running() as desk:
        asker = Asker(Answer())
        client = await asker.join(desk)
        ext = {names[letter]: value for letter, value in letters(TOPIC, pairs=TO_ASKER).items()}
        assert (await desk.ask(REPLY, ext, b"answer")).code == 0
        assert asker.got[0].body == b"answer"
        await client.close()


@virtual
async def test_a_reply_that_reaches_nobody_is_kept_and_refused() -> None:
    async with running() as desk:
        answer = await answer_to(desk)
        words = "push reply message fail, channel of <asker> not found."
        assert (answer.code, answer.remark) == (1, words)
        assert (answer.ext or {})["queueOffset"] == "0"
        answer = await desk.ask(REPLY_V2, letters(TOPIC), b"answer")
        assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
        assert (answer.ext or {})["queueOffset"] == "1"
        assert len(records(await desk.pull(TOPIC, 0))) == 2


@virtual
async def test_an_asker_that_refuses_or_leaves_is_told_to_who_answered() -> None:
    async with running() as desk:
        client = await Asker(Answer(code=1, remark="nobody waits for it")).join(desk)
        answer = await answer_to(desk)
        assert (answer.code, answer.remark) == (1, "push reply message to askerfail.")
        await client.close()
        await asyncio.sleep(0.1)
        answer = await answer_to(desk)
        assert (answer.remark or "").endswith("channel of <asker> not found.")


@virtual
async def test_an_asker_that_does_not_answer_holds_a_reply_for_ten_seconds_and_no_longer() -> None:
    async with running() as desk:
        client = await Asker(None).join(desk)
        began = asyncio.get_running_loop().time()
        answer = await answer_to(desk)
        assert (answer.code, answer.remark) == (1, "push reply message to askerfail.")
        assert asyncio.get_running_loop().time() - began == pytest.approx(10, abs=0.1)
        await client.close()


@virtual
async def test_an_asker_owes_so_many_answers_and_no_more() -> None:
    before, replies.MAX_UNANSWERED = replies.MAX_UNANSWERED, 3
    try:
        async with running() as desk:
            asker = Asker(None)
            client = await asker.join(desk)
            sent = [asyncio.create_task(answer_to(desk)) for _ in range(5)]
            await asyncio.sleep(1)
            assert (len(asker.got), sum(task.done() for task in sent)) == (3, 2)
            await asyncio.gather(*sent)
            await client.close()
    finally:
        replies.MAX_UNANSWERED = before


@virtual
async def test_replies_need_not_be_kept() -> None:
    config = replace(CONFIG, sending=configuration.SendConfig(store_replies=False))
    async with running(config) as desk:
        client = await Asker(Answer()).join(desk)
        answer = await answer_to(desk)
        assert answer.code == 0
        assert answer.ext == {
            "msgId": "0",
            "queueId": "0",
            "queueOffset": "0",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        assert records(await desk.pull(TOPIC, 0)) == []
        await client.close()


@virtual
async def test_what_could_not_be_sent_is_not_handed_on() -> None:
    async with running() as desk:
        asker = Asker(Answer())
        client = await asker.join(desk)
        assert (await answer_to(desk, DELAY="3")).code == 13
        ext = letters("nope!", pairs=TO_ASKER)
        assert (await desk.ask(REPLY_V2, ext, b"answer")).code == 29
        assert asker.got == []
        await client.close()
