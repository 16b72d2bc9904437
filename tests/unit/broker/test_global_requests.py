"""Requests about global transactions, to a whole broker in memory."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.delay_kit import restarts
from tests.unit.broker.delay_retention_kit import fill
from tests.unit.broker.desk import CONFIG, Desk, in_broker
from tests.unit.broker.globals_kit import GID, GROUP, LEASE_MS, append, ask, begun, decide, open_, read, write
from tests.unit.broker.ledger_requests_kit import OK, a_day_passes, small
from tests.unit.broker.writers import HOME, seen

from turbopump.broker.acknowledgement import Acknowledgement
from turbopump.broker.config import TransactionRules
from turbopump.broker.transactions.book import book
from turbopump.protocol import global_transactions as wire
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.global_transactions import GlobalDecision, GlobalRecord, GlobalState, ledger_id
from turbopump.protocol.headers.ledger import LedgerEndResponse
from turbopump.testing.simulated_files import Survival


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_was_answered_is_there_after_a_power_cut(flush: str) -> None:
    async def first(desk: Desk) -> Survival:
        await begun(desk)
        await open_(desk)
        assert (await append(desk, "tried")).code == OK
        assert (await decide(desk, "commit", branches="debit,credit")).decision is GlobalDecision.COMMIT
        await decide(desk, "commit", "other")
        return Survival.LOST

    async def second(desk: Desk) -> None:
        known = await read(desk)
        assert (known.state, known.decision) == (GlobalState.DECIDED, GlobalDecision.COMMIT)
        assert known.branches == ("debit", "credit")
        assert [(one.event, one.branch) for one in known.records] == [("tried", "debit")]
        assert (await decide(desk, "abort")).decision is GlobalDecision.COMMIT
        assert (await read(desk, "other")).decision is GlobalDecision.COMMIT
        assert (await append(desk, "done", length=1, state="ended")).code == OK
        assert (await read(desk)).state is GlobalState.ENDED

    restarts(first, second, flush_disk_type=flush)


@in_broker()
async def test_messages_of_a_transaction_are_seen_if_it_commits_and_only_then(desk: Desk) -> None:
    await begun(desk)
    for gid in ("commits", "aborts", "waits"):
        await open_(desk, gid)
        assert (await write(desk, [gid.encode()], gid)).code == OK
    await decide(desk, "commit", "commits", brokers=HOME)
    await decide(desk, "abort", "aborts")
    await asyncio.sleep(2)
    assert await seen(desk) == [b"commits"]
    ended = await desk.ask(RequestCode.LEDGER_END, {"id": ledger_id(GROUP, "commits"), "batch": 0})
    assert LedgerEndResponse.from_ext(ended.ext).left == 0
    refused = await write(desk, [b"late"], "commits")
    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert (await write(desk, [b"unknown"], "never-opened")).code == ResponseCode.QUERY_NOT_FOUND


@in_broker()
async def test_a_delayed_message_of_a_transaction_waits_from_the_decision_on(desk: Desk) -> None:
    await begun(desk)
    await open_(desk)
    assert (await write(desk, [b"later"], DELAY="1")).code == OK
    await asyncio.sleep(10)
    await decide(desk, "commit", brokers=HOME)
    await asyncio.sleep(0.5)
    assert await seen(desk) == []
    await asyncio.sleep(3)
    assert await seen(desk) == [b"later"]


@in_broker()
async def test_what_nobody_decides_in_time_is_aborted_with_its_messages(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await begun(desk)
    now_ms = desk.disk.clock.now_ms()
    await open_(desk, deadlineMs=now_ms + 5000)
    assert (await write(desk, [b"never"])).code == OK
    await asyncio.sleep(8)
    known = await read(desk)
    assert (known.decision, known.decided_by) == (GlobalDecision.ABORT, "deadline")
    assert "was not decided in time and is aborted" in caplog.text
    assert (await decide(desk, "commit")).decision is GlobalDecision.ABORT
    assert await seen(desk) == []


@in_broker()
async def test_another_client_takes_over_and_the_former_owner_is_fenced(desk: Desk) -> None:
    await begun(desk)
    await open_(desk)
    await open_(desk, "worked-on")
    await asyncio.sleep(LEASE_MS / 1000)
    assert (await append(desk, "still here", gid="worked-on")).code == OK
    answer = await ask(desk, RequestCode.GLOBAL_CLAIM, owner="other", count=10)
    (claimed,) = wire.read_transactions(answer.body)
    assert (claimed.gid, claimed.plan, claimed.lease, claimed.owner) == (GID, "plan", 2, "other")
    assert (await append(desk, "late")).code == ResponseCode.LEDGER_FENCED
    assert (await append(desk, "tried", lease=2)).code == OK


@in_broker()
async def test_only_the_home_of_a_group_keeps_its_transactions(desk: Desk) -> None:
    await begun(desk)
    elsewhere = {"id": ledger_id("other"), "run": "home", "home": "broker-b"}
    assert (await desk.ask(RequestCode.LEDGER_OPEN, elsewhere)).code == OK
    for group in ("other", "unknown"):
        answer = await ask(desk, RequestCode.GLOBAL_OPEN, gid="g", kind="tcc", owner="tm", group=group)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert "not the home" in (answer.remark or "")


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GLOBAL_OPEN, {"gid": "a'b", "kind": "xa", "owner": "tm"}),
        (RequestCode.GLOBAL_OPEN, {"gid": "x" * 65, "kind": "xa", "owner": "tm"}),
        (RequestCode.GLOBAL_OPEN, {"gid": "g", "kind": "none", "owner": "tm"}),
        (RequestCode.GLOBAL_OPEN, {"gid": "g", "kind": "xa", "owner": "tm", "leaseMs": 0}),
        (RequestCode.GLOBAL_DECIDE, {"gid": "g", "kind": "xa", "decision": "maybe", "owner": "tm"}),
        (RequestCode.GLOBAL_DECIDE, {"gid": "g", "kind": "xa", "decision": "", "owner": "tm"}),
        (RequestCode.GLOBAL_APPEND, {"gid": "unknown", "lease": 1, "length": 0}),
    ],
)
@in_broker()
async def test_nonsense_is_refused_with_a_code(desk: Desk, code: int, fields: dict[str, Any]) -> None:
    await begun(desk)
    answer = await ask(desk, code, **fields)
    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.QUERY_NOT_FOUND), answer.remark
    assert (await ask(desk, RequestCode.GLOBAL_OPEN, b"\xff", gid="g", kind="xa", owner="tm")).code != OK
    assert wire.read_transactions((await ask(desk, RequestCode.GLOBAL_READ)).body) == []


def test_open_transactions_outlive_their_files_and_ended_ones_are_forgotten() -> None:
    async def first(desk: Desk) -> Survival:
        await begun(desk)
        await open_(desk)
        for number in range(5):
            body = wire.encode([GlobalRecord("tried", "debit", "x" * 10_000)])
            answer = await ask(desk, RequestCode.GLOBAL_APPEND, body, gid=GID, lease=1, length=number)
            assert answer.code == OK, answer.remark
        assert (await write(desk, [b"row"])).code == OK
        await decide(desk, "abort", "ended")
        ends = desk.store.log.end
        for _ in range(3):
            await fill(desk, 8)
            await a_day_passes(desk)
        assert desk.store.log.min_offset > ends
        return Survival.KEPT

    async def second(desk: Desk) -> None:
        known = await read(desk)
        assert [len(one.data) for one in known.records] == [10_000] * 5
        answer = await ask(desk, RequestCode.GLOBAL_READ, gid="ended")
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        await decide(desk, "commit", brokers=HOME)
        await asyncio.sleep(2)
        assert await seen(desk) == [b"row"]

    restarts(first, second, **small())


@in_broker()
async def test_an_operator_resolves_a_parked_transaction(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await begun(desk)
    await open_(desk)
    assert (await append(desk, "failed", state="parked", error="20 attempts")).code == OK
    listed = wire.read_transactions((await ask(desk, RequestCode.GLOBAL_READ, state="parked")).body)
    assert [(one.gid, one.error) for one in listed] == [(GID, "20 attempts")]
    fields = {"gid": GID, "action": "abort", "who": "ann", "because": "the bank has closed"}
    answer = await ask(desk, RequestCode.GLOBAL_RESOLVE, **fields)
    assert wire.read_transaction(answer.body).decision is GlobalDecision.ABORT
    assert "abort by ann" in caplog.text
    fields["action"] = "commit"
    assert (await ask(desk, RequestCode.GLOBAL_RESOLVE, **fields)).code == ResponseCode.ILLEGAL_OPERATION


@in_broker()
async def test_only_the_owner_of_a_transaction_gets_its_lease(desk: Desk) -> None:
    await begun(desk)
    assert (await open_(desk)).lease == 1
    assert (await open_(desk, owner="second")).lease == 0
    assert (await append(desk, "tried", lease=0)).code == ResponseCode.LEDGER_FENCED
    assert (await decide(desk, "abort", owner="sweep")).lease == 0
    assert (await decide(desk, "abort")).lease == 1


@in_broker(flush_disk_type="SYNC_FLUSH")
async def test_two_clients_that_claim_at_once_do_not_both_believe_to_have_it(desk: Desk) -> None:
    """With a lease that is shorter than a sync, the second claims before the first is answered."""
    await begun(desk)
    await open_(desk, leaseMs=1)
    await asyncio.sleep(1)

    async def claim(owner: str, wait_s: float) -> list[str]:
        await asyncio.sleep(wait_s)
        answer = await ask(desk, RequestCode.GLOBAL_CLAIM, owner=owner, leaseMs=1)
        return [one.owner for one in wire.read_transactions(answer.body)]

    with slow_syncs(desk, 0.5):
        owners = await asyncio.gather(claim("first", 0), claim("second", 0.1))
    assert owners == [[], ["second"]]


@contextlib.contextmanager
def slow_syncs(desk: Desk, seconds: float) -> Iterator[None]:
    sync = Acknowledgement.require_on_disk

    async def slow(acknowledgement: Acknowledgement, end: int, what: str) -> None:
        await asyncio.sleep(seconds)
        await sync(acknowledgement, end, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Acknowledgement, "require_on_disk", slow)
        yield


@in_broker()
async def test_an_operator_finds_a_transaction_without_knowing_its_group(desk: Desk) -> None:
    await begun(desk)
    await open_(desk)
    answer = await ask(desk, RequestCode.GLOBAL_READ, gid=GID, group="")
    assert wire.read_transaction(answer.body).group == GROUP
    answer = await ask(desk, RequestCode.GLOBAL_READ, gid=GID, group="other")
    assert answer.code == ResponseCode.ILLEGAL_OPERATION


@in_broker()
async def test_many_that_end_at_once_do_not_stay(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "MAX_ENDED", 10)
    await begun(desk)
    for number in range(1000):
        await decide(desk, "commit", f"g{number}")
        assert (await append(desk, gid=f"g{number}", state="ended")).code == OK
    await asyncio.sleep(1.5)
    there = wire.read_transactions((await ask(desk, RequestCode.GLOBAL_READ)).body)
    assert sorted(one.gid for one in there) == [f"g{number}" for number in range(990, 1000)]


@in_broker(config=replace(CONFIG, transactions=TransactionRules(id_retention_hours=1)))
async def test_the_home_of_a_group_does_not_expire_and_is_not_forgotten_while_it_is_used(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await begun(desk)
    await open_(desk)
    await asyncio.sleep(3 * 3600)
    assert "has expired" not in caplog.text
    home = {"id": ledger_id(GROUP)}
    refused = await desk.ask(RequestCode.LEDGER_FORGET, home)
    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert "have not ended" in (refused.remark or "")
    await decide(desk, "abort")
    assert (await append(desk, state="ended")).code == OK
    assert (await desk.ask(RequestCode.LEDGER_FORGET, home)).code == OK
