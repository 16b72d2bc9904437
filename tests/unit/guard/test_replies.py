"""Replies to requests reach the user that asked, and no other one that connects with the same client id."""

import json
from typing import Any

from tests.kit import virtual
from tests.unit.broker.desk import letters
from tests.unit.guard.kit import ALICE, NOBODY, ROOT, GuardedDesk, guarded, guarded_broker

from turbopump.auth.signature import Credentials
from turbopump.guard import reply_receivers
from turbopump.guard.reply_receivers import KEPT_S, ReplyReceivers
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route

REPLIES = "DefaultCluster_REPLY_TOPIC"
ASKED = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c1", "TTL": "3000"}


class Producer:
    """A client that says that it produces, and the replies that it got."""

    def __init__(self, who: Credentials, desk: GuardedDesk) -> None:
        self.got: list[bytes] = []
        self.who = who
        self._desk = desk
        self.client: Client = desk.desk.visitor({Code.PUSH_REPLY_MESSAGE_TO_CLIENT: Route(None, self._take)})

    async def beats(self, group: str = "P", client_id: str = "asker") -> "Producer":
        beat = {"clientID": client_id, "producerDataSet": [{"groupName": group}]}
        body = json.dumps(beat).encode()
        assert (await self._desk.ask(self.who, Code.HEART_BEAT, {}, body, self.client)).code == 0
        return self

    def _take(self, request: Request[Any]) -> Answer:
        self.got.append(request.command.body)
        return Answer()


async def reply(desk: GuardedDesk, body: bytes = b"answer") -> Command:
    return await desk.ask(ROOT, Code.SEND_REPLY_MESSAGE_V2, letters(REPLIES, pairs=ASKED), body)


@virtual
async def test_hole_any_user_takes_replies_over_with_the_client_id_of_another_one() -> None:
    async with guarded_broker() as desk:
        asker = await Producer(ALICE, desk).beats()
        thief = await Producer(NOBODY, desk).beats()
        await asker.beats("another group")  # is the newest connection now
        await thief.beats("another group")
        assert (await reply(desk)).code == 0
        assert (asker.got, thief.got) == ([b"answer"], [])
        for one in (asker, thief):
            await one.client.close()


@virtual
async def test_the_newest_connection_of_the_same_user_gets_the_reply() -> None:
    async with guarded_broker() as desk:
        before, after = await Producer(ALICE, desk).beats(), await Producer(ALICE, desk).beats()
        assert (await reply(desk)).code == 0
        assert (before.got, after.got) == ([], [b"answer"])
        for one in (before, after):
            await one.client.close()


@virtual
async def test_hole_who_was_first_with_a_client_id_gets_the_replies_to_requests_of_another_user() -> None:
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        thief, asker = await Producer(NOBODY, desk).beats(), await Producer(ALICE, desk).beats()
        await desk.done(ALICE, Code.SEND_MESSAGE_V2, letters("T", pairs=ASKED), b"question")
        await desk.grant(NOBODY, "Topic:N", "Pub")
        await desk.done(NOBODY, Code.SEND_MESSAGE_V2, letters("N", pairs=ASKED), b"question")
        assert (await reply(desk)).code == 0
        assert (asker.got, thief.got) == ([b"answer"], [])
        for one in (asker, thief):
            await one.client.close()


@virtual
async def test_a_client_id_stays_that_of_its_user_while_it_connects_again() -> None:
    async with guarded_broker() as desk:
        asker = await Producer(ALICE, desk).beats()
        await asker.client.close()
        thief = await Producer(NOBODY, desk).beats()
        refused = await reply(desk)
        assert "channel of <asker> not found" in (refused.remark or "")
        again = await Producer(ALICE, desk).beats()
        assert (await reply(desk)).code == 0
        assert (again.got, thief.got) == ([b"answer"], [])
        for one in (again, thief):
            await one.client.close()


@virtual
async def test_a_user_that_was_disabled_gets_no_reply() -> None:
    async with guarded_broker() as desk:
        asker = await Producer(ALICE, desk).beats()
        body = b'{"userStatus":"disable"}'
        await desk.done(ROOT, Code.AUTH_UPDATE_USER, {"username": "alice"}, body)
        assert (await reply(desk)).code != 0
        assert asker.got == []
        await asker.client.close()


@virtual
async def test_a_dry_run_gives_replies_to_the_newest_connection() -> None:
    async with guarded_broker(guarded(authDryRun="true")) as desk:
        before, after = await Producer(ALICE, desk).beats(), await Producer(NOBODY, desk).beats()
        assert (await reply(desk)).code == 0
        assert (before.got, after.got) == ([], [b"answer"])
        for one in (before, after):
            await one.client.close()


@virtual
async def test_hole_a_right_to_any_topic_pushes_a_message_to_any_client() -> None:
    async with guarded_broker() as desk:
        asker = await Producer(ALICE, desk).beats()
        await desk.grant(NOBODY, "Topic:mine", "Pub")
        await desk.done(NOBODY, Code.SEND_MESSAGE_V2, letters("mine"), b"to make the topic")
        for code in (Code.SEND_REPLY_MESSAGE_V2, Code.SEND_REPLY_MESSAGE):
            fields = letters("mine", pairs=ASKED) | {"topic": "mine"}
            refused = await desk.ask(NOBODY, code, fields, b"forged")
            assert (refused.code, f"Topic:{REPLIES}" in (refused.remark or "")) == (16, True)
        assert asker.got == []
        await asker.client.close()


def some_connection() -> Connection:
    return object()  # type: ignore[return-value]


def test_an_idle_client_id_is_free_after_a_while() -> None:
    table, one = ReplyReceivers(), some_connection()
    assert table.beat("c", "alice", one, 0.0)
    table.closed("c", one, 10.0)
    assert not table.beat("c", "bob", one, 10.0 + KEPT_S - 1)
    assert table.beat("c", "bob", one, 10.0 + KEPT_S)
    assert table.may_receive("c", "", "bob")
    assert not table.may_receive("c", "", "alice")


def test_the_tables_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(reply_receivers, "MAX_IDLE", 2)
    monkeypatch.setattr(reply_receivers, "MAX_REQUESTS", 2)
    table, one = ReplyReceivers(), some_connection()
    for number in range(5):
        table.beat(f"c{number}", "alice", one, 0.0)
        table.closed(f"c{number}", one, 0.0)
        table.asked(f"id{number}", "alice")
    assert (len(table._owners), len(table._idle), len(table._requests)) == (2, 2, 2)
    table.asked("x" * 256, "alice")
    table.beat("x" * 256, "alice", one, 0.0)
    assert not table.may_receive("x" * 256, "x" * 256, "alice")
