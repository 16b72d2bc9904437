"""A message store on DLedger's log: what is committed is in queues and index, after any stop or crash."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest
from tests.unit.store.dledger.golden_kit import ENTRIES, NODES, answers, config_of_node, dledger_store
from tests.unit.store.dledger.kit import new_disk
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import EVER, Workers

from turbopump.protocol import record as codec
from turbopump.protocol.ids import pack_host
from turbopump.runtime.disk import SystemDisk
from turbopump.store.config import StoreConfig
from turbopump.store.store import Store
from turbopump.store.tools import run, verify
from turbopump.testing.disk import PowerCut, SimulatedDisk
from turbopump.testing.simulated_files import Survival

HOST = pack_host("10.1.2.3", 10911)
CONFIG = StoreConfig(
    root_dir="/store",
    dledger_id="n0",
    commit_log_file_size=4096,
    consume_queue_file_size=400,
    index_slots=50,
    index_items=200,
    dledger_index_units=64,
)


def message(number: int) -> bytes:
    """A message of one of three queues, with a key."""
    properties = f"UNIQ_KEY\1U{number}\2KEYS\1K{number}\2TAGS\1even\2".encode()
    return codec.encode(
        codec.Record(
            *("T", number % 3, 0, number // 3, 0, 0, 1, HOST, 1_794_733_741_890 + number, HOST),
            body=b"%08d" % number * (1 + number % 20),
            properties=properties,
        )
    )


def open_store(disk: SimulatedDisk) -> Store:
    return Store.open(CONFIG, disk, HandClock(), Workers())


def append(store: Store, numbers: range, term: int = 1) -> None:
    store.entries.append([message(number) for number in numbers], term)


def commit(store: Store, index: int) -> None:
    store.entries.commit_to(index)
    while store.committed.dispatch():
        pass


def assert_holds(store: Store, count: int) -> None:
    """Checks that exactly the first `count` messages are in their queues and in the index."""
    for queue_id in range(3):
        queue = store.queues.queue("T", queue_id)
        assert queue.max_offset == len(range(queue_id, count, 3))
    for number in range(count):
        queue = store.queues.queue("T", number % 3)
        found = codec.decode(store.reader.get(queue, number // 3, 1).body)
        assert found.body == codec.decode(message(number)).body
        assert found.physical_offset == store.entries.place_of(number) + 48
        by_key = store.queries.query("T", f"U{number}", *EVER, 8).records
        assert [codec.decode(one).physical_offset for one in by_key] == [found.physical_offset]


def test_entries_are_in_queues_and_index_once_they_are_committed():
    store = open_store(new_disk())
    append(store, range(60))
    assert_holds(store, 0)
    commit(store, 29)
    assert_holds(store, 30)
    commit(store, 59)
    assert_holds(store, 60)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_store_is_complete_after_a_restart(ending):
    disk = new_disk()
    store = open_store(disk)
    append(store, range(60))
    store.entries.sync()
    commit(store, 39)
    if ending == "stop":
        asyncio.run(store.close())
    else:
        store.entries.state_files.save_checkpoint(store.entries.checkpoint())
        disk = disk.crash(Survival.RANDOM)
    again = open_store(disk)
    assert_holds(again, 40)
    assert (again.entries.end_index, again.entries.committed_index) == (59, 39)
    commit(again, 59)
    assert_holds(again, 60)


def test_what_was_committed_and_not_dispatched_is_dispatched_after_a_kill():
    """apache/rocketmq#7355: the consume queues stayed shorter than the log."""
    disk = new_disk()
    store = open_store(disk)
    append(store, range(50))
    store.entries.sync()
    store.entries.commit_to(49)
    store.entries.state_files.save_checkpoint(store.entries.checkpoint())
    assert_holds(open_store(disk.crash(Survival.KEPT)), 50)


def test_a_committed_index_that_was_noted_late_costs_nothing_for_good():
    """apache/rocketmq#8032: a restart took entries of queues away for good."""
    disk = new_disk()
    store = open_store(disk)
    append(store, range(50))
    store.entries.sync()
    commit(store, 10)
    store.entries.state_files.save_checkpoint(store.entries.checkpoint())
    commit(store, 49)
    asyncio.run(store.upkeep.take_checkpoint())
    again = open_store(disk.crash(Survival.KEPT))
    assert again.entries.committed_index == 49
    assert_holds(again, 50)


def test_power_that_fails_at_any_operation_leaves_a_complete_store():
    for seed in range(25):
        chance, disk = random.Random(seed), new_disk(seed)
        written = committed = 0
        for _ in range(4):
            disk.cut_power_after(chance.randint(0, 120))
            try:
                store = open_store(disk)
                written = store.entries.next_index
                for _ in range(5):
                    count = chance.randint(1, 15)
                    append(store, range(written, written + count), 1)
                    written += count
                    store.entries.sync()
                    commit(store, written - 1)
                    store.entries.state_files.save_checkpoint(store.entries.checkpoint())
                    committed = written
                    if chance.random() < 0.5:
                        store.upkeep.take_checkpoint_now()
            except PowerCut:
                pass
            disk = disk.crash(chance.choice(list(Survival)))
        store = open_store(disk)
        assert store.entries.committed_index >= committed - 1
        commit(store, store.entries.end_index)
        assert_holds(store, store.entries.next_index)


@pytest.mark.parametrize("node", NODES)
def test_the_store_of_apaches_node_is_opened_and_every_message_served(node, tmp_path):
    root = dledger_store(node, tmp_path)
    store = Store.open(config_of_node(node, root), SystemDisk(), HandClock(), Workers())
    assert store.entries.end_index == ENTRIES - 1
    for place, messages in answers().items():
        topic, queue_id = place.split("/")
        queue = store.queues.queue(topic, int(queue_id))
        assert (queue.min_offset, queue.max_offset) == (0, len(messages))
        for expected in messages:
            found = codec.decode(store.reader.get(queue, expected["queueOffset"], 1).body)
            assert found.physical_offset == expected["commitLogOffset"]
            assert hashlib.sha256(found.body).hexdigest() == expected["bodySha256"]
            if key := found.unique_key or found.keys:
                by_key = [codec.decode(one) for one in store.queries.query(topic, key, *EVER, 64).records]
                assert found in by_key  # in n0 Apache's own index had lost them (#7477)
    asyncio.run(store.close())
    assert run(verify(root)).problems == []
    again = Store.open(config_of_node(node, root), SystemDisk(), HandClock(), Workers())
    assert again.recovered_end is None
