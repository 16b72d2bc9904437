"""TCC blocks and sagas of a coordinator over an embedded cluster in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.transactions.participants_kit import ORDER, Ledger, Order, coordinator, participant

from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.testing.cluster import AsyncCluster
from turbopump.testing.loop import run_virtual
from turbopump.transactions.distributed.coordinator import Coordinator
from turbopump.transactions.distributed.machine import GlobalOutcome
from turbopump.transactions.distributed.participants import BranchCall, Saga, Tcc
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.errors import Aborted, Declined, InDoubt, Parked


def steps(ledger: Ledger, *names: str, pivot: str = "", **more: Any) -> Saga[Order]:
    saga = Saga[Order]("transfer")
    is_past = False
    for name in names:

        async def do(call: BranchCall, order: Order, results: Any, name: str = name) -> str:
            await ledger.note(name, order)
            return f"{name} of {order.id} after {sorted(results)}"

        async def undo(call: BranchCall, order: Order, result: Any, name: str = name) -> None:
            await ledger.note(f"undo {name} ({result})", order)

        saga.step(name, do=do, undo=None if is_past else undo, pivot=name == pivot, **more)
        is_past = is_past or name == pivot
    return saga


Scenario = Callable[[AsyncCluster, Coordinator, Ledger], Awaitable[None]]


def with_bank(scenario: Scenario) -> None:
    async def main() -> None:
        async with AsyncCluster(1, clock="virtual") as cluster:
            bank = coordinator(cluster)
            try:
                await scenario(cluster, bank, Ledger())
            finally:
                await bank.close()

    run_virtual(main())


async def die(bank: Coordinator, work: "asyncio.Future[Any]") -> None:
    """As a killed process: nothing of it goes on, and nothing is cleaned up."""
    await bank._tasks.close()
    work.cancel()
    await asyncio.wait((work,))
    await bank._tasks.close()


# TCC


def test_a_block_that_ends_well_confirms_all_participants() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit, credit = participant("debit", ledger), participant("credit", ledger)
        async with bank.tcc() as t:
            assert await t.call(debit, ORDER) == "frozen 10"
            await t.call(credit, ORDER)
            assert ledger.done == ["try debit", "try credit"]
        assert sorted(ledger.done[2:]) == ["confirm credit", "confirm debit"]
        assert ledger.inputs == [ORDER] * 4
        assert await bank.outcome(t.gid) is GlobalOutcome.COMMITTED

    with_bank(scenario)


def test_an_exception_in_the_block_cancels_in_reverse_order() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit, credit = participant("debit", ledger), participant("credit", ledger)
        with pytest.raises(ValueError, match="no"):  # noqa: PT012
            async with bank.tcc() as t:
                await t.call(debit, ORDER)
                await t.call(credit, ORDER)
                raise ValueError("no")
        assert ledger.done == ["try debit", "try credit", "cancel credit", "cancel debit"]
        assert await bank.outcome(t.gid) is GlobalOutcome.ABORTED

    with_bank(scenario)


def test_a_try_that_declines_raises_in_the_block_and_cancels_all() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit, credit = participant("debit", ledger), participant("credit", ledger)
        ledger.fails["try credit"] = [Declined("the account is closed")]
        with pytest.raises(Declined, match="the account is closed"):  # noqa: PT012
            async with bank.tcc() as t:
                await t.call(debit, ORDER)
                await t.call(credit, ORDER)
        assert ledger.done == ["try debit", "cancel credit", "cancel debit"]

    with_bank(scenario)


def test_a_try_that_fails_cannot_be_passed_over() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit, credit = participant("debit", ledger), participant("credit", ledger)
        ledger.fails["try debit"] = [ConnectionError("gone")]
        with pytest.raises(Aborted, match="gone"):  # noqa: PT012
            async with bank.tcc() as t:
                with pytest.raises(ConnectionError):
                    await t.call(debit, ORDER)
                with pytest.raises(Aborted, match="gone"):
                    await t.call(credit, ORDER)
        assert ledger.done == ["cancel debit"]

    with_bank(scenario)


def test_one_participant_can_be_called_twice_in_a_block() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit = participant("debit", ledger)
        async with bank.tcc() as t:
            await asyncio.gather(t.call(debit, ORDER), t.call(debit, Order("A-2", 20)))
        known = await bank.journal.read(t.gid)
        assert known is not None
        assert known.branches == ("debit", "debit-2")
        assert [one.cents for one in ledger.inputs] == [10, 20, 10, 20]  # type: ignore[attr-defined]
        with pytest.raises(NotRunning):
            await t.call(debit, ORDER)

    with_bank(scenario)


def test_a_block_without_calls_costs_nothing() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        async with bank.tcc() as t:
            pass
        assert await bank.journal.read(t.gid) is None

    with_bank(scenario)


def test_a_confirm_that_fails_is_repeated_in_the_background() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit, credit = participant("debit", ledger), participant("credit", ledger)
        ledger.fails["confirm debit"] = [ConnectionError("gone")] * 2
        async with bank.tcc() as t:
            await t.call(debit, ORDER)
            await t.call(credit, ORDER)
        assert "confirm debit" not in ledger.done
        await cluster.advance(10)
        assert sorted(ledger.done[2:]) == ["confirm credit", "confirm debit"]
        assert bank.figures().retries == {"debit": 2}

    with_bank(scenario)


def test_a_block_that_takes_longer_than_its_timeout_cancels_all() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit = participant("debit", ledger)
        with pytest.raises(Aborted, match="not decided in 5 s"):  # noqa: PT012
            async with bank.tcc(timeout=5) as t:
                await t.call(debit, ORDER)
                await asyncio.sleep(6)
                assert ledger.done == ["try debit", "cancel debit"]
                with pytest.raises(Aborted):
                    await t.call(debit, ORDER)

    with_bank(scenario)


def test_what_a_dead_process_has_tried_is_cancelled_by_another_one() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit, credit = participant("debit", ledger), participant("credit", ledger)

        async def work() -> None:
            async with bank.tcc() as t:
                await t.call(debit, ORDER)
                await t.call(credit, ORDER)

        ledger.holds["try credit"] = asyncio.Event()
        block = asyncio.ensure_future(work())
        await cluster.wait_until(lambda: ledger.done == ["try debit"])
        await die(bank, block)
        ledger.holds.clear()
        async with coordinator(cluster, debit, credit):
            await cluster.advance(40)
            assert ledger.done == ["try debit", "cancel credit", "cancel debit"]

    with_bank(scenario)


def test_what_a_process_does_not_know_is_left_to_one_that_does() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        debit = participant("debit", ledger)
        ledger.holds["confirm debit"] = asyncio.Event()

        async def work() -> None:
            async with bank.tcc() as t:
                gids.append(t.gid)
                await t.call(debit, ORDER)

        gids: list[str] = []
        block = asyncio.ensure_future(work())
        await cluster.wait_until(lambda: ledger.done == ["try debit"])
        await asyncio.sleep(1)
        await die(bank, block)
        ledger.holds.clear()
        async with coordinator(cluster) as stranger:
            await cluster.advance(40)
            assert stranger.figures().no_worker >= 1
            known = await stranger.journal.read(gids[0])
            assert known is not None
            assert "no worker: participant debit is not known here" in known.error
            async with coordinator(cluster, debit):
                await cluster.advance(100)
                assert ledger.done == ["try debit", "confirm debit"]

    with_bank(scenario)


# SAGA


def test_a_saga_returns_the_results_of_its_steps() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        outcome = await bank.run(steps(ledger, "debit", "credit"), ORDER, gid="order-1")
        assert outcome.gid == "order-1"
        assert outcome.results == {
            "debit": "debit of A-1 after []",
            "credit": "credit of A-1 after ['debit']",
        }
        assert ledger.done == ["debit", "credit"]

    with_bank(scenario)


def test_a_step_that_declines_has_those_before_it_compensated_in_reverse() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        ledger.fails["c"] = [Declined("closed")]
        with pytest.raises(Aborted, match="closed"):
            await bank.run(steps(ledger, "a", "b", "c"), ORDER)
        assert ledger.done == [
            "a",
            "b",
            "undo c (None)",
            "undo b (b of A-1 after ['a'])",
            "undo a (a of A-1 after [])",
        ]

    with_bank(scenario)


def test_a_step_that_fails_is_tried_as_its_policy_says_and_then_compensated() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        ledger.fails["b"] = [ConnectionError("gone")] * 2
        saga = steps(ledger, "a", "b", retry=Retry(attempts=3, first=1))
        await bank.run(saga, ORDER)
        assert ledger.done == ["a", "b"]
        ledger.fails["b"] = [ConnectionError("gone")] * 3
        with pytest.raises(Aborted, match="gone"):
            await bank.run(saga, ORDER)

    with_bank(scenario)


def test_an_exception_that_the_policy_calls_final_is_a_no() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        ledger.fails["a"] = [LookupError("no such account")]
        with pytest.raises(Aborted, match="no such account"):
            await bank.run(steps(ledger, "a", retry=Retry(final=(LookupError,))), ORDER)

    with_bank(scenario)


def test_the_same_gid_twice_is_one_saga() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        saga = steps(ledger, "a", "b")
        both = await asyncio.gather(*(bank.run(saga, ORDER, gid="order-1") for _ in range(2)))
        assert both[0] == both[1] == await bank.run(saga, ORDER, gid="order-1")
        other = coordinator(cluster)
        assert await other.run(saga, ORDER, gid="order-1") == both[0]
        await other.close()
        assert ledger.done == ["a", "b"]

    with_bank(scenario)


def test_a_saga_that_was_compensated_says_so_also_later() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        saga = steps(ledger, "a")
        ledger.fails["a"] = [Declined("closed")]
        for _ in range(2):
            with pytest.raises(Aborted, match="closed"):
                await bank.run(saga, ORDER, gid="order-1")

    with_bank(scenario)


def test_a_saga_of_a_dead_process_goes_on_in_another_one() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        saga = steps(ledger, "a", "b", "c")
        ledger.holds["b"] = asyncio.Event()
        run = asyncio.ensure_future(bank.run(saga, ORDER, gid="order-1"))
        await cluster.wait_until(lambda: ledger.done == ["a"])
        await die(bank, run)
        ledger.holds.clear()
        async with coordinator(cluster, saga) as other:
            outcome = await other.run(saga, ORDER, gid="order-1")
            assert set(outcome.results) == {"a", "b", "c"}
        assert ledger.done == ["a", "b", "c"]

    with_bank(scenario)


def test_a_caller_that_does_not_wait_any_longer_is_in_doubt_and_the_saga_goes_on() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        held = ledger.holds["b"] = asyncio.Event()
        with pytest.raises(InDoubt, match="order-1"):
            await bank.run(steps(ledger, "a", "b"), ORDER, gid="order-1", timeout=5)
        held.set()
        await cluster.advance(1)
        assert await bank.outcome("order-1") is GlobalOutcome.COMMITTED

    with_bank(scenario)


def test_past_its_pivot_a_saga_goes_forward_only() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        ledger.fails["after"] = [ConnectionError("gone")] * 2
        outcome = await bank.run(
            steps(ledger, "before", "pivot", "after", pivot="pivot", retry=Retry(attempts=None, first=10)),
            ORDER,
        )
        assert set(outcome.results) == {"before", "pivot", "after"}

    with_bank(scenario)


def test_a_compensation_that_cannot_be_done_parks_the_saga() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        ledger.fails["b"] = [Declined("closed")]
        ledger.fails["undo a (a of A-1 after [])"] = [Declined("it cannot be undone")]
        with pytest.raises((Parked, Aborted)):
            await bank.run(steps(ledger, "a", "b"), ORDER, gid="order-1")
        await cluster.advance(1)
        assert await bank.outcome("order-1") is GlobalOutcome.PARKED

    with_bank(scenario)


def test_steps_beside_each_other_run_at_once() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        ledger.holds["a"] = asyncio.Event()
        saga = steps(ledger, "a", "b", after=[])
        run = asyncio.ensure_future(bank.run(saga, ORDER))
        await cluster.wait_until(lambda: ledger.done == ["b"])
        ledger.holds["a"].set()
        await run

    with_bank(scenario)


def test_a_saga_that_takes_longer_than_its_timeout_is_compensated() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        saga = steps(ledger, "a", "b", retry=Retry(attempts=None, first=1, factor=1))
        saga.timeout = 10.0
        ledger.fails["b"] = [ConnectionError("gone")] * 100
        with pytest.raises(Aborted, match="not done in 10 s"):
            await bank.run(saga, ORDER)
        assert ledger.done[:1] == ["a"]
        assert ledger.done[-1].startswith("undo a")

    with_bank(scenario)


# declarations


def test_declarations_that_cannot_be_are_refused_with_advice() -> None:
    def plain(connection: Any, order: Order) -> None: ...

    def one(order: Order) -> None: ...

    saga = Saga[Order]("transfer")
    saga.step("a", do=plain, pivot=True)
    for call, words in (
        (lambda: Tcc("x y"), "a participant must have a name"),
        (lambda: Tcc("x", answer_timeout=0), "answer_timeout must be more than 0"),
        (lambda: Tcc("x").try_(one), r"must take \(connection, input\)"),  # type: ignore[arg-type]
        (lambda: Tcc("x").branch_functions(), "got no try, confirm, cancel"),
        (lambda: Saga("x", version=0), "version must be at least 1"),
        (lambda: saga.step("a", do=plain), "must have one step a"),
        (lambda: saga.step("b"), "must have do="),
        (lambda: saga.step("b", do=plain, undo=plain), "declare it without undo"),
        (lambda: saga.step("b", do=plain, after=["z"]), "declared before it, got z"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            call()
    assert list(saga.steps) == ["a"], "a step that was refused is not there"


def test_an_input_is_decoded_as_the_declared_type_or_that_of_a_function() -> None:
    def plain(connection: Any, order: Order) -> None: ...

    made: Tcc[Order] = Tcc("debit")
    made.try_(plain)
    made.confirm(plain)
    made.cancel(plain)
    assert made.branch_functions().input_type is Order
    assert Saga[Order]("x").input_type is Order


@pytest.mark.parametrize("input", [{1, 2}.__iter__(), object()])
def test_an_input_that_is_no_json_is_refused(input: object) -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, ledger: Ledger) -> None:
        with pytest.raises(InvalidArgument, match="stored as JSON"):
            await bank.run(steps(ledger, "a"), input)  # type: ignore[misc]

    with_bank(scenario)
