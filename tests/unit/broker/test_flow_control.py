"""SYSTEM_BUSY: requests that waited too long, and a disk that stalls, in virtual time."""

import asyncio
from dataclasses import replace

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import Desk, letters, running
from tests.unit.broker.flow_control_kit import hold_up

from turbopump.broker.config import WaitLimits
from turbopump.broker.flow import LIMITS, PATIENT, RequestWaits
from turbopump.protocol.bodies import KVTable
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, encode
from turbopump.remoting.late_requests import NEVER
from turbopump.remoting.limits import Limits
from turbopump.testing.loop import VirtualLoop

BUSY = ResponseCode.SYSTEM_BUSY
IN_FLIGHT = Limits().requests_in_flight


async def busy_loop(desk: Desk) -> None:
    """Some traffic, so that the broker looks whether it keeps up."""
    await desk.send("T")


# The loop is held up


@virtual
async def test_a_send_that_waited_200_ms_is_refused_in_apaches_words() -> None:
    async with running() as desk:
        await busy_loop(desk)
        hold_up(0.25)
        answer = await desk.send("T")
        assert answer.code == BUSY
        assert answer.remark == (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, "
            "size of queue: 0"
        )
        assert (await desk.send("T")).code == 0  # without a restart, without a pause


@virtual
async def test_a_send_that_waited_less_is_served() -> None:
    async with running() as desk:
        await busy_loop(desk)
        hold_up(0.19)
        assert (await desk.send("T")).code == 0


@virtual
async def test_a_send_that_came_at_the_end_of_a_stall_is_not_called_old() -> None:
    async with running() as desk:
        await busy_loop(desk)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_soon(lambda: (loop.jump(3.0), sent.append(asyncio.ensure_future(desk.send("T")))))
        sent: list[asyncio.Future[Command]] = []
        await asyncio.sleep(0.01)
        assert (await sent[0]).code == 0


@virtual
async def test_a_pull_may_wait_longer_than_a_send() -> None:
    async with running() as desk:
        await busy_loop(desk)
        hold_up(4.0)
        assert (await desk.pull("T", 0)).code == 0
        hold_up(5.5)
        answer = await desk.pull("T", 0)
        assert (answer.code, (answer.remark or "")[:21]) == (BUSY, "[TIMEOUT_CLEAN_QUEUE]")


@virtual
async def test_limits_and_the_whole_of_it_can_be_changed_while_the_broker_runs() -> None:
    async with running() as desk:

        async def configure(text: str) -> None:
            assert (await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())).code == 0

        await configure("waitTimeMillsInSendQueue=1000")
        hold_up(0.9)
        assert (await desk.send("T")).code == 0
        hold_up(1.1)
        assert (await desk.send("T")).code == BUSY
        await configure("brokerFastFailureEnable=false")
        hold_up(20.0)
        assert (await desk.send("T")).code == 0
        await configure("brokerFastFailureEnable=true\nwaitTimeMillsInSendQueue=200")
        hold_up(0.25)
        assert (await desk.send("T")).code == BUSY


@virtual
async def test_of_one_read_event_each_request_is_judged_by_its_own_limit() -> None:
    async with running() as desk:
        await busy_loop(desk)
        connection = await desk.client.connect(f"127.0.0.1:{desk.broker.port}")
        ext = {k: str(v) for k, v in letters("T").items()}
        codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.GET_BROKER_RUNTIME_INFO) * 2
        asked = [connection.call(Command(code, ext=ext, body=b"x"), 5) for code in codes]
        running_calls = [asyncio.create_task(one) for one in asked]
        for _ in range(2):
            await asyncio.sleep(0)  # they are written, and not there yet
        asyncio.get_running_loop().jump(1.0)  # type: ignore[attr-defined]
        answers = await asyncio.gather(*running_calls)
        assert [answer.code for answer in answers] == [BUSY, 0, BUSY, 0]


@virtual
async def test_a_oneway_send_that_is_too_old_is_dropped_and_nobody_is_told() -> None:
    async with running() as desk:
        await busy_loop(desk)
        connection = await desk.client.connect(f"127.0.0.1:{desk.broker.port}")
        hold_up(1.0)
        ext = {k: str(v) for k, v in letters("T").items()}
        connection.send_oneway(Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=b"x"))
        await asyncio.sleep(1)
        store = desk.broker._store
        assert store is not None
        assert store.queues.queue("T", 0).max_offset == 1  # the first one


# The disk stalls


@virtual
async def test_a_disk_that_stalls_turns_sends_away_and_takes_them_again_when_it_is_back() -> None:
    async with running(flush_disk_type="SYNC_FLUSH") as desk:
        await desk.send("T")
        desk.workers.stall(4.0)
        first = asyncio.create_task(desk.send("T"))
        await asyncio.sleep(0.9)
        second = asyncio.create_task(desk.send("T"))  # the disk may still come back
        await asyncio.sleep(0.4)
        third = await desk.send("T")
        assert third.code == BUSY
        assert third.remark == "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        assert desk.broker.trouble == third.remark
        state = KVTable.decode((await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert (state["brokerActive"], state["storeTrouble"]) == ("false", third.remark)
        assert 1290 <= int(state["pageCacheLockTimeMills"]) < 1400
        assert (await desk.pull("T", 0)).code == 0  # reading goes on
        assert [answer.code for answer in await asyncio.gather(first, second)] == [0, 0]
        assert desk.broker.trouble is None
        assert (await desk.send("T")).code == 0
        store = desk.broker._store
        assert store is not None
        assert store.queues.queue("T", 0).max_offset == 4  # the one that was refused is not there


@virtual
async def test_requests_behind_too_many_of_the_same_client_are_answered_too() -> None:
    """So many wait for the disk that the next ones are not even begun: they hear of it after 200 ms."""

    async with running(flush_disk_type="SYNC_FLUSH") as desk:
        await desk.send("T")
        desk.workers.stall(4.0)
        connection = await desk.client.connect(f"127.0.0.1:{desk.broker.port}")
        ext = {k: str(v) for k, v in letters("T").items()}

        def send() -> "asyncio.Task[Command]":
            request = Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=b"x")
            return asyncio.create_task(connection.call(request, 10))

        in_flight = []
        for _ in range(IN_FLIGHT):
            in_flight.append(send())
            await asyncio.sleep(1e-6)  # each in a read event of its own
        await asyncio.sleep(0.01)
        waiting = send()
        await asyncio.sleep(0.1)
        answer = await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO, port=10909)
        table = KVTable.decode(answer.body).table
        assert table["sendThreadPoolQueueSize"] == "1"
        assert 90 <= int(table["sendThreadPoolQueueHeadWaitTimeMills"]) <= 110
        late = await waiting
        assert (late.code, (late.remark or "")[:21]) == (BUSY, "[TIMEOUT_CLEAN_QUEUE]")
        assert "period in queue: 200ms" in (late.remark or "")
        again = await send()  # it is read although there is no room: it may not hang until the disk is back
        assert (again.code, (again.remark or "")[:21]) == (BUSY, "[TIMEOUT_CLEAN_QUEUE]")
        await asyncio.sleep(1.5)
        stalled = await send()
        assert (stalled.code, (stalled.remark or "")[:20]) == (BUSY, "[PCBUSY_CLEAN_QUEUE]")
        assert {answer.code for answer in await asyncio.gather(*in_flight)} == {0}
        assert (await send()).code == 0


@virtual
async def test_asynchronously_a_disk_that_hangs_turns_sends_away_too() -> None:
    async with running(flush_least_pages=0) as desk:
        await desk.send("T")
        desk.workers.stall(4.0)
        await asyncio.sleep(1.0)  # within half a second it is synced
        assert (await desk.send("T")).code == 0
        await asyncio.sleep(0.9)
        answer = await desk.send("T")
        assert (answer.code, (answer.remark or "")[:17]) == (BUSY, "[PC_SYNCHRONIZED]")
        await asyncio.sleep(4.0)
        assert (await desk.send("T")).code == 0


@virtual
async def test_a_send_is_refused_while_the_transient_pool_is_empty() -> None:
    pool = {"transient_pool": True, "transient_pool_size": 2, "commit_interval_ms": 5000}
    async with running(commit_log_file_size=8192, **pool) as desk:
        answers = [await desk.send("T", bytes(1000)) for _ in range(12)]
        assert {answer.code for answer in answers[:6]} == {0}
        assert (answers[-1].code, answers[-1].remark) == (
            BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while",
        )
        state = KVTable.decode((await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert state["remainTransientStoreBufferNumbs"] == "0"
        await asyncio.sleep(5.1)
        assert (await desk.send("T")).code == 0
        state = KVTable.decode((await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert state["remainTransientStoreBufferNumbs"] == "1"


# The table


@pytest.mark.parametrize(
    "code", [*LIMITS, *PATIENT, RequestCode.GET_BROKER_CONFIG, RequestCode.LOCK_BATCH_MQ]
)
@virtual
async def test_each_kind_of_request_has_its_limit(code: int) -> None:
    flow = RequestWaits(lambda: waits, lambda: False)
    waits = WaitLimits()
    limit = getattr(waits, LIMITS.get(code, "admin_ms"))
    written: list[bytes] = []

    class Peer:
        write = written.append

    frame = (0, encode(Command(code, 1))[8:], b"")
    is_patient = code in PATIENT
    assert flow.late(Peer(), [frame], (limit - 1) / 1000) == [frame]  # type: ignore[arg-type]
    assert flow.late(Peer(), [frame], limit / 1000) == ([frame] if is_patient else [])  # type: ignore[arg-type]
    assert flow.refused.total() == len(written) == (0 if is_patient else 1)


@pytest.mark.parametrize("field", sorted({*LIMITS.values(), "admin_ms"}))
def test_no_limit_is_shorter_than_what_is_looked_at(field: str) -> None:
    limits = replace(WaitLimits(), **{field: 70})
    assert RequestWaits(lambda: limits, lambda: False).shortest_s() == 0.07
    off = replace(limits, enabled=False)
    assert RequestWaits(lambda: off, lambda: False).shortest_s() == NEVER
