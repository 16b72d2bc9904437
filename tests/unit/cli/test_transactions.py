"""`turbopump transactions` against a cluster in memory."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from tests.kit import virtual
from tests.unit.cli.transactions_kit import run

from turbopump import Decision, Message
from turbopump.cli.failures import CommandFailure
from turbopump.client.admin import Admin
from turbopump.client.produce.ledger import Ledger
from turbopump.testing import AsyncCluster

Capture = pytest.CaptureFixture[str]


answer: list[Decision] = []
"""Of the producer, when it is asked; it does not know when this is empty."""


@virtual
async def with_transactions(scene: Callable[[AsyncCluster, Admin], Awaitable[None]]) -> None:
    """One expired transaction, one that has ended, one that is open."""
    answer.clear()
    settings = {"transactionCheckMax": "1", "transactionCheckInterval": "10000"}
    async with AsyncCluster(clock="virtual", settings=settings) as cluster, cluster.admin() as admin:
        await cluster.create_topic("orders")
        async with cluster.producer("shop", check=lambda message: answer[0] if answer else None) as producer:
            await producer.transaction(Message("orders", b"old")).begin()
            await asyncio.sleep(60)
            async with producer.transaction(Message("orders", b"ended")):
                pass
            await producer.transaction(Message("orders", b"new")).begin()
            await scene(cluster, admin)


@virtual
async def test_transactional_ids_are_listed_and_forgotten(capsys: Capture) -> None:
    async with AsyncCluster(2, clock="virtual") as cluster, cluster.admin() as admin:
        await cluster.create_topic("orders")
        async with Ledger("nightly", cluster.name_servers, world=cluster.world) as ledger:
            await ledger.open("run")
            await ledger.decide(4, [])
        assert await run(admin, "ids") == 0
        _, row = capsys.readouterr().out.splitlines()
        assert row.split()[0] == "open"
        assert row.split()[-3:] == ["4", "0", "nightly"]
        assert await run(admin, "ids", "--json") == 0
        (book,) = json.loads(capsys.readouterr().out)
        assert (book["id"], book["highest"]) == ("nightly", 4)
        assert await run(admin, "forget", "nightly") == 0
        assert capsys.readouterr().out == "nightly forgotten by 2 brokers\n"
        with pytest.raises(CommandFailure, match="no broker has the id nightly"):
            await run(admin, "forget", "nightly")


def test_open_and_expired_transactions_are_listed(capsys: Capture) -> None:
    async def scene(cluster: AsyncCluster, admin: Admin) -> None:
        assert await run(admin, "list") == 0
        _, *rows = capsys.readouterr().out.splitlines()
        assert [(row.split()[0], row.split()[-1]) for row in rows] == [("open", "new"), ("expired", "old")]
        assert all(" shop " in row and " orders " in row for row in rows)
        assert await run(admin, "list", "--json", "-n", "1") == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["expired"][0]["asked"], shown["open"][0]["realTopic"]) == (1, "orders")
        assert "cut" not in shown

    with_transactions(scene)


def test_an_expired_transaction_is_resumed_and_then_ends(capsys: Capture) -> None:
    async def scene(cluster: AsyncCluster, admin: Admin) -> None:
        (expired,) = [half async for half in admin.transactions.expired()]
        assert await run(admin, "resume", "--id", expired.message_id) == 0
        assert capsys.readouterr().out == f"{expired.message_id} resumed\n"
        assert [half.body async for half in admin.transactions.open()] == [b"new", b"old"]
        assert await run(admin, "resume", "--id", expired.message_id) == 1
        assert "not resumed: the transaction is open" in capsys.readouterr().out
        assert await run(admin, "resume", "--all") == 0
        answer.append(Decision.COMMIT)
        await asyncio.sleep(60)
        assert sorted(message.body for message in await cluster.messages("orders")) == [
            b"ended",
            b"new",
            b"old",
        ]

    with_transactions(scene)


def test_what_is_not_there_or_not_named_is_a_failure(capsys: Capture) -> None:
    async def scene(cluster: AsyncCluster, admin: Admin) -> None:
        assert await run(admin, "resume", "--id", "none") == 1
        assert capsys.readouterr().out == "none not resumed: no such expired transaction\n"
        for words in ([], ["--id", "x", "--all"]):
            with pytest.raises(CommandFailure, match="choose transactions"):
                await run(admin, "resume", *words)

    with_transactions(scene)
