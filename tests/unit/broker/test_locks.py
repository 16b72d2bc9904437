"""Queue locks: who may consume a queue in order."""

import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.kit import virtual
from tests.properties import examples
from tests.unit.broker.desk import CONFIG, Desk, records, running

from turbopump.broker.config import GroupRules
from turbopump.broker.groups.locks import LockTable
from turbopump.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, WireQueue
from turbopump.protocol.codes import RequestCode
from turbopump.testing.loop import run_virtual

LIVE_S = 60.0


def queue(number: int, topic: str = "T") -> WireQueue:
    return WireQueue("broker-a", number, topic)


Q0, Q1 = queue(0), queue(1)


def locked(locks: LockTable, client: str, *queues: WireQueue, now: float, group: str = "G") -> list[int]:
    return [queue.queueId for queue in locks.lock(group, client, queues, now)[0]]


def test_a_queue_has_one_holder_per_group() -> None:
    locks = LockTable(LIVE_S)
    assert locked(locks, "one", Q0, now=0) == [0]
    assert locked(locks, "two", Q0, Q1, now=1) == [1]
    assert locked(locks, "two", Q0, now=1, group="H") == [0]
    assert locked(locks, "one", Q0, Q1, now=2) == [0]


@pytest.mark.parametrize(("later_s", "is_free"), [(60.0, False), (60.001, True)])
def test_a_lock_that_is_not_renewed_is_free_after_a_minute(later_s: float, is_free: bool) -> None:
    locks = LockTable(LIVE_S)
    locked(locks, "one", Q0, now=10)
    got, taken = locks.lock("G", "two", [Q0], 10 + later_s)
    assert bool(got) == is_free
    assert taken == ([(Q0, "one")] if is_free else [])


def test_a_renewed_lock_lives_on_and_an_expired_one_can_be_renewed_when_nobody_took_it() -> None:
    locks = LockTable(LIVE_S)
    for now in (0, 50, 100):
        assert locked(locks, "one", Q0, now=now) == [0]
    assert locked(locks, "two", Q0, now=150) == []
    assert locked(locks, "one", Q0, now=500) == [0]


def test_only_the_holder_can_unlock() -> None:
    locks = LockTable(LIVE_S)
    locked(locks, "one", Q0, Q1, now=0)
    locks.unlock("G", "two", [Q0])
    locks.unlock("H", "one", [Q0])
    assert locked(locks, "two", Q0, now=1) == []
    locks.unlock("G", "one", [Q0, Q0, queue(7)])
    assert locked(locks, "two", Q0, Q1, now=1) == [0]
    assert len(locks) == 2


def test_locks_are_bounded_and_swept() -> None:
    locks = LockTable(LIVE_S, max_locks=3)
    wanted = [queue(number) for number in range(5)]
    assert locked(locks, "one", *wanted, now=0) == [0, 1, 2]
    assert locked(locks, "two", queue(9), now=0) == []
    locks.sweep(now=120)
    assert len(locks) == 3
    locks.sweep(now=120.1)
    assert len(locks) == 0
    assert locked(locks, "two", queue(9), now=121) == [9]


def test_a_group_cannot_take_all_the_places() -> None:
    locks = LockTable(LIVE_S, max_locks=10, max_of_group=4)
    wanted = [queue(number) for number in range(20)]
    assert locked(locks, "one", *wanted, now=0) == [0, 1, 2, 3]
    assert locked(locks, "one", *wanted, now=20) == [0, 1, 2, 3]
    assert locked(locks, "two", Q0, Q1, now=20, group="H") == [0, 1]


CLIENTS = st.sampled_from(["one", "two", "three"])
QUEUES = st.lists(st.sampled_from([Q0, Q1, queue(0, "U")]), max_size=3)


class Locking(RuleBasedStateMachine):
    """Against a model: queue -> holder and when it last asked."""

    def __init__(self) -> None:
        super().__init__()
        self.locks = LockTable(LIVE_S)
        self.now = 0.0
        self.held: dict[WireQueue, tuple[str, float]] = {}

    @rule(client=CLIENTS, queues=QUEUES)
    def lock(self, client: str, queues: list[WireQueue]) -> None:
        expected = []
        for wanted in dict.fromkeys(queues):
            holder, since = self.held.get(wanted, (client, self.now))
            if holder == client or self.now - since > LIVE_S:
                self.held[wanted] = (client, self.now)
                expected.append(wanted)
        assert self.locks.lock("G", client, queues, self.now)[0] == expected

    @rule(client=CLIENTS, queues=QUEUES)
    def unlock(self, client: str, queues: list[WireQueue]) -> None:
        self.locks.unlock("G", client, queues)
        for wanted in queues:
            if self.held.get(wanted, ("", 0.0))[0] == client:
                del self.held[wanted]

    @rule(seconds=st.sampled_from([0.0, 20.0, 59.0, 61.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.locks.sweep(self.now)

    @invariant()
    def both_agree(self) -> None:
        live = any(self.now - since <= LIVE_S for _, since in self.held.values())
        assert self.locks.holds_any("G", self.now) == live


TestLocking = Locking.TestCase
TestLocking.settings = examples(30, stateful_step_count=30)


# Over the wire


async def ask(desk: Desk, client: str, *queues: WireQueue, **fields: Any) -> list[WireQueue]:
    wish = LockBatchRequestBody(clientId=client, consumerGroup="G", mqSet=list(queues), **fields)
    answer = await desk.ask(RequestCode.LOCK_BATCH_MQ, body=wish.encode())
    assert (answer.code, answer.remark, answer.ext) == (0, None, None)
    return LockBatchResponseBody.decode(answer.body).lockOKMQSet


async def unlock(desk: Desk, client: str, *queues: WireQueue) -> None:
    wish = LockBatchRequestBody(clientId=client, consumerGroup="G", mqSet=list(queues))
    answer = await desk.ask(RequestCode.UNLOCK_BATCH_MQ, body=wish.encode())
    assert (answer.code, answer.body) == (0, b"")


@virtual
async def test_what_a_group_that_consumes_in_order_gives_up_is_a_dead_letter() -> None:
    """Java's ordered consumers send it with as many tries as allowed, not with one more."""
    async with running() as desk:
        await ask(desk, "one", Q0)
        assert (await desk.send("%RETRY%G", b"given up", j=16, l=16, pairs={"DELAY": "18"})).code == 0
        assert [found.body for found in records(await desk.pull("%DLQ%G", 0))] == [b"given up"]
        await desk.disk.clock.sleep(61)  # the lock has expired: a group like any other
        assert (await desk.send("%RETRY%G", b"again", j=16, l=16, pairs={"DELAY": "18"})).code == 0
        assert (await desk.ask(RequestCode.GET_MAX_OFFSET, {"topic": "%DLQ%G", "queueId": 0})).ext == {
            "offset": "1"
        }


@virtual
async def test_locks_over_the_wire() -> None:
    async with running() as desk:
        assert await ask(desk, "one", Q0, Q1) == [Q0, Q1]
        assert await ask(desk, "two", Q0, Q1, onlyThisBroker=False) == []
        await unlock(desk, "one", Q1)
        assert await ask(desk, "two", Q0, Q1, onlyThisBroker=True) == [Q1]
        assert await ask(desk, "two") == []
        assert (await desk.ask(RequestCode.LOCK_BATCH_MQ, body=b"nonsense")).code == 1


def test_a_lock_outlives_the_connection_and_ends_a_minute_after_the_last_renewal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with running() as desk:
            await ask(desk, "one", Q0)
            (await desk.client.connect(f"127.0.0.1:{desk.broker.port}")).abort()
            await desk.disk.clock.sleep(59.9)
            assert await ask(desk, "two", Q0) == []
            await desk.disk.clock.sleep(0.2)
            assert await ask(desk, "two", Q0) == [Q0]

    with caplog.at_level(logging.WARNING, "turbopump.broker.groups.locks"):
        run_virtual(main())
    assert [record.getMessage() for record in caplog.records] == [
        "Group G: one did not renew its lock of T queue 0 in time; two holds it now"
    ]


@virtual
async def test_how_long_a_lock_lives_is_a_setting() -> None:
    async with running(replace(CONFIG, groups=GroupRules(lock_ms=5000))) as desk:
        await ask(desk, "one", Q0)
        await desk.disk.clock.sleep(5.1)
        assert await ask(desk, "two", Q0) == [Q0]
