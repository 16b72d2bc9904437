"""The journal of global transactions at brokers, against an embedded cluster in virtual time."""

import asyncio

import pytest

from turbopump.client.message import Message
from turbopump.protocol.errors import Fenced, IllegalOperation
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalRecord, GlobalState
from turbopump.testing.cluster import AsyncCluster
from turbopump.testing.loop import run_virtual
from turbopump.transactions.distributed.journal import LEASE_S, BrokerJournal
from turbopump.transactions.errors import InDoubt

TCC, XA = GlobalKind.TCC, GlobalKind.XA
COMMIT, ABORT = GlobalDecision.COMMIT, GlobalDecision.ABORT


def journal(cluster: AsyncCluster, group: str = "bank", owner: str = "tm") -> BrokerJournal:
    return BrokerJournal(group, cluster.name_servers, owner=owner, world=cluster.world)


async def bodies(cluster: AsyncCluster, topic: str) -> list[bytes]:
    return sorted(message.body for message in await cluster.messages(topic))


def test_the_history_of_a_transaction_is_that_of_the_broker() -> None:
    async def scenario() -> None:
        async with AsyncCluster(2, clock="virtual") as cluster, journal(cluster) as tm:
            known = await tm.open("g", TCC, "plan")
            await tm.append(known, [GlobalRecord("tried", "debit", "1")])
            await tm.append(known, [GlobalRecord("tried", "credit")])
            decided = await tm.decide("g", TCC, COMMIT, branches=("debit", "credit"))
            assert (decided.decision, decided.branches) == (COMMIT, ("debit", "credit"))
            await tm.append(decided, [], state="ended", outcome="committed")
            read = await tm.read("g")
            assert read is not None
            assert [one.branch for one in read.records] == ["debit", "credit"]
            assert (read.state, read.outcome) == (GlobalState.ENDED, "committed")
            assert await tm.read("unknown") is None
            assert [one.gid async for one in tm.page(page_size=1)] == ["g"]

    run_virtual(scenario())


def test_two_clients_of_a_group_have_one_home_and_see_the_same_decision() -> None:
    async def scenario() -> None:
        async with (
            AsyncCluster(2, clock="virtual") as cluster,
            journal(cluster) as first,
            journal(cluster, owner="other") as second,
        ):
            assert first.home == second.home != ""
            deadline_ms = cluster.world.clock.now_ms() + 30_000
            decided = await first.decide("g", XA, COMMIT, branches=("a", "b"), deadline_ms=deadline_ms)
            assert (decided.decision, decided.lease) == (COMMIT, 1)
            again = await second.decide("g", XA, ABORT)
            assert (again.decision, again.lease) == (COMMIT, 0)
            with pytest.raises(IllegalOperation):
                await second.open("g", TCC, "")

    run_virtual(scenario())


def test_a_client_that_takes_over_fences_the_former_owner() -> None:
    async def scenario() -> None:
        async with (
            AsyncCluster(1, clock="virtual") as cluster,
            journal(cluster) as first,
            journal(cluster, owner="other") as second,
        ):
            known = await first.open("g", TCC, "plan")
            assert await second.claim(10) == []
            await asyncio.sleep(LEASE_S)
            (claimed,) = await second.claim(10)
            assert (claimed.gid, claimed.plan) == ("g", "plan")
            with pytest.raises(Fenced):
                await first.append(known, [GlobalRecord("late")])
            await second.append(claimed, [GlobalRecord("tried")])

    run_virtual(scenario())


def test_messages_are_seen_if_and_only_if_their_transaction_commits() -> None:
    async def scenario() -> None:
        async with AsyncCluster(2, clock="virtual") as cluster, journal(cluster) as tm:
            await cluster.create_topic("T", queues=2)
            for gid in ("commits", "aborts"):
                await tm.open(gid, XA, "", deadline_ms=cluster.world.clock.now_ms() + 30_000)
                writer = tm.writer(gid)
                await writer.send([Message("T", f"{gid} {number}".encode()) for number in range(4)])
                brokers = writer.written.brokers
                decision = COMMIT if gid == "commits" else ABORT
                await tm.decide(gid, XA, decision, brokers=brokers)
                ended = await tm.settle(gid)
                assert (ended.committed + ended.rolled_back, ended.behind) == (4, ())
            assert await bodies(cluster, "T") == [f"commits {number}".encode() for number in range(4)]

    run_virtual(scenario())


def test_a_decision_that_no_broker_answers_is_in_doubt() -> None:
    async def scenario() -> None:
        async with AsyncCluster(1, clock="virtual") as cluster, journal(cluster) as tm:
            deadline_ms = cluster.world.clock.now_ms() + 30_000
            await cluster.kill_broker()
            with pytest.raises(InDoubt) as raised:
                await tm.decide("g", XA, COMMIT, branches=("a", "b"), deadline_ms=deadline_ms)
            assert raised.value.gid == "g"

    run_virtual(scenario())
