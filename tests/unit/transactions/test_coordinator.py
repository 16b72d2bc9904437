"""The coordinator over an embedded cluster in virtual time: XA blocks, their messages, recovery."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.transactions.memory_bank import MemoryDatabase, two_banks

from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.message import Message
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind
from turbopump.testing.cluster import AsyncCluster
from turbopump.testing.loop import run_virtual
from turbopump.transactions.distributed.coordinator import Coordinator
from turbopump.transactions.distributed.machine import GlobalOutcome
from turbopump.transactions.distributed.participants import BranchCall, Saga, encoded
from turbopump.transactions.distributed.registrations import SagaOpening
from turbopump.transactions.errors import Aborted, InDoubt

MAX_PLAN_BYTES = 64 << 10

Scenario = Callable[[AsyncCluster, Coordinator, dict[str, Any]], Awaitable[None]]


def with_bank(scenario: Scenario, brokers: int = 1, recovers: bool = False) -> None:
    async def main() -> None:
        async with AsyncCluster(brokers, clock="virtual") as cluster:
            banks = two_banks()
            bank = coordinator(cluster, banks)
            if recovers:
                await bank.start()
            try:
                await scenario(cluster, bank, banks)
            finally:
                await bank.close()

    run_virtual(main())


def coordinator(cluster: AsyncCluster, banks: dict[str, Any], **more: Any) -> Coordinator:
    return Coordinator(
        "bank", name_servers=cluster.name_servers, resources=banks, world=cluster.world, **more
    )


async def transfer(t: Any, cents: int = 10) -> None:
    await t["icbc"].add("A", -cents)
    await t["ccb"].add("B", cents)


def test_a_block_that_ends_well_commits_all_branches() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        async with bank.xa() as t:
            await transfer(t)
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 90}, {"B": 10})
        assert banks["icbc"].prepared_changes == {}
        known = await bank.journal.read(t.gid)
        assert known is not None
        assert (known.outcome, known.branches) == ("committed", ("icbc", "ccb"))
        assert await bank.outcome(t.gid) is GlobalOutcome.COMMITTED

    with_bank(scenario)


def test_an_exception_in_the_block_rolls_back_and_is_raised() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="changed my mind"):  # noqa: PT012
            async with bank.xa() as t:
                await transfer(t)
                raise ValueError("changed my mind")
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 100}, {"B": 0})
        assert "prepare" not in banks["icbc"].calls
        assert await bank.journal.read(t.gid) is None, "an abort of the TM itself is not written"

    with_bank(scenario)


def test_a_branch_that_votes_no_aborts_all_and_says_why() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        with pytest.raises(Aborted, match="too little money") as raised:
            async with bank.xa() as t:
                await transfer(t, 1000)
        assert raised.value.gid == t.gid
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 100}, {"B": 0})
        assert banks["ccb"].prepared_changes == {}

    with_bank(scenario)


def test_messages_of_a_block_are_seen_if_and_only_if_it_commits() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        await cluster.create_topic("Transferred", queues=2)
        for cents in (10, 1000):
            try:
                async with bank.xa() as t:
                    await transfer(t, cents)
                    await t.send(Message("Transferred", b"%d" % cents), Message("Transferred", b"again"))
                    seen_before = 0 if cents == 10 else 2
                    assert len(await cluster.messages("Transferred")) == seen_before
            except Aborted:
                assert cents == 1000
        assert sorted(one.body for one in await cluster.messages("Transferred")) == [b"10", b"again"]

    with_bank(scenario, brokers=2)


def test_a_delayed_message_of_a_block_comes_when_its_delay_since_the_commit_is_over() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        await cluster.create_topic("Later", queues=1)
        async with bank.xa() as t:
            await transfer(t)
            await t.send(Message("Later", b"x", delay=60.0))
        await cluster.advance(50)
        assert await cluster.messages("Later") == []
        await cluster.advance(20)
        assert [one.body for one in await cluster.messages("Later")] == [b"x"]

    with_bank(scenario)


def test_one_branch_without_messages_commits_in_one_phase() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        async with bank.xa("icbc") as t:
            await t["icbc"].add("A", 5)
            with pytest.raises(InvalidArgument, match="must be one of icbc, got 'ccb'"):
                t["ccb"]
        assert banks["icbc"].cents == {"A": 105}
        assert await bank.journal.read(t.gid) is None
        with pytest.raises(NotRunning):
            t["icbc"]

    with_bank(scenario)


def test_a_block_in_another_block_of_the_same_task_is_refused() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        async with bank.xa() as t:
            with pytest.raises(InvalidArgument, match="must not begin inside of another one"):
                async with bank.xa():
                    raise AssertionError("it must not begin")
            await transfer(t)
        async with bank.xa() as t:
            await transfer(t)
        assert banks["icbc"].cents == {"A": 80}

    with_bank(scenario)


def test_a_block_that_takes_longer_than_its_timeout_is_aborted() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        with pytest.raises(Aborted, match="deadline"):  # noqa: PT012
            async with bank.xa(timeout=10) as t:
                await transfer(t)
                await asyncio.sleep(11)
        assert (banks["icbc"].cents, banks["icbc"].prepared_changes) == ({"A": 100}, {})

    with_bank(scenario)


def test_a_decision_that_no_broker_answers_is_in_doubt_and_rolls_nothing_back() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        with pytest.raises(InDoubt) as raised:  # noqa: PT012
            async with bank.xa() as t:
                await transfer(t)
                await cluster.kill_broker()
        assert raised.value.gid == t.gid
        assert "roll back" not in banks["icbc"].calls
        assert "abandon" in banks["icbc"].calls, "another process must be able to end it"
        await cluster.start_broker()
        await cluster.advance(30)
        async with coordinator(cluster, banks) as other:
            assert await other.recover_once(older_than=0) == 1
        assert (banks["icbc"].cents, banks["icbc"].prepared_changes) == ({"A": 100}, {})
        assert (banks["ccb"].cents, banks["ccb"].prepared_changes) == ({"B": 0}, {})

    with_bank(scenario)


def test_a_branch_that_cannot_commit_yet_is_tried_until_it_can_and_the_caller_is_told_committed() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        banks["ccb"].fails["commit"] = [ConnectionError("gone")] * 3
        async with bank.xa() as t:
            await transfer(t)
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 90}, {"B": 0})
        assert bank.figures().retries == {"ccb": 1}
        known = await bank.journal.read(t.gid)
        assert known is not None
        assert "gone" in known.error, "visible from the first failure"
        await cluster.advance(20)
        assert banks["ccb"].cents == {"B": 10}
        assert bank.figures().retries == {"ccb": 3}
        assert bank.figures().active == 0

    with_bank(scenario)


def test_what_a_dead_process_has_decided_is_carried_out_by_another_one() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        banks["ccb"].hold["commit"] = asyncio.Event()
        block = asyncio.ensure_future(in_block(bank))
        await cluster.wait_until(lambda: banks["icbc"].cents == {"A": 90})
        await die(bank, block)
        banks["ccb"].hold.clear()
        async with coordinator(cluster, banks) as other:
            await cluster.advance(40)
            assert banks["ccb"].cents == {"B": 10}
            assert other.figures().active == 0

    with_bank(scenario)


def test_branches_of_a_dead_process_that_decided_nothing_are_rolled_back_by_a_sweep() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        banks["ccb"].hold["prepare"] = asyncio.Event()
        block = asyncio.ensure_future(in_block(bank))
        await cluster.wait_until(lambda: banks["icbc"].prepared_changes)
        await die(bank, block)
        async with coordinator(cluster, banks) as other:
            await cluster.advance(1)
            assert other.figures().prepared == {"icbc": 1, "ccb": 0}
            assert banks["icbc"].prepared_changes, "it may be about to be decided"
            await cluster.advance(130)
            assert other.figures().prepared == {"icbc": 0, "ccb": 0}
            assert banks["icbc"].prepared_changes == {}
            assert banks["icbc"].cents == {"A": 100}

    with_bank(scenario)


def test_a_slow_process_finds_the_abort_that_a_sweep_has_written() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        held = banks["ccb"].hold["prepare"] = asyncio.Event()
        block = asyncio.ensure_future(in_block(bank, timeout=300))
        await cluster.wait_until(lambda: banks["icbc"].prepared_changes)
        other = coordinator(cluster, banks)
        assert await other.recover_once(older_than=0) == 1
        assert banks["icbc"].prepared_changes == {}
        held.set()
        with pytest.raises(Aborted):
            await block
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 100}, {"B": 0})
        assert banks["ccb"].prepared_changes == {}
        await other.close()

    with_bank(scenario)


def test_branches_of_another_group_are_left_alone() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        banks["ccb"].hold["prepare"] = asyncio.Event()
        block = asyncio.ensure_future(in_block(bank))
        await cluster.wait_until(lambda: banks["icbc"].prepared_changes)
        stranger = Coordinator(
            "other", name_servers=cluster.name_servers, resources=banks, world=cluster.world
        )
        assert await stranger.recover_once(older_than=0) == 0
        assert len(banks["icbc"].prepared_changes) == 1
        await stranger.close()
        await die(bank, block)

    with_bank(scenario)


def test_a_caller_that_is_cancelled_before_the_decision_aborts() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        held = banks["ccb"].hold["prepare"] = asyncio.Event()
        block = asyncio.ensure_future(in_block(bank))
        await cluster.wait_until(lambda: banks["icbc"].prepared_changes)
        block.cancel()
        with pytest.raises(asyncio.CancelledError):
            await block
        held.set()
        await cluster.advance(1)
        assert (banks["icbc"].cents, banks["icbc"].prepared_changes) == ({"A": 100}, {})
        assert banks["ccb"].prepared_changes == {}

    with_bank(scenario)


def test_a_caller_that_is_cancelled_after_the_decision_leaves_it_committed() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        held = banks["ccb"].hold["commit"] = asyncio.Event()
        block = asyncio.ensure_future(in_block(bank))
        await cluster.wait_until(lambda: banks["icbc"].cents == {"A": 90})
        block.cancel()
        with pytest.raises(asyncio.CancelledError):
            await block
        held.set()
        await cluster.advance(1)
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 90}, {"B": 10})

    with_bank(scenario)


def test_a_block_cancelled_inside_rolls_back() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        async def work() -> None:
            async with bank.xa() as t:
                await transfer(t)
                await asyncio.sleep(5)

        block = asyncio.ensure_future(work())
        await asyncio.sleep(1)
        block.cancel()
        with pytest.raises(asyncio.CancelledError):
            await block
        assert banks["icbc"].cents == {"A": 100}
        assert "roll back" in banks["icbc"].calls

    with_bank(scenario)


def test_a_database_that_cannot_be_opened_leaves_nothing_open_in_the_others() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        banks["ccb"].fails["begin"] = [ConnectionError("no ccb today")]
        with pytest.raises(ConnectionError, match="no ccb today"):
            async with bank.xa():
                raise AssertionError("it must not begin")
        assert "abandon" in banks["icbc"].calls
        async with bank.xa() as t:
            await transfer(t)

    with_bank(scenario)


def test_three_phase_commit_commits_and_aborts_as_two_phase_commit_does() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        async with bank.xa(protocol="3pc") as t:
            await transfer(t)
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 90}, {"B": 10})
        known = await bank.journal.read(t.gid)
        assert known is not None
        assert "precommit" in [one.event for one in known.records]
        with pytest.raises(Aborted, match="too little money"):
            async with bank.xa(protocol="3pc") as t:
                await transfer(t, 1000)
        assert banks["ccb"].prepared_changes == {}

    with_bank(scenario)


def test_what_cannot_be_is_refused_with_advice() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        for call, words in (
            (lambda: bank.xa("abc"), "a resource must be one of icbc, ccb, got 'abc'"),
            (lambda: bank.xa(timeout=0), "timeout must be more than 0"),
            (lambda: bank.xa(timeout=601), "timeout must be at most 600 seconds"),
            (lambda: bank.xa(protocol="4pc"), 'protocol must be "2pc" or "3pc"'),  # type: ignore[arg-type]
            (lambda: coordinator(cluster, {"o'clock": MemoryDatabase("x")}), "ASCII characters"),
            (lambda: coordinator(cluster, {"é": MemoryDatabase("x")}), "ASCII characters"),
            (lambda: coordinator(cluster, {"x" * 33: MemoryDatabase("x")}), "1 to 32"),
            (lambda: coordinator(cluster, {}).xa(), "must have resources="),
        ):
            with pytest.raises(InvalidArgument, match=words):
                call()

    with_bank(scenario)


GOOD_GIDS = ("x", "order-4711", "a" * 64)
HOSTILE_GIDS = ("o'clock", 'say "x"', "a" * 65, "naïve", "a b", "a,b", "a/b", "a\\b", "a;b", "a\x00", "\n")


@pytest.mark.parametrize("gid", HOSTILE_GIDS)
def test_a_gid_that_databases_would_not_take_is_refused_with_a_wire_code(gid: str) -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        with pytest.raises(Refused) as raised:
            await bank.run(saga_of("transfer"), 1, gid=gid)
        assert raised.value.code == ResponseCode.INVALID_PARAMETER

    with_bank(scenario)


@pytest.mark.parametrize("gid", GOOD_GIDS)
def test_a_gid_of_64_plain_characters_is_taken(gid: str) -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        assert (await bank.run(saga_of("transfer"), 1, gid=gid)).gid == gid

    with_bank(scenario)


@pytest.mark.parametrize(("size", "is_taken"), [(MAX_PLAN_BYTES, True), (MAX_PLAN_BYTES + 1, False)])
def test_the_plan_of_a_saga_has_a_bound(size: int, is_taken: bool) -> None:
    saga = saga_of("transfer")
    overhead = len(SagaOpening(saga.name, saga.version, encoded("")).text().encode())

    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        if is_taken:
            await bank.run(saga, "x" * (size - overhead))
            return
        with pytest.raises(Refused, match=f"the plan must have at most {MAX_PLAN_BYTES} bytes") as raised:
            await bank.run(saga, "x" * (size - overhead))
        assert raised.value.code == ResponseCode.INVALID_PARAMETER

    with_bank(scenario)


def test_a_transaction_of_another_group_is_refused_with_a_wire_code() -> None:
    async def scenario(cluster: AsyncCluster, bank: Coordinator, banks: dict[str, Any]) -> None:
        await bank.run(saga_of("transfer"), 1, gid="order-1")
        stranger = Coordinator("other", name_servers=cluster.name_servers, world=cluster.world)
        await stranger.ready()
        for call in (
            stranger.run(saga_of("transfer"), 1, gid="order-1"),
            stranger.outcome("order-1"),
            stranger.journal.decide("order-1", GlobalKind.SAGA, GlobalDecision.ABORT),
        ):
            with pytest.raises(Refused) as raised:
                await call
            assert raised.value.code == ResponseCode.ILLEGAL_OPERATION
        await stranger.close()

    with_bank(scenario)


def saga_of(name: str) -> Saga[Any]:
    async def nothing(call: BranchCall, input: Any) -> None: ...

    saga = Saga[Any](name)
    saga.step("a", do=nothing, undo=nothing)
    return saga


async def in_block(bank: Coordinator, timeout: float = 30.0) -> None:  # noqa: ASYNC109
    async with bank.xa(timeout=timeout) as t:
        await transfer(t)


async def die(bank: Coordinator, block: "asyncio.Future[None]") -> None:
    """As a killed process: nothing of it goes on, and nothing is cleaned up."""
    await bank._tasks.close()
    block.cancel()
    await asyncio.wait((block,))
    await bank._tasks.close()
