"""The store: a commit log, and what is derived from it, behind one door.

In: drafts of messages, and questions. Out: where a message is, when it is safe, and the bytes of records.
Everything but `start` and `close` is synchronous; one event loop owns it all. Sockets, topics and consumer
groups are not known here.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from turbopump.compiled import Arrivals, Groups, PlainSends, Rules, Taken, Twins
from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.hashing import index_hash
from turbopump.protocol.record import Record, decode, properties_of
from turbopump.protocol.sysflag import PREPARED
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Lock, Workers
from turbopump.store.append import Appended, Appender, Draft
from turbopump.store.checkpoint import Checkpoint
from turbopump.store.commit_log import CommitLog, LogFile
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.delays import DelayHistory, DelayLevels
from turbopump.store.dispatch import Arrival, Dispatcher
from turbopump.store.errors import NoRoom, UnusableStore
from turbopump.store.flags import Flags, Reason, is_no_room
from turbopump.store.flush import Done, Durability, Flusher
from turbopump.store.index import Index
from turbopump.store.light_queues import LightQueues
from turbopump.store.queues import ANY, ConsumeQueues, Puts
from turbopump.store.reading import Reader, fetch
from turbopump.store.recovery import Recovered, Recovery
from turbopump.store.retention import Retention
from turbopump.store.scan import carrying, references
from turbopump.store.times import Boundary, offset_by_time, read_times, store_time
from turbopump.store.turns import finish
from turbopump.store.upkeep import Parts, Upkeep

MOST_KEYS = 1 << 20  # messages whose keys recovery on a full disk keeps, about 300 MB

log_line = logging.getLogger("turbopump.store")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Records that carry a key, oldest first, and how far the index has come."""

    records: list[bytes]
    index_timestamp: int
    index_offset: int


class Store:
    """Open it, `await start()`, use it, `await close()`."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        lock: Lock,
        twins: Twins | None,
    ) -> None:
        self.config = config
        self.flags = Flags()
        self.log = CommitLog(config, disk)
        self.queues = ConsumeQueues(config, disk, self.log)
        self.index = _open_index(config, disk, clock)
        self.delays = DelayLevels(config.message_delay_levels)
        self.flusher = Flusher(self.log, self.flags, clock, workers, config)
        self.syncs_each = config.syncs_each
        """SYNC_FLUSH: a send is answered when `durable` says so; otherwise at once, with `durability`."""
        self.durability = Durability.BUFFER if config.uses_pool else Durability.MEMORY
        self._immediate = not config.syncs_each and not config.uses_pool
        self._appender = Appender(
            self.log, self.flags, self.queues, clock, config.max_message_size, self._immediate
        )
        self._append = self._appender.append
        self.lights = LightQueues(self.queues, config.max_light_queues) if config.uses_light_queues else None
        self._history = DelayHistory(config.config_dir, disk, config.message_delay_levels)
        self._dispatcher = Dispatcher(self.log, self.queues, self._appender, self.index, self._history, twins)
        self.flusher.on_synced = None if self._immediate else self._dispatcher.advance
        self._reader = Reader(self.log, config)
        self.get = self._reader.get
        self.recovered_end: int | None = None
        """Where the log ended after a crash, which may have cost what came later. None: it was stopped."""
        parts = Parts(self.log, self.queues, self.index, self._dispatcher, self.flusher, self.flags)
        self._upkeep = Upkeep(parts, config, disk, clock, workers)
        self.retention = Retention(self, config, disk, clock)
        self._twins = twins
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._lock = lock
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        progress: Callable[[str], None] | None = None,
        twins: Twins | None = None,
    ) -> "Store":
        """Blocking: takes the lock, recovers. Raises AlreadyLocked or UnusableStore."""
        check_layout(config, disk)
        disk.make_dirs(config.root_dir)  # the log may be elsewhere
        disk.make_dirs(config.log_dir)
        lock = disk.lock(os.path.join(config.root_dir, "lock"))
        try:
            store = cls(config, disk, clock, workers, lock, twins)
            store._recover(progress)
        except BaseException:
            lock.release()
            raise
        return store

    def _recover(self, progress: Callable[[str], None] | None) -> None:
        crashed = self._upkeep.is_marked
        self.log.files.load()
        self.queues.load()
        self.queues.heals = crashed
        saved = self._upkeep.load_checkpoint()
        self._upkeep.mark_running()
        try:
            found = self._read_log(saved, crashed, progress)
        except NoRoom:
            raise  # in the middle of it: the next start has to know
        except UnusableStore:
            if not crashed:
                self._upkeep.mark_stopped()
            raise
        self._dispatcher.continue_after(found.last_record, found.last_timestamp)
        self._reader.written_from = found.end
        self._history.go_on(self.log.min_offset, found.end)
        self.queues.heals, self.queues.trusted_below = False, ANY
        self.queues.puts()  # what recovery found is not new
        if crashed:  # files and names that a killed process made and nobody synced; queues are full of them
            self._disk.sync_all(self.config.root_dir)
        if crashed or not self._upkeep.is_taken(found.end):
            self._upkeep.take_first_checkpoint()
        if crashed:
            self.recovered_end = found.end
            log_line.warning(
                "the last process did not stop cleanly: the log was read from %d to its end at %d",
                found.read_from,
                found.end,
            )

    def _read_log(
        self, saved: Checkpoint, crashed: bool, progress: Callable[[str], None] | None
    ) -> Recovered:
        """Recovery, which needs no room on the disk for what can wait in memory."""
        dispatcher = _RecoveryDispatcher(
            self.log, self.queues, self._appender, self.index, self._history, self._twins
        )
        disown = self._upkeep.disown_checkpoint
        recovery = Recovery(
            self.log, self.queues, self.index, dispatcher, self.config, saved, crashed, disown, progress
        )
        if self.flags.is_set(Reason.NO_ABORT) and not recovery.has_nothing_to_do():
            raise NoRoom(f"{self.flags.reason}. Free some space on the disk of {self.config.root_dir}")
        self.queues.waits_for_room = True
        try:
            return recovery.run()
        except OSError as error:
            if not is_no_room(error):
                raise
            raise NoRoom(
                f"the disk has no room for what has to be written before the store can be used: {error}. "
                f"Free some space on the disk of {self.config.root_dir}"
            ) from error
        finally:
            self.queues.waits_for_room = False

    # what there is

    @property
    def store_host(self) -> bytes:
        """Packed address of the broker, stamped on every record."""
        return self._appender.store_host

    @store_host.setter
    def store_host(self, host: bytes) -> None:
        self._appender.store_host = host

    @property
    def on_arrival(self) -> Arrival | None:
        """Called with queue, next offset and tag code for every message that can be read from now on."""
        return self._dispatcher.on_arrival

    @on_arrival.setter
    def on_arrival(self, arrived: Arrival | None) -> None:
        self._dispatcher.on_arrival = arrived

    @property
    def min_offset(self) -> int:
        return self.log.min_offset

    @property
    def max_offset(self) -> int:
        return self.log.end

    @property
    def committed_offset(self) -> int:
        return self.log.committed

    @property
    def flushed_offset(self) -> int:
        return self.log.synced

    @property
    def pool_buffers_left(self) -> int | None:
        """Buffers of the transient pool that nobody uses; None: there is no pool."""
        return self.log.buffers_left if self.config.uses_pool else None

    @property
    def writable(self) -> str | None:
        """Why nothing can be written; None when it can."""
        return self.flags.reason

    @property
    def put_messages(self) -> int:
        """Appended since the start; `put_bytes` is what they take in the log."""
        return self._appender.messages

    @property
    def put_bytes(self) -> int:
        return self._appender.bytes

    def puts(self) -> list[Puts]:
        """The queues that got messages since the last call, and how many: for one who counts."""
        return self.queues.puts()

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        return self.queues.queue(topic, queue_id)

    def light_queue(self, name: str) -> ConsumeQueue:
        """A light queue to read from, whether it has messages or not."""
        return self.queues.light(name)

    def is_used(self, light_queue: str) -> bool:
        """Whether a light queue has, or had, messages."""
        return light_queue in self.queues.lights

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.queues.find(topic, queue_id)

    def queues_of(self, topic: str) -> list[ConsumeQueue]:
        return self.queues.of(topic)

    def queues_are_of_batches(self, topic: str, yes: bool) -> None:
        """Before a topic is used: of which kind its queues are. It never changes while there are any."""
        if yes:
            self.queues.batch_topics.add(topic)
        elif topic in self.queues.batch_topics and not self.queues.of(topic):
            self.queues.batch_topics.discard(topic)

    async def expect_deletion(self, topic: str) -> None:
        """Before `delete_topic`, with nothing awaited between the two: what a crash must find on the disk."""
        await self._upkeep.expect_fewer_queues(self.queues.count_of(topic))

    def delete_topic(self, topic: str) -> None:
        """Removes the topic's queues. Its records stay in the log until the log's files go. After
        `sync_removals` the queues do not come back, whatever happens to the machine.
        """
        self.queues.delete_topic(topic)

    async def sync_removals(self) -> None:
        """What was deleted stays so after a crash of the machine."""
        await self._upkeep.sync_removals()

    def configure(self, config: StoreConfig) -> None:
        """Takes over what can change while the store is in use: limits of reading, retention, waiting."""
        self.config = config
        self._reader.configure(config)
        self.retention.configure(config)
        self.flusher.configure(config)

    async def clean_queues(self, is_wanted: Callable[[str, int], bool]) -> list[tuple[str, int]]:
        """What of queues pointed at deleted messages goes; empty queues that nobody wants go whole."""
        return await self._upkeep.clean_queues(is_wanted)

    async def take_checkpoint(self) -> None:
        """Afterwards a crash costs no more than the reading of what came later."""
        await self._upkeep.take_checkpoint()

    def topics(self, but: Container[str] = ()) -> dict[str, int]:
        """Topics other than these that have a queue → how many queues that makes: the largest id and one."""
        return self.queues.topics(but)

    # writing

    def append(self, drafts: Sequence[Draft], together: bool = False) -> list[Appended]:
        """Stores all of the messages, or none and Refused is raised. `together`: in one file, as a batch."""
        if self.lights is not None:
            self.lights.stamp(drafts)
        appended = self._append(drafts, together)
        dispatcher = self._dispatcher
        if self._immediate:
            arrived = dispatcher.on_arrival
            if arrived is not None and self.lights is not None:
                for draft in drafts:
                    for light, light_offset in draft.lights:
                        arrived(light, light_offset + 1, draft.tags_code)
            if arrived is not None:
                for draft, (_, queue_offset, _) in zip(drafts, appended, strict=True):
                    if not draft.sys_flag & PREPARED:  # the bit of a rollback too
                        arrived(draft.queue, queue_offset + 1, draft.tags_code)
            dispatcher.keys_waiting()
        elif self.syncs_each:
            self.flusher.want(self.log.end)
        return appended

    def rewrite(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Messages that are about to lose their file: taken although the disk is called full."""
        with self.flags.lifted(Reason.DISK_FULL):
            return self.append(drafts)

    def plain_sends(self, **rules: Unpack[Rules]) -> PlainSends | None:
        """A compiled way from the bytes of sends into the log, for `append_plain`. None: there is none, or a
        message is not seen as soon as it is appended.
        """
        if self._twins is None or not self._immediate:
            return None
        return self._twins.plain_sends(**self._parts(), **rules)

    def groups(self) -> Groups | None:
        """The same for messages that come together, for `append_group`."""
        if self._twins is None or not self._immediate:
            return None
        return self._twins.groups(**self._parts())

    def _parts(self) -> dict[str, Any]:
        """What the compiled ways write to."""
        return {
            "log": self.log,
            "flags": self.flags,
            "appender": self._appender,
            "keys": self._appender.keys,
            "dirty": self.queues.dirty,
            "now_ms": self._clock.now_ms,
        }

    def append_plain(self, sends: PlainSends, data: bytes, born_host: bytes) -> Taken | None:
        """The same as `append` for the plain sends at the front of a read event."""
        return self.append_group(lambda arrivals: sends.take(data, born_host, arrivals))

    def append_group(self, take: Callable[[Arrivals | None], T | None]) -> T | None:
        """Messages by a compiled way: `take` appends them, or returns None. Who waits for some is told."""
        dispatcher = self._dispatcher
        arrived = dispatcher.on_arrival
        arrivals: Arrivals | None = None if arrived is None else []
        taken = take(arrivals)
        if taken is not None:
            if arrived is not None and arrivals is not None:
                for queue, next_offset, tags_code in arrivals:
                    arrived(queue, next_offset, tags_code)
            dispatcher.keys_waiting()
        return taken

    def durable(self, offset: int, done: Done) -> None:
        """Calls `done` once, when everything below `offset` is on the medium or that has failed."""
        self.flusher.durable(offset, done)

    async def wait_durable(self, offset: int) -> Durability:
        return await self.flusher.wait_durable(offset)

    # reading

    def record_bytes(self, offset: int, size: int) -> bytes | None:
        return self.log.read(offset, size)

    def properties(self, queue: ConsumeQueue, offset: int) -> bytes:
        """The property string of a queue's message; empty when it is not there."""
        entry = queue.entry(offset)
        found = self.log.locate(entry[0]) if entry is not None else None
        return properties_of(*found) if found is not None else b""

    def look_up(self, offset: int) -> Record | None:
        """The record that starts at this offset; None when none does."""
        found = self.log.locate(offset)
        if found is None:
            return None
        try:
            record = decode(*found)
        except BrokenRecord:
            return None
        ends_inside = offset + record.size <= self.log.committed
        return record if record.physical_offset == offset and ends_inside else None

    def references(self, begin: int, count: int) -> tuple[list[int], int]:
        """Which messages the next `count` records name as their origin, and where to go on."""
        return references(self.log, begin, count)

    def carrying(self, mark: bytes, begin: int, count: int) -> tuple[list[Record], int]:
        """Of the next `count` records, those with these bytes in their properties; and where to go on."""
        return carrying(self.log, mark, begin, count)

    def query(self, topic: str, key: str, begin_ms: int, end_ms: int, max_count: int) -> QueryResult:
        """Records of a topic by unique key or key; what merely has the same hash is left out."""
        return finish(self.query_in_turns(topic, key, begin_ms, end_ms, max_count))

    def query_in_turns(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_count: int
    ) -> Generator[None, None, QueryResult]:
        """The same, yielding now and then when there is much to search."""
        if self.index is None:
            return QueryResult([], 0, 0)
        with contextlib.suppress(OSError):  # a full disk: the newest keys are not found yet
            self._dispatcher.put_all_keys()
        count = min(max_count, self.config.max_query_count)
        records = []
        offsets = yield from self.index.query(index_hash(f"{topic}#{key}"), begin_ms, end_ms, count)
        for offset in offsets:
            record = self.look_up(offset)
            if record is not None and record.topic == topic and _carries(record, key):
                records.append(self.log.slice(offset, offset + record.size))
        timestamp, offset = self.index.last_update
        return QueryResult(records, timestamp, offset)

    def begins_in_memory(self, queue: ConsumeQueue) -> bool:
        """Whether the very first message of a queue is still there, and young."""
        first = queue.entry(0) if queue.min_offset == 0 < queue.max_offset else None
        return first is not None and self._reader.is_hot(first[0])

    def offset_by_time(self, queue: ConsumeQueue, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        return offset_by_time(self.log, queue, time_ms, boundary)

    def earliest_store_time(self, queue: ConsumeQueue) -> int:
        """Store time of the queue's first message; -1 when there is none."""
        return store_time(self.log, queue, queue.min_offset)

    @property
    def in_memory_from(self) -> int:
        """Records from here on need not be brought."""
        return self._reader.in_memory_from

    def missing(self, records: Iterable[tuple[int, int]]) -> list[tuple[str, int, int]]:
        """Which of these records (log offset, size) would have to be waited for: see `fetch`."""
        return self._reader.missing(records)

    async def fetch(self, places: list[tuple[str, int, int]]) -> None:
        """What NotInMemory named comes into memory, beside the loop."""
        await self._workers.read(fetch, self._disk, places)

    async def bring(self, records: Iterable[tuple[int, int]]) -> None:
        """These records come into memory, so that who looks them up next does not hold up the loop. Where the
        disk fails, who reads them will see it.
        """
        places = self._reader.missing(records)
        if places:
            with contextlib.suppress(OSError):
                await self.fetch(places)

    async def store_times(self, offsets: list[int]) -> dict[int, int]:
        """Store times of the records that begin at these log offsets, read beside the loop: records of long
        ago come from the disk. -1: there is no such record.
        """
        log = self.log
        places = {
            offset: (log.files.path(offset - offset % log.file_size), offset % log.file_size)
            for offset in offsets
            if log.min_offset <= offset < log.committed
        }
        found = await self._workers.run(read_times, self._disk, places) if places else {}
        return {offset: found.get(offset, -1) for offset in offsets}

    async def stored_since(self, time_ms: int) -> int:
        """From here on the log has everything that was stored at this time or later: where a file begins."""
        starts = list(self.log.files.starts)
        times = await self.store_times(starts)
        before = [start for start in starts if 0 < times[start] < time_ms]
        return before[-1] if before else self.min_offset

    # for `retention.py`

    def log_files(self) -> list[LogFile]:
        return self.log.file_list()

    def delete_first_log_file(self) -> None:
        self.log.delete_first()

    def min_offset_changed(self) -> None:
        task = asyncio.ensure_future(self._upkeep.follow_log())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def set_disk_full(self, full: bool, ratio: float) -> None:
        if full:
            self.flags.set(Reason.DISK_FULL, f"[CL: {ratio:.2f}]")
        else:
            self.flags.clear(Reason.DISK_FULL)

    # life

    async def start(self) -> None:
        self._dispatcher.loop = asyncio.get_running_loop()
        self.flusher.start()
        self._tasks = {*self._upkeep.start(), asyncio.create_task(self.retention.run())}

    async def close(self) -> None:
        """Refuses what comes, brings everything to the medium, and removes `abort` when that went well."""
        self.flags.set(Reason.STOPPED)
        await self._upkeep.stop_checkpoints()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._dispatcher.loop = None
        try:
            await self.flusher.stop()
            self._dispatcher.advance(self.log.synced)
            if self.log.synced == self.log.end:
                self._upkeep.take_checkpoint_now()
                self.log.files.drop_ahead()
                self._upkeep.mark_stopped()
        except OSError as error:
            log_line.error("the store could not be closed cleanly, the next start recovers it: %s", error)
        finally:
            if self.index is not None:
                self.index.close()
            self.queues.close()
            self.log.close()
            self._lock.release()


class _RecoveryDispatcher(Dispatcher):
    """Leaves keys in memory when the disk is full, as many as there may be: upkeep puts them later."""

    _found_no_room = False

    def put_all_keys(self) -> None:
        if self._found_no_room and len(self._appender.keys) < MOST_KEYS:
            return
        try:
            super().put_all_keys()
        except OSError as error:
            if not is_no_room(error) or self._found_no_room:
                raise
            self._found_no_room = True


def check_layout(config: StoreConfig, disk: Disk) -> None:
    """Refuses stores with parts that we would not keep up to date."""
    if "," in config.log_dir:
        raise UnusableStore("storePathCommitLog names several directories: only one is supported")


def _open_index(config: StoreConfig, disk: Disk, clock: Clock) -> Index | None:
    if not config.index_enabled:
        return None
    return Index.open(config.index_dir, disk, config.index_slots, config.index_items, clock)


def _carries(record: Record, key: str) -> bool:
    keys = record.keys
    return record.unique_key == key or (keys is not None and key in keys.split(" "))
