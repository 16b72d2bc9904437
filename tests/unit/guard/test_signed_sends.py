"""Signed sends that are checked together pass or stop by the same decisions as one by one."""

import asyncio
import random
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import letters
from tests.unit.guard.kit import ALICE, NOBODY, ROOT, GuardedDesk, guarded, guarded_broker

from turbopump.auth.signature import Credentials
from turbopump.compiled import twins
from turbopump.guard.signed_sends import SignedSends
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command

pytestmark = pytest.mark.skipif(twins() is None, reason="needs the compiled reader")

NO_PERMISSION, SYSTEM_BUSY = 16, 2
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%secret"}


def send(who: Credentials | None, topic: str = "T", body: bytes = b"x", **changes: Any) -> Command:
    fields = {name: str(value) for name, value in letters(topic, **changes).items()}
    return Command(
        Code.SEND_MESSAGE_V2,
        ext=fields if who is None else who.signed(fields, body),
        body=body,
        language="JAVA",
    )


def forged(command: Command) -> Command:
    """The same signed request about another topic."""
    command.ext = {**(command.ext or {}), "b": "Other"}
    return command


async def ask_together(desk: GuardedDesk, sends: list[Command]) -> list[Command]:
    """Sends all requests in one write, which the broker reads in one event."""
    connection = await desk.client.connect(desk.desk.address)
    return list(await asyncio.gather(*(connection.call(one, 10) for one in sends)))


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many bytes of each read event passed together, and how many it had."""
    found: list[tuple[int, int]] = []
    prefix = SignedSends.prefix

    def recorded(sends: SignedSends, connection: Any, data: bytes, *rest: Any) -> int:
        found.append((prefix(sends, connection, data, *rest), len(data)))
        return found[-1][0]

    monkeypatch.setattr(SignedSends, "prefix", recorded)
    return found


async def prepare(desk: GuardedDesk) -> None:
    for topic in ("T", "Other"):
        await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters(topic), b"first")
    await desk.grant(ALICE, "Topic:T", "Pub")


@virtual
async def test_sends_of_users_who_may_are_stored_together(passed: list[tuple[int, int]]) -> None:
    async with guarded_broker() as desk:
        await prepare(desk)
        passed.clear()
        answers = await ask_together(desk, [send(ALICE, body=b"%d" % number) for number in range(20)])
        assert [answer.code for answer in answers] == [0] * 20
        assert [int((answer.ext or {})["queueOffset"]) for answer in answers] == list(range(1, 21))
        (used, size) = passed[0]
        assert used == size


@pytest.mark.parametrize(
    ("bad", "remark"),
    [
        (lambda: send(NOBODY), "User:nobody has no permission to access Topic:T"),
        (lambda: send(ALICE, "Other"), "User:alice has no permission to access Topic:Other"),
        (lambda: send(Credentials("alice", "guessed")), "check signature failed."),
        (lambda: send(Credentials("eve", "guessed")), "User:eve is not found."),
        (lambda: send(None), "username cannot be null."),
        (lambda: forged(send(ALICE)), "check signature failed."),
        (lambda: send(ALICE, pairs=LIGHT), "User:alice has no permission to access Topic:%LMQ%secret"),
        (lambda: send(ALICE, "%RETRY%G"), "User:alice has no permission to access Group:G"),
    ],
    ids=["no right", "another topic", "guessed", "unknown", "unsigned", "forged", "light queue", "retry"],
)
@virtual
async def test_a_send_that_is_refused_alone_is_refused_among_others(
    bad: Any, remark: str, passed: list[tuple[int, int]]
) -> None:
    async with guarded_broker() as desk:
        await prepare(desk)
        end = desk.desk.store.log.end
        answers = await ask_together(desk, [send(ALICE), bad(), send(ALICE)])
        assert [answer.code for answer in answers] == [0, NO_PERMISSION, 0]
        assert (answers[1].remark or "").startswith(remark)
        alone = await ask_together(desk, [bad()])
        assert (alone[0].code, alone[0].remark) == (answers[1].code, answers[1].remark)
        assert desk.desk.store.log.end > end


@virtual
async def test_any_mixture_is_answered_as_one_by_one(passed: list[tuple[int, int]]) -> None:
    chance = random.Random(20)
    kinds = (
        lambda: send(ALICE),
        lambda: send(ALICE, body=b"y" * 3000),
        lambda: send(ROOT, "Other"),
        lambda: send(ALICE, "Other"),
        lambda: send(NOBODY),
        lambda: send(None),
        lambda: send(ROOT, pairs=LIGHT),
        lambda: Command(Code.GET_BROKER_CONFIG, ext=ALICE.signed({}, b"")),
    )
    async with guarded_broker() as desk:
        await prepare(desk)
        for _ in range(60):
            chosen = [chance.choice(kinds) for _ in range(chance.randint(1, 12))]
            together = [answer.code for answer in await ask_together(desk, [one() for one in chosen])]
            alone = [(await ask_together(desk, [one()]))[0].code for one in chosen]
            assert together == alone
        assert any(0 < used < size for used, size in passed)


@virtual
async def test_a_user_who_has_to_wait_is_not_served_together_either() -> None:
    """Else a right guess could be told from a wrong one while the user waits."""
    async with guarded_broker() as desk:
        await prepare(desk)
        for _ in range(6):
            await ask_together(desk, [send(Credentials("alice", "guessed"))])
        answers = await ask_together(desk, [send(ROOT), send(ALICE)])
        assert [answer.code for answer in answers] == [0, NO_PERMISSION]
        assert "try again in" in (answers[1].remark or "")


@virtual
async def test_quotas_count_sends_that_are_served_together() -> None:
    async with guarded_broker(guarded(authUserQuotas="alice:requests=3")) as desk:
        await prepare(desk)
        answers = await ask_together(desk, [send(ALICE) for _ in range(5)])
        assert [answer.code for answer in answers] == [0, 0, 0, SYSTEM_BUSY, SYSTEM_BUSY]


@virtual
async def test_with_audit_lines_for_grants_each_send_is_checked_by_itself(
    passed: list[tuple[int, int]],
) -> None:
    async with guarded_broker(guarded(authAuditGrants="true")) as desk:
        await prepare(desk)
        answers = await ask_together(desk, [send(ALICE), send(ALICE)])
        assert [answer.code for answer in answers] == [0, 0]
        assert passed == []


@virtual
async def test_a_request_that_wants_a_reply_is_checked_by_itself(passed: list[tuple[int, int]]) -> None:
    """Then it is remembered who sent it, and so who may receive the reply."""
    async with guarded_broker() as desk:
        await prepare(desk)
        passed.clear()
        request = send(ALICE, pairs={"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c1"})
        answers = await ask_together(desk, [send(ALICE), request, send(ALICE)])
        assert [answer.code for answer in answers] == [0] * 3
        used, sizes = zip(*passed, strict=True)
        assert 0 < sum(used) < sum(sizes)
