"""The files of a store, one damaged at a time: the store may be refused, but must not crash or hang.

Each input is the contents of one file of a small store, after a first byte that encodes how the last
process ended, whether the file keeps its correct length, whether it is the oldest or the newest of its kind,
and whether the checkpoint is missing, so that more of the log is read. The store is checked as by `turbopump
store verify`, then opened, read through and written to.
"""

import functools
from collections.abc import Callable, Iterator

from tests.fuzz.targets import Target
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import EVER, ROOT, Workers, draft, new_disk, open_store, small

from turbopump.broker.config import BrokerIdentity, GroupRules, OffsetRules, TopicRules
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.topics import TopicTable
from turbopump.protocol import batch, inner
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.record import BLANK, MAGIC_V1, MAGIC_V2, decode_all
from turbopump.runtime.disk import Disk
from turbopump.store import checkpoint, tools
from turbopump.store.errors import UnusableStore
from turbopump.store.store import Store
from turbopump.store.times import Boundary
from turbopump.testing.loop import run_virtual
from turbopump.testing.memory import MemoryDisk

QUEUES = 2
MESSAGES = 6
KILLED, ANY_LENGTH, OLDEST, FORGOTTEN = 1, 2, 4, 8  # bits of the first byte
SIZES = {
    "commit_log_file_size": 600,  # three files; two of all others, the second partly filled
    "consume_queue_file_size": 20 * 2,
    "batch_queue_file_size": 46 * 2,
    "index_slots": 5,
    "index_items": 8,
}
KINDS = {"light_queues": True, "multi_dispatch": True, **SIZES}
CONFIG = small(**KINDS)
TOPICS = b'{"topicConfigTable":{"B":{"topicName":"B","attributes":{"queue.type":"BatchCQ"}}}}'

Files = dict[str, bytes]


# --- the targets -------------------------------------------------------------------------------------


def log_file(data: bytes) -> None:
    """Damages the log. Records that recovery does not read again are returned as they are."""
    _check_use(_opened(data, "commitlog/"))


def queue_file(data: bytes) -> None:
    """Damages a consume queue. A cleanly closed store is trusted: reads are limited, not correct."""
    _read_all(_opened(data, "consumequeue/T/0/"))


def batch_queue_file(data: bytes) -> None:
    """Damages the entries of a batch queue."""
    store = _opened(data, "batchconsumequeue/B/0/")
    for _ in _bodies(store, 0, "B"):
        continue
    store.log.append([draft(store.queues.queue("B", 0), b"after")])


def light_queue_file(data: bytes) -> None:
    store = _opened(data, "consumequeue/%LMQ%all/0/")
    for _ in _bodies(store, 0, "%LMQ%all"):
        continue
    _read_all(store)


def index_file(data: bytes) -> None:
    """Damages the index: it may hide old messages, but not return wrong ones; new ones are found."""
    _check_use(_opened(data, "index/"))


def checkpoint_file(data: bytes) -> None:
    disk = MemoryDisk(HandClock())
    disk.write("/checkpoint", data[1:])
    found = checkpoint.load(disk, "/checkpoint")
    disk.write("/checkpoint", checkpoint.pack(found))
    assert checkpoint.load(disk, "/checkpoint") == found
    store = _opened(data, "checkpoint")
    for queue_id, bodies in enumerate(_check_use(store)):
        records = [record for body in bodies for record in decode_all(body)]
        assert [int(record.body) for record in records] == list(range(queue_id, MESSAGES, QUEUES))


def _opened(data: bytes, folder: str) -> Store:
    how = data[0] if data else 0
    disk = _disk_with(_pick(folder, how), data[1:], how)
    tools.run(tools.verify(ROOT, disk, index_shape=(CONFIG.index_slots, CONFIG.index_items)))
    for record in tools.dump(ROOT, disk=disk):
        assert record.size > 0
    return Store.open(CONFIG, disk, HandClock(), Workers())


def _read_all(store: Store) -> list[list[bytes]]:
    """Returns the messages of each queue of T."""
    read = [list(_bodies(store, queue_id)) for queue_id in range(QUEUES)]
    for number in range(0, MESSAGES, 5):
        for data in store.queries.query("T", f"T-{number}", *EVER, 32).records:
            assert [record.unique_key for record in decode_all(data)] == [f"T-{number}"]
    store.log.append([draft(store.queues.queue("T", 0), b"after", key="after")])
    return read


def _check_use(store: Store) -> list[list[bytes]]:
    """Checks that the next message is stored, read and found."""
    read = _read_all(store)
    queue = store.queues.queue("T", 0)
    found = store.reader.get(queue, queue.max_offset - 1, 1)
    assert [record.body for record in decode_all(found.body)] == [b"after"]
    assert store.queries.query("T", "after", *EVER, 32).records
    return read


def _bodies(store: Store, queue_id: int, topic: str = "T") -> Iterator[bytes]:
    """Pulls all messages; each step must advance, and their number is limited."""
    queue = store.queues.find(topic, queue_id)
    if queue is None:
        return
    assert 0 <= queue.min_offset <= queue.max_offset
    offset = queue.min_offset
    for _ in range(MESSAGES):
        found = store.reader.get(queue, offset, 8)
        yield found.body
        if found.next_offset <= offset:
            break
        offset = found.next_offset
    for boundary in Boundary:
        assert store.times.offset_by_time(queue, HandClock().now_ms(), boundary) >= 0
    store.times.earliest(queue)


def table_file(data: bytes) -> None:
    """topics.json, subscriptionGroup.json or consumerOffset.json, by the first byte."""
    make = TABLES[(data[0] if data else 0) % len(TABLES)]
    table = make()
    table.load(data[1:])
    written = table.dump()
    again = make()
    again.load(written)
    assert again.dump() == written


# --- the store they damage ---------------------------------------------------------------------------


@functools.cache
def _good() -> Files:
    disk = new_disk()
    disk.make_dirs(f"{ROOT}/config")
    disk.write(f"{ROOT}/config/topics.json", TOPICS)
    store = open_store(disk, **KINDS)
    for number in range(MESSAGES):
        if number % QUEUES == 0:
            _put_batch(store, number)
        _put(store, number)
    run_virtual(store.close())
    return {path.removeprefix(f"{ROOT}/"): disk.read(path) for path in _paths(disk, ROOT)}


def _put_batch(store: Store, number: int) -> None:
    queue = store.queues.queue("B", 0)
    found = draft(queue, batch.join([(0, b"one", b""), (0, b"two", b"")]), key=f"B-{number}")
    found.properties += f"INNER_NUM\x012\x02INNER_BASE\x01{queue.next_offset}\x02".encode()
    found.sys_flag, found.count = inner.FLAGS, 2
    store.log.append([found])


def _put(store: Store, number: int) -> None:
    """Stores messages; those of T/0 are also in the light queue."""
    found = draft(store.queues.queue("T", number % QUEUES), b"%06d" % number, key=f"T-{number}")
    if number % QUEUES == 0:
        found.properties += b"INNER_MULTI_DISPATCH\x01%LMQ%all\x02"
    store.log.append([found])


def _paths(disk: Disk, directory: str) -> Iterator[str]:
    for entry in disk.entries(directory):
        path = f"{directory}/{entry.name}"
        if entry.is_dir:
            yield from _paths(disk, path)
        else:
            yield path


def _newest(folder: str) -> str:
    return _pick(folder, 0)


def _pick(folder: str, how: int) -> str:
    names = [name for name in _good() if name.startswith(folder)]
    return min(names) if how & OLDEST else max(names)


@functools.cache
def _good_disk() -> MemoryDisk:
    disk = MemoryDisk(HandClock())
    for name, data in _good().items():
        disk.write(f"{ROOT}/{name}", data)
    return disk


def _disk_with(name: str, contents: bytes, how: int) -> MemoryDisk:
    """Returns a copy of the good disk that shares unchanged files with it."""
    disk = _good_disk().copy()
    size = len(_good()[name])
    if not how & ANY_LENGTH:
        contents = contents[:size].ljust(size, b"\0")
    if how & FORGOTTEN:
        disk.remove(f"{ROOT}/checkpoint")
    disk.write(f"{ROOT}/{name}", contents)
    if how & KILLED:
        disk.write(f"{ROOT}/abort", b"")
    return disk


def _seeds(folder: str) -> Callable[[], Iterator[bytes]]:
    def seeds() -> Iterator[bytes]:
        for how in range((KILLED | ANY_LENGTH | OLDEST | FORGOTTEN) + 1):
            yield bytes([how]) + _good()[_pick(folder, how)].rstrip(b"\0")
        yield bytes([ANY_LENGTH]) + _good()[_newest(folder)]

    return seeds


def _topics() -> TopicTable:
    return TopicTable(TopicRules(), BrokerIdentity("cluster", "broker"), HandClock())


def _groups() -> SubscriptionGroups:
    return SubscriptionGroups(GroupRules(), HandClock())


def _offsets() -> CommittedOffsets:
    return CommittedOffsets(OffsetRules(), HandClock())


TABLES: tuple[Callable[[], TopicTable | SubscriptionGroups | CommittedOffsets], ...] = (
    _topics,
    _groups,
    _offsets,
)


def _tables() -> Iterator[bytes]:
    for number, make in enumerate(TABLES):
        yield bytes([number]) + make().dump()
    yield b'\2{"offsetTable":{"T@g":{0:12,1:3},"%RETRY%g@g":{0:1}},"dataVersion":{"counter":1}}'
    yield b'\1{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":16}},"forbiddenTable":{}}'
    yield b'\0{"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":4,"attributes":{}}}}'


NUMBERS = (b"\0" * 8, b"\x7f" + b"\xff" * 7, b"\xff" * 8, b"\x80" + b"\0" * 7, b"\x7f\xff\xff\xff")
MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, BLANK))
WORDS = (
    b"{",
    b"}",
    b"[",
    b'"',
    b":",
    b",",
    b"null",
    b"-1",
    b"9" * 20,
    b"{0:1}",
    b'"T@g"',
    b"\xff",
    b"\\u0000",
)


def _damaged(run: Callable[[bytes], None], folder: str) -> Target:
    """Opens a store with the damaged file: about a thousand per second."""
    return Target(run, _seeds(folder), (UnusableStore,), NUMBERS + MAGICS, taste=150)


TARGETS = {
    "store-log": _damaged(log_file, "commitlog/"),
    "store-queue": _damaged(queue_file, "consumequeue/T/0/"),
    "store-batch-queue": _damaged(batch_queue_file, "batchconsumequeue/B/0/"),
    "store-light-queue": _damaged(light_queue_file, "consumequeue/%LMQ%all/0/"),
    "store-index": _damaged(index_file, "index/"),
    "store-checkpoint": _damaged(checkpoint_file, "checkpoint"),
    "store-tables": Target(table_file, _tables, (BrokenBody,), WORDS),
}
