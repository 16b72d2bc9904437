"""When a SYNC_MASTER answers, with which code, and what its receipt says: for each way to store messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker import globals_kit, producers, writers
from tests.unit.broker.desk import letters
from tests.unit.broker.timers_kit import now_ms, recall
from tests.unit.replication.kit import BrokerDesk, Node, Pair, pair

from turbopump.broker import server
from turbopump.protocol import batch
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command

OK = ResponseCode.SUCCESS
LATE, ALONE = ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE
SYNC = "brokerRole=SYNC_MASTER\n"
SLAVE_TIMEOUT_S = 3.0

State = Any
Setup = Callable[[BrokerDesk], Awaitable[State]]
Act = Callable[[BrokerDesk, State], Awaitable[Command]]


async def nothing(desk: BrokerDesk) -> None:
    """Needs nothing before it."""


async def plain(desk: BrokerDesk, state: State) -> Command:
    return await desk.send("T")


async def general(desk: BrokerDesk, state: State) -> Command:
    return await desk.send("T", code=RequestCode.SEND_MESSAGE_V2, pairs={"KEYS": "k", "TAGS": "t"}, h=7)


async def in_a_batch(desk: BrokerDesk, state: State) -> Command:
    body = batch.join([(0, b"one", b""), (0, b"two", b"")])
    return await desk.send("T", body, code=RequestCode.SEND_BATCH_MESSAGE, m="true")


async def half(desk: BrokerDesk, state: State) -> Command:
    pairs = {"TRAN_MSG": "true", "PGROUP": producers.GROUP}
    return await desk.send("T", b"half", pairs=pairs, f=4, g=now_ms(desk))


async def prepared(desk: BrokerDesk) -> State:
    answer = await half(desk, None)
    ext = answer.ext or {}
    return producers.parse_offset_id(ext["msgId"])[2], int(ext["queueOffset"])


async def commit(desk: BrokerDesk, state: State) -> Command:
    return await producers.end(desk, state, producers.COMMIT)


async def stored(desk: BrokerDesk) -> State:
    answer = await desk.send("T")
    return producers.parse_offset_id((answer.ext or {})["msgId"])[2]


async def send_back(desk: BrokerDesk, state: State) -> Command:
    ext = {"offset": state, "group": "CG", "delayLevel": 3, "originTopic": "T", "unitMode": "false"}
    return await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)


async def delayed(desk: BrokerDesk, state: State) -> Command:
    return await desk.send("T", pairs={"DELAY": "3"})


async def timed(desk: BrokerDesk, state: State) -> Command:
    return await desk.send("T", pairs={"TIMER_DELIVER_MS": str(now_ms(desk) + 60_000)})


async def with_handle(desk: BrokerDesk) -> State:
    answer = await desk.send("T", pairs={"TIMER_DELIVER_MS": str(now_ms(desk) + 60_000)})
    return (answer.ext or {})["recallHandle"]


async def recalled(desk: BrokerDesk, state: State) -> Command:
    return await recall(desk, state)


async def opened(desk: BrokerDesk) -> None:
    await writers.topic(desk)
    await writers.open_(desk)


async def to_the_ledger(desk: BrokerDesk, state: State) -> Command:
    return await writers.write(desk, 0, "t1", [b"a", b"b"])


async def written(desk: BrokerDesk) -> None:
    await opened(desk)
    await to_the_ledger(desk, None)


async def decided(desk: BrokerDesk, state: State) -> Command:
    return await writers.decide(desk, 0, "t1")


async def bank_at_home(desk: BrokerDesk) -> None:
    await globals_kit.begun(desk)
    await globals_kit.open_(desk)


async def decided_globally(desk: BrokerDesk, state: State) -> Command:
    fields = {"gid": globals_kit.GID, "kind": "tcc", "decision": "commit", "owner": "tm"}
    return await globals_kit.ask(desk, RequestCode.GLOBAL_DECIDE, **fields)


async def with_a_record(desk: BrokerDesk, state: State) -> Command:
    return await globals_kit.append(desk, "tried")


async def opened_globally(desk: BrokerDesk, state: State) -> Command:
    return await globals_kit.ask(desk, RequestCode.GLOBAL_OPEN, b"", gid="other", kind="tcc", owner="tm")


WAYS: dict[str, tuple[Setup, Act]] = {
    "plain send": (nothing, plain),
    "send with keys": (nothing, general),
    "batch": (nothing, in_a_batch),
    "half message": (nothing, half),
    "transaction end": (prepared, commit),
    "send back": (stored, send_back),
    "delay level": (nothing, delayed),
    "timer": (nothing, timed),
    "recall": (with_handle, recalled),
    "ledger send": (opened, to_the_ledger),
    "ledger decision": (written, decided),
    "global transaction": (bank_at_home, opened_globally),
    "global record": (bank_at_home, with_a_record),
    "global decision": (bank_at_home, decided_globally),
}
GLOBAL = ("global transaction", "global record", "global decision")
WITH_RECEIPT = (
    "plain send",
    "send with keys",
    "batch",
    "half message",
    "delay level",
    "timer",
    "ledger send",
)
OTHERS = ("transaction end", "send back", "recall", "ledger decision", *GLOBAL)
CODE_ALONE = dict.fromkeys(WITH_RECEIPT, ALONE) | dict.fromkeys(OTHERS, OK)
CODE_LATE = dict.fromkeys(WITH_RECEIPT, LATE) | {
    "transaction end": LATE,
    "send back": ResponseCode.SYSTEM_ERROR,  # with FLUSH_SLAVE_TIMEOUT as its remark, as in Apache
    "recall": ResponseCode.SYSTEM_ERROR,
    "ledger decision": LATE,
    **dict.fromkeys(GLOBAL, LATE),
}
WORDS_LATE = {
    "recall": "the recall is stored, but too few slaves had it in time",
    "ledger decision": "the entry of the ledger is stored, but too few slaves had it in time; ask again",
    **dict.fromkeys(
        GLOBAL,
        "the entry of the book of global transactions is stored, but too few slaves had it in time; "
        "ask again",
    ),
}


@pytest.fixture(params=["compiled", "pure"])
def sends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The broker's sends with and without the compiled twins."""
    if request.param == "pure":
        monkeypatch.setattr(server, "twins", lambda: None)
    return str(request.param)


async def started(world: Pair, slaves: int, master_conf: str = "", slave_conf: str = "") -> list[Node]:
    """A SYNC_MASTER and slaves that have everything; the master first."""
    nodes = [world.node(SYNC + master_conf)]
    nodes += [
        world.node(f"brokerRole=SLAVE\nbrokerId={number}\n{slave_conf}") for number in range(1, slaves + 1)
    ]
    for node in nodes:
        await node.start()
    await world.until(lambda: len(nodes[0].broker.replication.master.copies.slaves) == slaves)  # type: ignore[union-attr]
    for slave in nodes[1:]:
        await world.copied(nodes[0], slave)
    return nodes


def copies(answer: Command) -> int:
    return int((answer.ext or {}).get("replicas", 0))


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_without_a_slave_it_is_answered_at_once_and_claims_one_copy(way: str, sends: str) -> None:
    setup, act = WAYS[way]
    async with pair() as world:
        (master,) = await started(world, 0)
        desk = BrokerDesk(world, master)
        state = await setup(desk)
        began = world.clock.monotonic()
        answer = await act(desk, state)
        assert world.clock.monotonic() - began < 0.5
        assert answer.code == CODE_ALONE[way], answer.remark
        if way in WITH_RECEIPT:
            assert copies(answer) == 1


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_with_slaves_it_is_answered_when_one_has_it_and_names_those_that_do(
    way: str, count: int, flush: str, sends: str
) -> None:
    setup, act = WAYS[way]
    async with pair() as world:
        master, *slaves = await started(world, count, f"flushDiskType={flush}\n")
        desk = BrokerDesk(world, master)
        state = await setup(desk)
        before = master.store.log.end
        answer = await act(desk, state)
        assert answer.code == OK, answer.remark
        assert master.store.log.end > before
        assert any(slave.store.replica.end > before for slave in slaves)
        if way in WITH_RECEIPT:
            assert 2 <= copies(answer) <= 1 + count
            assert (answer.ext or {})["durability"] == ("disk" if flush == "SYNC_FLUSH" else "memory")
        for slave in slaves:
            await world.copied(master, slave)
            assert slave.log == master.log


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_a_slave_that_hangs_costs_the_timeout_and_is_not_counted(way: str, sends: str) -> None:
    setup, act = WAYS[way]
    async with pair() as world:
        master, slave = await started(world, 1)
        desk = BrokerDesk(world, master)
        state = await setup(desk)
        await world.copied(master, slave)
        world.network.cut(master.ip, slave.ip)
        began = world.clock.monotonic()
        answer = await act(desk, state)
        took = world.clock.monotonic() - began
        assert SLAVE_TIMEOUT_S <= took < SLAVE_TIMEOUT_S + 0.5
        assert answer.code == CODE_LATE[way], answer.remark
        assert answer.remark == WORDS_LATE.get(way, answer.remark)
        if way in WITH_RECEIPT:
            assert copies(answer) == 1


@virtual
async def test_one_that_does_not_wait_is_answered_at_once_and_claims_its_own_copy(sends: str) -> None:
    async with pair() as world:
        master, slave = await started(world, 1)
        world.network.cut(master.ip, slave.ip)
        began = world.clock.monotonic()
        answer = await BrokerDesk(world, master).send("T", pairs={"WAIT": "false"})
        assert world.clock.monotonic() - began < 0.5
        assert (answer.code, copies(answer)) == (OK, 1)


@virtual
async def test_a_one_way_send_is_stored_and_copied(sends: str) -> None:
    async with pair() as world:
        master, slave = await started(world, 1)
        desk = BrokerDesk(world, master)
        ext = {name: str(value) for name, value in letters("T").items()}
        request = Command(int(RequestCode.SEND_MESSAGE_V2), flag=2, ext=ext, body=b"one way")
        await world.tool.send_oneway(master.address, request)
        await world.until(lambda: master.store.log.end > 0)
        await world.copied(master, slave)
        assert await world.pull(slave) == [b"one way"]
        assert desk.store.log.end == slave.store.replica.end


@virtual
async def test_a_send_that_waits_for_a_slave_delays_no_other(sends: str) -> None:
    """Each send has its own deadline: those sent later are answered later, one that need not wait at once."""
    async with pair() as world:
        master, slave = await started(world, 1)
        world.network.cut(master.ip, slave.ip)
        desk, answered = BrokerDesk(world, master), {}

        async def send(name: str, after_s: float, **changes: Any) -> None:
            await asyncio.sleep(after_s)
            began = world.clock.monotonic()
            answer = await desk.send("T", **changes)
            answered[name] = round(world.clock.monotonic() - began, 1), answer.code

        await asyncio.gather(
            send("first", 0.0), send("second", 1.0), send("hurried", 1.5, pairs={"WAIT": "false"})
        )
        assert answered == {
            "first": (SLAVE_TIMEOUT_S, LATE),
            "second": (SLAVE_TIMEOUT_S, LATE),
            "hurried": (0.0, OK),
        }


@virtual
async def test_a_slave_that_comes_back_in_time_saves_the_send() -> None:
    async with pair() as world:
        master, slave = await started(world, 1)
        world.network.cut(master.ip, slave.ip)
        waiting = asyncio.ensure_future(BrokerDesk(world, master).send("T"))
        await asyncio.sleep(2.0)
        assert not waiting.done()
        world.network.join(master.ip, slave.ip)
        answer = await waiting
        assert (answer.code, copies(answer)) == (OK, 2)


@virtual
async def test_after_the_housekeeping_time_a_silent_slave_is_gone() -> None:
    async with pair() as world:
        master, slave = await started(world, 1)
        world.network.silent_cuts = True
        world.network.cut(master.ip, slave.ip)
        await asyncio.sleep(22)
        began = world.clock.monotonic()
        answer = await BrokerDesk(world, master).send("T")
        assert (answer.code, copies(answer)) == (ALONE, 1)
        assert world.clock.monotonic() - began < 0.5


@pytest.mark.parametrize(("slaves", "code", "found"), [(1, LATE, 2), (2, OK, 3)])
@virtual
async def test_three_in_sync_replicas_are_three_copies(slaves: int, code: int, found: int) -> None:
    async with pair() as world:
        master, *_ = await started(world, slaves, "inSyncReplicas=3\n")
        answer = await BrokerDesk(world, master).send("T")
        assert (answer.code, copies(answer)) == (code, found)


@pytest.mark.parametrize(("slaves", "code", "found"), [(0, OK, 1), (1, OK, 2), (2, OK, 3)])
@virtual
async def test_with_automatic_in_sync_replicas_those_are_waited_for_that_are_there(
    slaves: int, code: int, found: int
) -> None:
    async with pair() as world:
        master, *_ = await started(world, slaves, "inSyncReplicas=3\nenableAutoInSyncReplicas=true\n")
        answer = await BrokerDesk(world, master).send("T")
        assert (answer.code, copies(answer)) == (code, found)


@pytest.mark.parametrize("master_flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("slave_flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@virtual
async def test_copies_on_disk_are_never_more_than_disks_that_have_it(
    master_flush: str, slave_flush: str
) -> None:
    async with pair() as world:
        master, slave = await started(
            world, 1, f"flushDiskType={master_flush}\n", f"flushDiskType={slave_flush}\n"
        )
        desk = BrokerDesk(world, master)
        for _ in range(20):
            answer = await desk.send("T")
            ext = answer.ext or {}
            end = master.store.log.end
            on_disk = (master.store.log.synced >= end) + (slave.store.replica.synced >= end)
            assert int(ext["replicasOnDisk"]) <= on_disk
            assert int(ext["replicasOnDisk"]) >= (master_flush == "SYNC_FLUSH")
            assert copies(answer) == 2
            await asyncio.sleep(0.01)


@virtual
async def test_no_answer_claims_a_copy_of_a_slave_that_died_before_it_had_the_message() -> None:
    async with pair() as world:
        master, slave = await started(world, 1)
        desk = BrokerDesk(world, master)
        assert copies(await desk.send("T")) == 2
        waiting = [asyncio.ensure_future(desk.send("T")) for _ in range(5)]
        await slave.kill()
        for answer in await asyncio.gather(*waiting):
            end = int((answer.ext or {})["msgId"][16:], 16)
            log_of_slave = slave.disk.read("/store/commitlog/00000000000000000000")
            is_there = any(log_of_slave[end : end + 8])
            assert (copies(answer) == 2) <= is_there
            assert (answer.code == OK) <= is_there


@virtual
async def test_a_slave_that_opens_a_second_connection_counts_once() -> None:
    async with pair() as world:
        master, slave = await started(world, 1, "inSyncReplicas=3\n")
        world.network.silent_cuts = True
        desk = BrokerDesk(world, master)
        waiting = asyncio.ensure_future(desk.send("T"))
        await asyncio.sleep(0.1)
        assert len(master.broker.replication.master.copies.slaves) == 1  # type: ignore[union-attr]
        world.network.cut(master.ip, slave.ip)
        await slave.kill()
        world.network.join(master.ip, slave.ip)
        await slave.start()
        answer = await waiting
        assert (answer.code, copies(answer)) == (LATE, 2)
