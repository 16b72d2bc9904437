"""A disk that does not answer: what gathers behind it has a bound, whether somebody waits or not."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.store.flush_kit import Bench
from tests.unit.store.lab import draft

from turbopump.protocol.errors import SystemBusy
from turbopump.store.flush import Durability


def send_without_waiting(bench: Bench) -> None:
    bench.store.log.append([draft(bench.store.queues.queue("T", 0))])


@virtual
async def test_messages_that_nobody_waits_for_are_turned_away_too_while_a_sync_hangs():
    bench = Bench(commit_log_file_size=1 << 16)
    await bench.store.start()
    await asyncio.sleep(0.05)
    bench.workers.stall(20)
    send_without_waiting(bench)
    await asyncio.sleep(0.9)
    send_without_waiting(bench)
    await asyncio.sleep(0.4)
    with pytest.raises(SystemBusy, match=r"\[PC_SYNCHRONIZED\]"):
        send_without_waiting(bench)
    await asyncio.sleep(20)
    send_without_waiting(bench)
    await asyncio.sleep(0.1)
    assert bench.store.queues.queue("T", 0).max_offset == 3
    await bench.store.close()


@virtual
async def test_syncs_that_come_to_an_end_in_time_turn_nobody_away():
    bench = Bench(commit_log_file_size=1 << 16)
    await bench.store.start()
    await asyncio.sleep(0.05)
    for _ in range(5):
        bench.workers.stall(0.7)
        bench.send()
        await asyncio.sleep(0.35)
        bench.send()  # waits for the rest of this one, then for one of its own
        await asyncio.sleep(0.35)
    await bench.told(10)
    assert set(bench.outcomes) == {Durability.DISK}
    await bench.store.close()


@virtual
async def test_who_comes_while_a_sync_in_the_background_hangs_waits_no_longer_than_the_timeout():
    bench = Bench(flush_disk_type="ASYNC_FLUSH", commit_log_file_size=1 << 16)
    store = bench.store
    await store.start()
    await asyncio.sleep(0.05)
    bench.workers.stall(20)
    store.log.append([draft(store.queues.queue("T", 0), bytes(20_000))])
    await asyncio.sleep(0.6)
    assert await asyncio.wait_for(store.flusher.wait_durable(store.log.end), 7) is Durability.TIMEOUT
    await store.close()
