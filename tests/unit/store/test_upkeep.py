"""What the store does by itself between checkpoints."""

import asyncio

from tests.kit import virtual
from tests.unit.store.flush_kit import Bench
from tests.unit.store.lab import fill


def queue_files(bench: Bench) -> int:
    disk = bench.disk
    root = bench.store.config.queue_dir
    topics = [f"{root}/{topic.name}" for topic in disk.entries(root)]
    return sum(
        len(disk.entries(f"{topic}/{queue.name}")) for topic in topics for queue in disk.entries(topic)
    )


@virtual
async def test_a_few_entries_wait_for_the_checkpoint_a_page_of_them_does_not() -> None:
    bench = Bench(flush_disk_type="ASYNC_FLUSH", commit_log_file_size=1 << 20, index_enabled=False)
    await bench.store.start()
    fill(bench.store, 3)
    await asyncio.sleep(2)
    assert queue_files(bench) == 0
    fill(bench.store, 1000, start=3)
    await asyncio.sleep(2)
    assert queue_files(bench) > 0
    await bench.store.close()


@virtual
async def test_after_a_checkpoint_nothing_waits() -> None:
    bench = Bench(flush_disk_type="ASYNC_FLUSH", commit_log_file_size=1 << 20, index_enabled=False)
    await bench.store.start()
    fill(bench.store, 3)
    await asyncio.sleep(11)
    assert queue_files(bench) > 0
    assert not bench.store.queues.dirty
    await bench.store.close()
