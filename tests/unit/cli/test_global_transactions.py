"""`turbopump transactions` about global transactions, against a cluster in memory."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.kit import virtual
from tests.unit.cli.transactions_kit import run

from turbopump import Message
from turbopump.cli import global_transactions, transactions
from turbopump.cli.failures import CommandFailure
from turbopump.client.admin import Admin
from turbopump.client.admin.global_transactions import GlobalCount
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalRecord, GlobalState
from turbopump.testing import AsyncCluster
from turbopump.transactions.distributed.journal import BrokerJournal

Capture = pytest.CaptureFixture[str]
SAGA, TCC, XA = GlobalKind.SAGA, GlobalKind.TCC, GlobalKind.XA


@virtual
async def with_globals(scene: Callable[[AsyncCluster, Admin, BrokerJournal], Awaitable[None]]) -> None:
    """A parked saga, a decided TCC, an XA transaction that has ended, and an open saga."""
    async with (
        AsyncCluster(2, clock="virtual") as cluster,
        cluster.admin() as admin,
        BrokerJournal("bank", cluster.name_servers, owner="tm", world=cluster.world) as journal,
    ):
        waits = await journal.open("open", SAGA, "")
        await asyncio.sleep(60)
        known = await journal.open("parked", SAGA, '{"order": 4711}')
        await journal.append(known, [GlobalRecord("done", "debit", "17"), GlobalRecord("refused", "ship")])
        await journal.append(known, [], state="parked", error="ship: the box\nis lost")
        await asyncio.sleep(300)
        known = await journal.open("decided", TCC, "")
        await journal.decide("decided", TCC, GlobalDecision.COMMIT, branches=("debit", "credit"))
        await journal.append(known, [GlobalRecord("confirmed", "debit")], next_try_ms=2_000_000_000_000)
        deadline_ms = cluster.world.clock.now_ms() + 1000
        ended = await journal.decide("ended", XA, GlobalDecision.COMMIT, deadline_ms=deadline_ms)
        await journal.append(ended, [], state="ended", outcome="committed")
        assert waits.lease == 1
        await scene(cluster, admin, journal)


def cells(capsys: Capture, *which: int) -> list[Sequence[str]]:
    """Returns columns of the rows that were printed."""
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    return [[row[at] for at in which] for row in rows]


def test_what_has_not_ended_is_listed_what_waits_for_an_operator_first(capsys: Capture) -> None:
    async def scene(cluster: AsyncCluster, admin: Admin, journal: BrokerJournal) -> None:
        assert await run(admin, "list") == 0
        printed = capsys.readouterr().out
        assert r"ship: the box\nis lost" in printed
        assert await run(admin, "list", "--kind", "saga") == 0
        assert cells(capsys, 0, 2) == [["parked", "parked"], ["open", "open"]]
        for words, found in {
            "--older 2m": ["parked", "open"],
            "--older 6m30s": [],
            "--state decided": ["decided"],
            "--state ended": ["ended"],
            "--state ended --kind tcc": [],
            "--group other": [],
            "--group bank --kind xa": [],
        }.items():
            assert await run(admin, "list", *words.split()) == 0
            assert [row[0] for row in cells(capsys, 2)] == found, words

    with_globals(scene)


def test_a_list_as_a_document_has_them_beside_half_messages(capsys: Capture) -> None:
    async def scene(cluster: AsyncCluster, admin: Admin, journal: BrokerJournal) -> None:
        await cluster.create_topic("orders")
        async with cluster.producer("shop", check=lambda message: None) as producer:
            await producer.transaction(Message("orders", b"new")).begin()
            assert await run(admin, "list", "--json") == 0
            shown = json.loads(capsys.readouterr().out)
            assert list(shown) == ["open", "expired", "global"]
            assert [one["realTopic"] for one in shown["open"]] == ["orders"]
            assert [one["gid"] for one in shown["global"]] == ["parked", "open", "decided"]
            assert shown["global"][2]["broker"] == journal.home
            assert shown["global"][1]["state"] == "open"
            assert await run(admin, "list", "--json", "--kind", "half", "--group", "shop") == 0
            assert [len(found) for found in json.loads(capsys.readouterr().out).values()] == [1, 0]
            assert await run(admin, "list", "--json", "--kind", "half", "--older", "1m") == 0
            assert [len(found) for found in json.loads(capsys.readouterr().out).values()] == [0, 0]
            assert await run(admin, "list", "--json", "--kind", "tcc", "-n", "0") == 0
            assert json.loads(capsys.readouterr().out) == {
                "global": [],
                "cut": "0 are shown, there are more; use -n for more",
            }

    with_globals(scene)


def test_one_is_shown_with_plan_branches_history_and_last_error(capsys: Capture) -> None:
    async def scene(cluster: AsyncCluster, admin: Admin, journal: BrokerJournal) -> None:
        assert await run(admin, "show", "parked") == 0
        printed = capsys.readouterr().out
        for words in (
            'plan        {"order": 4711}',
            r"last error  ship: the box\nis lost",
            "state       parked",
            f"broker      {journal.home} at",
            "owner       tm, lease 1 until",
        ):
            assert words in printed
        events = [line.split()[2:] for line in printed.splitlines() if " debit" in line or " ship" in line]
        assert ["done", "debit", "17"] in events
        assert ["refused", "ship"] in events
        assert await run(admin, "show", "decided", "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["decision"], shown["next_try_ms"]) == ("commit", 2_000_000_000_000)
        assert [(one["branch"], one["event"]) for one in shown["branchStates"]] == [
            ("debit", "confirmed"),
            ("credit", ""),
        ]
        assert [one["event"] for one in shown["history"]] == ["opened", "confirmed", "decided"]
        assert await run(admin, "show", "ended") == 0
        assert "committed" in capsys.readouterr().out
        with pytest.raises(CommandFailure, match="no broker knows transaction unknown"):
            await run(admin, "show", "unknown")

    with_globals(scene)


def test_a_parked_one_is_tried_again_by_a_client_of_its_group(capsys: Capture) -> None:
    async def scene(cluster: AsyncCluster, admin: Admin, journal: BrokerJournal) -> None:
        assert await run(admin, "retry", "parked", "--because", "the box was found") == 0
        assert "will be tried again by the next client of group bank" in capsys.readouterr().out
        claimed = [one for one in await journal.claim(10) if one.gid == "parked"]
        assert claimed[0].records[-1].event == "resolved-retry"
        assert claimed[0].records[-1].data == f"{global_transactions.operator()}: the box was found"
        with pytest.raises(
            CommandFailure, match="cannot retry ended: transaction ended has ended: committed"
        ):
            await run(admin, "retry", "ended")
        with pytest.raises(CommandFailure, match="no broker knows transaction unknown"):
            await run(admin, "retry", "unknown")

    with_globals(scene)


def test_one_is_resolved_by_hand_and_a_decision_is_not_contradicted_by_accident(capsys: Capture) -> None:
    async def scene(cluster: AsyncCluster, admin: Admin, journal: BrokerJournal) -> None:
        why = ("--because", "ticket 17")
        assert await run(admin, "resolve", "parked", "--done", "ship", *why) == 0
        assert capsys.readouterr().out == "parked: branch ship is noted as done; the state is open\n"
        assert await run(admin, "resolve", "parked", "--abort", *why) == 0
        assert capsys.readouterr().out == "parked: the decision is abort; the state is decided\n"
        with pytest.raises(CommandFailure, match=r"cannot resolve decided: .* heuristic decision"):
            await run(admin, "resolve", "decided", "--abort", *why)
        assert await run(admin, "resolve", "decided", "--abort", "--heuristic", *why) == 0
        known = await journal.read("decided")
        assert known is not None
        assert known.decision is GlobalDecision.ABORT
        assert known.records[-1].data.endswith(": ticket 17")
        assert known.decided_by.endswith(": ticket 17")
        with pytest.raises(CommandFailure, match="no broker knows transaction unknown"):
            await run(admin, "resolve", "unknown", "--abort", *why)

    with_globals(scene)


@virtual
async def test_half_messages_are_shown_and_retried_by_their_ids_but_not_resolved(capsys: Capture) -> None:
    settings = {"transactionCheckMax": "1", "transactionCheckInterval": "10000"}
    async with AsyncCluster(clock="virtual", settings=settings) as cluster, cluster.admin() as admin:
        await cluster.create_topic("orders")
        async with cluster.producer("shop", check=lambda message: None) as producer:
            await producer.transaction(Message("orders", b"old")).begin()
            await asyncio.sleep(60)
            (expired,) = [half async for half in admin.transactions.expired()]
            id = expired.message_id
            assert await run(admin, "show", id) == 0
            printed = capsys.readouterr().out
            assert "state       expired" in printed
            assert "producers   shop" in printed
            assert await run(admin, "show", id, "--json") == 0
            assert json.loads(capsys.readouterr().out)["kind"] == "half"
            with pytest.raises(CommandFailure, match="is a half message, which its producers"):
                await run(admin, "resolve", id, "--commit", "--because", "why")
            assert await run(admin, "retry", id) == 0
            assert capsys.readouterr().out == f"{id} resumed\n"
            assert [half.body async for half in admin.transactions.open()] == [b"old"]
            with pytest.raises(CommandFailure, match="is an open half message"):
                await run(admin, "retry", id)


@virtual
async def test_a_gid_that_several_groups_have_needs_the_group(capsys: Capture) -> None:
    async with AsyncCluster(2, clock="virtual") as cluster, cluster.admin() as admin:
        for group, home in (("bank", "broker-a"), ("shop", "broker-b")):
            async with BrokerJournal(group, cluster.name_servers, home=home, world=cluster.world) as journal:
                await journal.open("same", TCC, group)
        with pytest.raises(CommandFailure, match="choose one of bank, shop"):
            await run(admin, "show", "same")
        with pytest.raises(CommandFailure, match="choose one of bank, shop"):
            await run(admin, "retry", "same")
        assert await run(admin, "show", "same", "--group", "shop") == 0
        assert "plan        shop" in capsys.readouterr().out
        assert await run(admin, "retry", "same", "--group", "shop") == 0
        with pytest.raises(CommandFailure, match="no broker knows transaction same of group other"):
            await run(admin, "show", "same", "--group", "other")


def test_counts_say_how_many_there_are_and_how_old_the_oldest_is() -> None:
    async def scene(cluster: AsyncCluster, admin: Admin, journal: BrokerJournal) -> None:
        known = await journal.read("open")
        assert known is not None
        counts = await admin.global_transactions.counts()
        assert [(one.kind, one.state, one.count) for one in counts] == [
            (SAGA, GlobalState.OPEN, 1),
            (SAGA, GlobalState.PARKED, 1),
            (TCC, GlobalState.DECIDED, 1),
            (XA, GlobalState.ENDED, 1),
        ]
        assert counts[0] == GlobalCount(SAGA, GlobalState.OPEN, 1, known.opened_ms)

    with_globals(scene)


@pytest.mark.parametrize(
    "words",
    [
        ["resolve", "g", "--because", "why"],
        ["resolve", "g", "--commit"],
        ["resolve", "g", "--commit", "--abort", "--because", "why"],
        ["list", "--kind", "2pc"],
        ["list", "--state", "gone"],
        ["show"],
    ],
)
def test_wrong_words_are_refused(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    transactions.add_arguments(parser)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(words)
    assert ended.value.code == 2


def test_a_state_that_half_messages_do_not_have_is_refused() -> None:
    async def scene(cluster: AsyncCluster, admin: Admin, journal: BrokerJournal) -> None:
        with pytest.raises(CommandFailure, match="half messages are open or expired, got --state parked"):
            await run(admin, "list", "--kind", "half", "--state", "parked")
        with pytest.raises(CommandFailure, match="--older"):
            await run(admin, "list", "--older", "yesterday")

    with_globals(scene)
