"""Group commit, in virtual time on a simulated disk: what waiters are told, whatever the disk does."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.store.flush_kit import LOG, Bench
from tests.unit.store.lab import Workers, check, draft, fill, new_disk, numbers, open_store

from turbopump.protocol.errors import Refused, ServiceNotAvailable, SystemBusy
from turbopump.store import flush, upkeep
from turbopump.store.flush import Durability
from turbopump.store.store import Store
from turbopump.testing.loop import run_virtual
from turbopump.testing.simulated_files import Survival


@virtual
async def test_all_waiters_of_one_pass_share_one_sync():
    bench = Bench()
    await bench.store.start()
    bench.send(1)
    await bench.told(1)
    bench.syncs = 0
    bench.send(20)
    assert bench.outcomes == [Durability.DISK]
    assert await bench.told(21) == [Durability.DISK] * 21
    assert bench.syncs == 1
    await bench.store.close()


@virtual
async def test_a_fault_of_ours_in_a_sync_leaves_nobody_waiting(monkeypatch):
    bench = Bench()
    await bench.store.start()
    with monkeypatch.context() as patch:
        patch.setattr(flush, "_sync_files", lambda *_: 1 / 0)
        bench.send(3)
        assert await asyncio.wait_for(bench.told(3), 60) == [Durability.FAILED] * 3
    bench.send()
    assert (await bench.told(4))[3:] == [Durability.DISK]
    await bench.store.close()


@virtual
async def test_while_a_sync_is_under_way_the_next_group_gathers():
    bench = Bench(commit_log_file_size=1 << 16)
    await bench.store.start()
    bench.send()
    await bench.told(1)
    bench.syncs = 0
    bench.workers.stall(0.5)
    bench.send()
    for _ in range(10):
        await asyncio.sleep(0.01)
        bench.send()
    await bench.told(12)
    assert bench.syncs == 2
    await bench.store.close()


@virtual
async def test_a_message_can_be_read_when_it_is_on_the_medium_not_before():
    bench = Bench()
    await bench.store.start()
    heard: list[int] = []
    bench.store.log.on_arrival = lambda queue, next_offset, tags_code: heard.append(next_offset)
    queue = bench.store.queues.queue("T", 0)
    bench.send(3)
    assert (queue.next_offset, queue.max_offset, heard) == (3, 0, [])
    await bench.told(3)
    assert (queue.max_offset, heard) == (3, [1, 2, 3])
    await bench.store.close()


@virtual
async def test_a_failed_sync_fails_every_waiter_and_writing_stops_until_one_succeeds():
    bench = Bench()
    await bench.store.start()
    bench.send(2)
    await bench.told(2)
    bench.disk.fail_sync(path_part=LOG)
    bench.send(3)
    assert (await bench.told(5))[2:] == [Durability.FAILED] * 3
    with pytest.raises(ServiceNotAvailable, match="sync of the commit log failed"):
        bench.send()
    await asyncio.sleep(2)
    assert bench.store.flags.reason is None
    bench.send()
    assert (await bench.told(6))[-1] is Durability.DISK
    assert bench.store.queues.queue("T", 0).max_offset == 6
    await bench.store.close()


@virtual
async def test_success_after_a_failure_is_true():
    """The kernel takes the pages of a failed sync for clean: they must be written again before the next."""

    bench = Bench()
    await bench.store.start()
    bench.disk.fail_sync(path_part=LOG)
    bench.send(5)
    await bench.told(5)
    await asyncio.sleep(2)
    bench.send(1)
    assert (await bench.told(6))[-1] is Durability.DISK
    after = open_store(bench.disk.crash(Survival.LOST), commit_log_file_size=4096)
    assert numbers(after) == list(range(6))
    check(after)


@virtual
async def test_a_sync_that_hangs_times_its_waiters_out_and_turns_new_messages_away():
    bench = Bench()
    await bench.store.start()
    bench.send()
    await bench.told(1)
    bench.workers.stall(20)
    bench.send(2)
    await asyncio.sleep(1.3)
    with pytest.raises(SystemBusy, match=r"\[PC_SYNCHRONIZED\]"):
        bench.send()
    assert bench.outcomes == [Durability.DISK]
    await asyncio.sleep(4)
    assert bench.outcomes[1:] == [Durability.TIMEOUT] * 2
    await asyncio.sleep(20)
    bench.send()
    assert (await bench.told(4))[-1] is Durability.DISK
    assert bench.store.queues.queue("T", 0).max_offset == 4
    await bench.store.close()


@virtual
async def test_without_sync_flush_a_disk_that_hangs_turns_new_messages_away_too():
    """What gathers in the page cache behind it would hold up the loop in the end."""

    bench = Bench(flush_disk_type="ASYNC_FLUSH", checkpoint_interval_ms=10**9, flush_least_pages=0)
    await bench.store.start()
    bench.workers.stall(4)
    bench.store.log.append([draft(bench.store.queues.queue("T", 0))])
    await asyncio.sleep(1.3)
    bench.store.log.append([draft(bench.store.queues.queue("T", 0))])  # the sync began half a second ago
    await asyncio.sleep(0.5)
    with pytest.raises(SystemBusy, match=r"\[PC_SYNCHRONIZED\]"):
        bench.store.log.append([draft(bench.store.queues.queue("T", 0))])
    await asyncio.sleep(4)
    bench.store.log.append([draft(bench.store.queues.queue("T", 0))])
    await bench.store.close()


@virtual
async def test_without_sync_flush_a_large_sync_may_take_its_time():
    sizes = {"commit_log_file_size": 64 << 20, "max_message_size": 8 << 20}
    bench = Bench(flush_disk_type="ASYNC_FLUSH", checkpoint_interval_ms=10**9, **sizes)
    await bench.store.start()
    bench.workers.stall(2.5)
    for _ in range(3):  # 24 MiB: a disk that writes 10 MiB in a second is slow, but does not hang
        bench.store.log.append([draft(bench.store.queues.queue("T", 0), bytes(8 << 20))])
    await asyncio.sleep(2.9)
    bench.store.log.append([draft(bench.store.queues.queue("T", 0))])
    await bench.store.close()


@virtual
async def test_sends_are_refused_while_the_transient_pool_is_empty():
    bench = Bench(flush_disk_type="ASYNC_FLUSH", transient_pool=True, transient_pool_size=3)
    store = bench.store
    await store.start()
    assert store.log.pool_buffers_left == 3
    sent = 0
    while store.flags.reason is None:
        fill(store, 1, queues=1, start=sent)
        sent += 1
    with pytest.raises(SystemBusy, match=r"\[REJECTREQUEST\]system busy, start flow control for a while"):
        fill(store, 1, queues=1, start=sent)
    assert (store.log.pool_buffers_left, store.commit_log.base) == (0, 2 * 4096)
    await asyncio.sleep(0.25)  # they are committed
    assert store.log.pool_buffers_left == 2
    fill(store, 1, queues=1, start=sent)
    await asyncio.sleep(0.25)
    assert store.queues.queue("T", 0).max_offset == sent + 1
    assert numbers(store) == list(range(sent + 1))
    await store.close()
    check(Store.open(store.config, bench.disk, bench.clock, Workers()))


@virtual
async def test_a_group_of_messages_larger_than_the_transient_pool_is_stored_whole():
    bench = Bench(flush_disk_type="ASYNC_FLUSH", transient_pool=True, transient_pool_size=2)
    store = bench.store
    await store.start()
    queue = store.queues.queue("T", 0)
    store.log.append([draft(queue, b"%06d" % number + bytes(400), key=str(number)) for number in range(60)])
    await asyncio.sleep(0.25)
    assert numbers(store) == list(range(60))
    fill(store, 1, queues=1, start=60)
    await store.close()


def test_without_a_transient_pool_there_is_none_to_run_out_of():
    assert open_store(new_disk()).log.pool_buffers_left is None


@virtual
async def test_the_name_of_a_new_file_is_on_the_medium_before_what_is_in_it_is_acknowledged():
    bench = Bench()
    await bench.store.start()
    for _ in range(80):  # several files, each made by the append loop when it needs it
        bench.send()
        await bench.told(len(bench.outcomes) + 1)
    assert bench.store.commit_log.base >= 2 * 4096
    after = open_store(bench.disk.crash(Survival.LOST))
    assert numbers(after) == list(range(80))
    check(after)


@pytest.mark.parametrize("seed", range(8))
@virtual
async def test_new_files_whose_names_no_sync_followed_leave_no_gap(seed):
    """By chance, a power failure keeps some directory entries: the earlier ones, as file systems do."""

    bench = Bench(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=10**9, checkpoint_interval_ms=10**9)
    bench.disk.chance.seed(seed)
    await bench.store.start()
    fill(bench.store, 100)
    assert len(bench.store.commit_log.files.starts) > 3
    open_store(bench.disk.crash())


@virtual
async def test_an_answer_that_fails_does_not_keep_the_others_from_theirs():
    bench = Bench()
    await bench.store.start()

    def gone(_: Durability) -> None:
        raise ConnectionError("the peer is gone")

    bench.send()
    bench.store.flusher.durable(bench.store.log.end, gone)
    bench.send()
    await bench.told(2)
    bench.send()
    await bench.told(3)
    await bench.store.close()


@virtual
async def test_a_message_nobody_waits_for_is_synced_and_shown_too():
    bench = Bench()
    await bench.store.start()
    bench.store.log.append([draft(bench.store.queues.queue("T", 0))])
    await asyncio.sleep(0.1)
    assert bench.store.log.synced == bench.store.log.end
    assert bench.store.queues.queue("T", 0).max_offset == 1
    await bench.store.close()


@virtual
async def test_asynchronously_the_log_is_synced_twice_a_second_when_it_is_worth_it_and_always_after_ten():
    bench = Bench(flush_disk_type="ASYNC_FLUSH", commit_log_file_size=1 << 16, checkpoint_interval_ms=10**9)
    store = bench.store
    await store.start()
    store.log.append([draft(store.queues.queue("T", 0), bytes(20_000))])
    await asyncio.sleep(0.6)
    assert store.log.synced == store.log.end
    store.log.append([draft(store.queues.queue("T", 0), b"little")])
    await asyncio.sleep(2)
    assert store.log.synced < store.log.end
    await asyncio.sleep(9)
    assert store.log.synced == store.log.end
    await store.close()


@virtual
async def test_the_transient_pool_shows_what_was_committed_and_keeps_nothing_else():
    bench = Bench(flush_disk_type="ASYNC_FLUSH", transient_pool=True)
    store = bench.store
    assert store.flusher.durability is Durability.BUFFER
    await store.start()
    queue = store.queues.queue("T", 0)
    fill(store, 5, queues=1)
    assert (queue.max_offset, store.log.committed, store.reader.get(queue, 0, 9).count) == (0, 0, 0)
    await asyncio.sleep(0.25)
    assert (queue.max_offset, store.log.committed) == (5, store.log.end)
    assert store.reader.get(queue, 0, 9).count == 5
    fill(store, 60, queues=1, start=5)  # over several files
    bench.send(1)
    assert (await bench.told(1)) == [Durability.DISK]
    check(store)
    fill(store, 3, queues=1, start=66)
    killed = open_store(bench.disk.crash(Survival.KEPT))
    assert numbers(killed) == list(range(66)), "what was in the buffer died with the process"
    check(killed)


@virtual
async def test_closing_waits_for_everything_and_tells_everyone():
    bench = Bench()
    await bench.store.start()
    bench.send(5)
    await bench.store.close()
    assert bench.outcomes == [Durability.DISK] * 5
    with pytest.raises(Refused):
        bench.send()
    again = Store.open(bench.store.config, bench.disk, bench.clock, Workers())
    assert numbers(again) == list(range(5))


@virtual
async def test_closing_on_a_dead_disk_leaves_abort_for_the_next_start():
    bench = Bench()
    await bench.store.start()
    bench.send(2)
    bench.disk.sync_failure = 1.0
    await bench.store.close()
    assert bench.outcomes == [Durability.FAILED] * 2
    assert bench.disk.exists("/store/abort")


def test_no_room_for_queue_files_stops_writing_until_there_is(monkeypatch):
    monkeypatch.setattr(upkeep, "MIN_WRITE_BYTES", 1)

    async def main() -> None:
        bench = Bench(flush_disk_type="ASYNC_FLUSH", commit_log_file_size=1 << 16, index_enabled=False)
        store = bench.store
        await store.start()
        fill(store, 3)
        await asyncio.sleep(1.5)
        bench.disk.capacity = bench.disk.capacity - bench.disk.usage("/").free
        fill(store, 40, start=3)
        await asyncio.sleep(1.5)
        with pytest.raises(ServiceNotAvailable, match="consume queues cannot be written"):
            fill(store, 1, start=43)
        bench.disk.capacity = 1 << 40
        await asyncio.sleep(1.5)
        fill(store, 10, start=43)
        await store.close()
        check(Store.open(store.config, bench.disk, bench.clock, Workers()))

    run_virtual(main())


@virtual
async def test_what_waits_for_its_sync_is_not_dispatched_yet() -> None:
    bench = Bench()
    await bench.store.start()
    bench.send(1)
    await bench.told(1)
    log = bench.store.log
    end = log.end
    bench.send(2)
    assert log.dispatched == end < log.committed == log.end
    await bench.told(3)
    assert log.dispatched == log.end
    await bench.store.close()


@virtual
async def test_a_cut_waits_for_the_sync_under_way_and_fails_who_waits_for_what_is_gone() -> None:
    bench = Bench()
    await bench.store.start()
    flusher, log = bench.store.flusher, bench.store.log
    outcomes: list[Durability] = []
    bench.send(1)
    kept = log.end
    flusher.durable(kept, outcomes.append)
    bench.send(1)
    flusher.durable(log.end, outcomes.append)
    flusher.log_was_cut(kept)
    assert outcomes == [Durability.FAILED]
    await asyncio.sleep(0)
    await flusher.wait_idle()
    assert outcomes == [Durability.FAILED, Durability.DISK]
    await bench.store.close()
