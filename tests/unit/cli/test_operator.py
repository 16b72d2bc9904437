"""An operator and a coordinator: what `turbopump transactions` does to transactions that wait."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from tests.unit.cli.transactions_kit import run

from turbopump.client.admin import Admin
from turbopump.testing import AsyncCluster
from turbopump.testing.loop import run_virtual
from turbopump.transactions.distributed.coordinator import Coordinator
from turbopump.transactions.distributed.machine import GlobalOutcome
from turbopump.transactions.distributed.participants import BranchCall, Saga, Tcc
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.errors import Aborted, Declined, InDoubt

GID = "order-4711"
WHY = ("--because", "ticket 17")
PATIENCE_S = 7200.0
"""A compensation is tried for about an hour."""
CLAIM_S = 70.0
"""By then a coordinator has claimed what nobody works on, and what was retried by hand."""


@dataclass
class ClosedShop:
    """Work that is noted; refunds fail while the account is closed, confirmations while the shop is."""

    is_closed: bool = True
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.saga = self._saga()
        self.tcc = self._tcc()

    def _saga(self) -> Saga[str]:
        async def debit(call: BranchCall, order: str) -> None:
            self.calls.append("debit")

        async def refund(call: BranchCall, order: str) -> None:
            if self.is_closed:
                raise ConnectionError("the account is closed")
            self.calls.append("refund")

        async def ship(call: BranchCall, order: str) -> None:
            raise Declined("nothing is left")

        saga = Saga[str]("order")
        saga.step("debit", do=debit, undo=refund, retry=Retry(attempts=2, first=0.1))
        saga.step("ship", do=ship)
        return saga

    def _tcc(self) -> Tcc[str]:
        stock = Tcc[str]("stock")

        @stock.try_
        async def reserve(call: BranchCall, order: str) -> None:
            self.calls.append("reserve")

        @stock.confirm
        async def sell(call: BranchCall, order: str) -> None:
            self.calls.append("sell")

        @stock.cancel
        async def free(call: BranchCall, order: str) -> None:
            self.calls.append("free")

        return stock


Scene = Callable[[Admin, Coordinator, ClosedShop], Awaitable[None]]


def with_shop(scene: Scene) -> None:
    async def main() -> None:
        shop = ClosedShop()
        async with AsyncCluster(clock="virtual") as cluster, cluster.admin() as admin:
            participants = (shop.saga, shop.tcc)
            async with Coordinator(
                "shop", name_servers=cluster.name_servers, participants=participants, world=cluster.world
            ) as coordinator:
                await scene(admin, coordinator, shop)

    run_virtual(main())


async def parked(admin: Admin, coordinator: Coordinator, shop: ClosedShop) -> None:
    """The order cannot be shipped, and its money cannot be given back."""
    with pytest.raises(Aborted, match="nothing is left"):
        await coordinator.run(shop.saga, "a book", gid=GID)
    await until(admin, "parked")
    assert shop.calls == ["debit"]


async def until(admin: Admin, state: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await admin.global_transactions.find(GID)).transaction.state != state:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)


def test_a_compensation_that_was_done_by_hand_ends_the_saga(capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(admin: Admin, coordinator: Coordinator, shop: ClosedShop) -> None:
        await parked(admin, coordinator, shop)
        assert await run(admin, "list", "--state", "parked") == 0
        assert "the account is closed" in capsys.readouterr().out
        assert await run(admin, "resolve", GID, "--done", "debit", *WHY) == 0
        await asyncio.sleep(CLAIM_S)
        assert await coordinator.outcome(GID) is GlobalOutcome.ABORTED
        capsys.readouterr()
        assert await run(admin, "show", GID) == 0
        printed = capsys.readouterr().out
        assert "state       ended" in printed
        assert ": ticket 17" in printed
        assert shop.calls == ["debit"], "what was done by hand is not done again"

    with_shop(scene)


def test_a_saga_that_is_retried_after_a_repair_ends(capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(admin: Admin, coordinator: Coordinator, shop: ClosedShop) -> None:
        await parked(admin, coordinator, shop)
        shop.is_closed = False
        assert await run(admin, "retry", GID, *WHY) == 0
        await asyncio.sleep(CLAIM_S)
        assert shop.calls == ["debit", "refund"]
        capsys.readouterr()
        assert await run(admin, "list") == 0
        assert GID not in capsys.readouterr().out
        with pytest.raises(Aborted, match="nothing is left"):
            await coordinator.run(shop.saga, "a book", gid=GID)
        assert shop.calls == ["debit", "refund"]

    with_shop(scene)


def test_one_that_is_retried_without_a_repair_is_parked_again() -> None:
    async def scene(admin: Admin, coordinator: Coordinator, shop: ClosedShop) -> None:
        await parked(admin, coordinator, shop)
        assert await run(admin, "retry", GID, *WHY) == 0
        assert (await admin.global_transactions.find(GID)).transaction.state == "decided"
        await until(admin, "parked")

    with_shop(scene)


def test_an_open_tcc_that_is_aborted_by_hand_is_cancelled_and_its_block_learns_it() -> None:
    async def scene(admin: Admin, coordinator: Coordinator, shop: ClosedShop) -> None:
        async with asyncio.timeout(600):
            with pytest.raises((Aborted, InDoubt)):
                await _aborted_by_hand(admin, coordinator, shop)
            await asyncio.sleep(CLAIM_S)
        first, *others = shop.calls  # without a database a participant may be called twice
        assert (first, set(others)) == ("reserve", {"free"})
        counts = await admin.global_transactions.counts()
        assert [(one.kind, one.state, one.count) for one in counts] == [("tcc", "ended", 1)]

    with_shop(scene)


async def _aborted_by_hand(admin: Admin, coordinator: Coordinator, shop: ClosedShop) -> None:
    async with coordinator.tcc(timeout=60) as t:
        await t.call(shop.tcc, "a book")
        assert await run(admin, "resolve", t.gid, "--abort", *WHY) == 0
