"""Stores that Apache's brokers left: their delayed messages, as we go on with them."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.store.kit import apache_store
from tests.unit.store.lab import config_of, expected_of
from tests.writers import writer_of

from turbopump.broker.config import BrokerIdentity, TopicRules
from turbopump.broker.delay.levels import FILE, DelayedMessages
from turbopump.broker.topics import TopicTable
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.protocol.record import Record
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.store.config_files import ConfigFiles
from turbopump.store.store import Store
from turbopump.testing.loop import VirtualClock, run_virtual

BEFORE, LATER = 1_700_000_000_000, 1_800_000_000_000  # all were due between
NAMES = ["4.9.7-clean", "4.9.7-kill9", "5.5.0-clean", "5.5.0-kill9"]
pytestmark = pytest.mark.parametrize("name", NAMES)


async def open_and_wait(name: str, root: str, now_ms: int) -> tuple[list[Record], list[Record]]:
    """What waited, and what was delivered in a minute, when it is so late."""
    clock, disk = VirtualClock(start_ms=now_ms), SystemDisk()
    store = Store.open(config_of(name, root), disk, clock, SystemWorkers())
    end = store.log.end
    topics = TopicTable(TopicRules(), BrokerIdentity(broker_name="a"), clock)
    files = ConfigFiles(store.config.config_dir, disk)
    delays = DelayedMessages(store, topics, writer_of(store, clock), files.save, SystemWorkers(), clock)
    files.load(FILE, lambda data: delays.load(data) >= 0)
    delays.open()
    running = asyncio.create_task(delays.run())
    await asyncio.sleep(60)
    running.cancel()
    queues = store.queues.of(SCHEDULE_TOPIC)
    entries = [queue.entry(offset) or (0, 0, 0) for queue in queues for offset in range(queue.max_offset)]
    waited = [found for at, _, _ in entries if (found := store.log.look_up(at)) is not None]
    delivered = []
    while (found := store.log.look_up(end)) is not None:
        delivered.append(found)
        end += found.size
    store.commit_log.close()
    return waited, delivered


def test_what_apache_delivered_is_not_delivered_again(name: str, tmp_path: Path) -> None:
    waited, delivered = run_virtual(open_and_wait(name, apache_store(name, tmp_path), LATER))
    assert len(waited) >= 7
    assert delivered == []


def test_what_waits_in_apaches_queues_has_its_time(name: str, tmp_path: Path) -> None:
    """Without Apache's word about what is done, all of it counts as waiting. In the stores that were stopped
    cleanly the times are in extensions of the queues.
    """
    root = apache_store(name, tmp_path)
    for file in (FILE, f"{FILE}.bak"):
        Path(root, "config", file).unlink()
    waited, delivered = run_virtual(open_and_wait(name, root, BEFORE))
    assert delivered == []
    waited, delivered = run_virtual(open_and_wait(name, root, LATER))
    due = {record.physical_offset: record for record in waited}
    assert sorted(~record.prepared_transaction_offset for record in delivered) == sorted(due)
    expected = expected_of(name)["messages"]
    for record in delivered:
        original = due[~record.prepared_transaction_offset]
        theirs = [
            message
            for message in expected
            if message["topic"] == record.topic
            and message["properties"]["UNIQ_KEY"] == record.unique_key
            and message["reconsumeTimes"] == record.reconsume_times
        ]
        assert record.properties == original.properties
        assert [message["properties"] for message in theirs] == [record.property_map()]
        assert [message["queueId"] for message in theirs] == [record.queue_id]
        assert [message["bodyCRC"] for message in theirs] == [record.body_crc]
