"""The hash index: from the hash of `topic#key` to the physical offsets of the messages that carry the key.

In: physical offset, store time and key hash of messages, in log order, from the dispatcher. Out: offsets for
key queries. A full file is followed by a new one. Nothing here reads the log or tells apart keys of one hash.

After a crash of the machine any page of the file in use may be older than its header says. The caller then
  1. calls `truncate(offset)` with an offset below which everything was put before the last good `flush`
     or, when it has none, `remove_newer(timestamp)` with the checkpoint's index time, as Apache does;
  2. calls `truncate(end)` when the log itself ends at or before `end_offset`;
  3. puts the keys of every record from `end_offset` on again. Keys that are there are dropped, so an earlier
     start does no harm.
"""

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator
from datetime import datetime, timedelta

from turbopump.compiled import PutKeys
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk
from turbopump.store.append import Keys
from turbopump.store.index_file import HEADER, ITEM, SLOT, IndexFile, file_size, seconds_between

MAX_CHAIN_STEPS = 1_000_000  # items visited by one query, about half a second in all

Entry = tuple[int, int, int]  # physical offset, store timestamp, key hash


class Index:
    """The hash index over all its files: takes key hashes and finds the log offsets of messages by hash."""

    def __init__(self, directory: str, disk: Disk, slots: int, items: int, clock: Clock) -> None:
        self._directory = directory
        self._disk = disk
        self._has_new_names = False  # files whose names are not synced yet
        self._slots = slots
        self._items = items
        self._clock = clock
        self._files: list[IndexFile] = []
        self._repeat_offset = -1
        self._repeated: list[int] = []

    @classmethod
    def open(cls, directory: str, disk: Disk, slots: int, items: int, clock: Clock) -> "Index":
        index = cls(directory, disk, slots, items, clock)
        for entry in disk.entries(directory):
            if entry.is_dir or not entry.name.isdecimal():
                continue
            path = f"{directory}/{entry.name}"
            if entry.size < HEADER.size:  # a crash between creating the file and giving it its length
                disk.remove(path)
            else:
                index._files.append(IndexFile(disk.open_mapped(path), slots, items))
        index._remember_end()
        return index

    @property
    def end_offset(self) -> int:
        """Log offset of the last message that was put; after a crash some of its keys may be missing."""
        return self._files[-1].end_offset if self._files else 0

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and log offset of the last message that was put; (0, 0) when there is none."""
        if not self._files:
            return (0, 0)
        return (self._files[-1].end_timestamp, self._files[-1].end_offset)

    @property
    def begin(self) -> tuple[int, int]:
        """Store time and log offset of the first message in the newest file; (0, 0) when there is no file."""
        if not self._files:
            return (0, 0)
        return (self._files[-1].begin_timestamp, self._files[-1].begin_offset)

    def put(self, physical_offset: int, store_timestamp: int, key_hash: int) -> None:
        self.put_many(((physical_offset, store_timestamp, key_hash),))

    def put_many(self, entries: Iterable[Entry]) -> None:
        """Puts entries in log order. Raises OSError when the disk is full, after some entries were put."""
        remaining = iter(entries)
        while (entry := self._put_while_room(remaining)) is not None:
            self._put_in_new_room(*entry)

    def put_keys(self, put: PutKeys, waiting: list[Keys], most: int) -> int:
        """Puts keys of at most `most` messages into the space of the newest file; returns how many are done.

        `put` is the compiled function.
        """
        return self._files[-1].put_keys(put, waiting, most, self._repeat_offset) if self._files else 0

    def _put_while_room(self, remaining: Iterator[Entry]) -> Entry | None:
        """Puts entries while the newest file has reserved disk blocks; returns the first beyond, or None.

        0.4 us each (`micro.py`).
        """
        file = self._files[-1] if self._files else self._roll()
        slots, slot_count, pack = file.working_slots(), file.slot_count, ITEM.pack
        count, limit, used = file.count, file.limit, file.used
        begin, end_timestamp, end = file.begin_timestamp, file.end_timestamp, file.end_offset
        seen, seconds = -1, 0
        packed: list[bytes] = []
        refused: Entry | None = None
        for offset, timestamp, key_hash in remaining:
            if offset <= end and (
                offset < end or (offset == self._repeat_offset and self._is_repeated(key_hash))
            ):
                continue
            if count >= limit:
                refused = (offset, timestamp, key_hash)
                break
            if timestamp != seen:
                seen, seconds = timestamp, seconds_between(begin, timestamp)
            slot = key_hash % slot_count
            previous = slots[slot]
            packed.append(pack(key_hash, offset, seconds, previous))
            slots[slot] = count
            count += 1
            if not previous:
                used += 1
            end, end_timestamp = offset, timestamp
        file.append(packed, used, end_timestamp, end)
        return refused

    def _put_in_new_room(self, offset: int, timestamp: int, key_hash: int) -> None:
        """Puts one entry that needs a new file or new disk blocks. Raises OSError when the disk is full."""
        file = self._files[-1]
        if file.count >= file.item_count:
            file = self._roll()
        file.reserve()
        slots = file.working_slots()
        slot = key_hash % file.slot_count
        previous = slots[slot]
        # Apache computes the seconds before it sets the begin time: the first item of a file that follows
        # another one counts from the end of the other.
        item = ITEM.pack(key_hash, offset, seconds_between(file.begin_timestamp, timestamp), previous)
        if file.count <= 1:
            file.begin_timestamp, file.begin_offset = timestamp, offset
        slots[slot] = file.count
        file.append([item], file.used + (previous == 0), timestamp, offset)

    def query(
        self, key_hash: int, begin_ms: int, end_ms: int, max_count: int
    ) -> Generator[None, None, list[int]]:
        """Returns the newest `max_count` log offsets, ascending, of a hash with time in [begin_ms, end_ms].

        Yields between slices of a long search. The time of an item is the store time, rounded
        down to whole seconds since the begin of the file.
        """
        found: dict[int, None] = {}
        steps = 0
        for file in reversed(self._files[:]):
            if file.overlaps(begin_ms, end_ms):
                for more in file.search(key_hash, begin_ms, end_ms, max_count, found):
                    steps += more
                    if steps >= MAX_CHAIN_STEPS:
                        return sorted(found)
                    yield
            if file.begin_timestamp < begin_ms or len(found) >= max_count:
                break
        return sorted(found)

    def publish(self) -> None:
        """Writes headers and slots into the maps, where they survive a kill. Only on the event loop."""
        for file in self._files:
            file.publish()

    def sync(self) -> tuple[int, int]:
        """Makes published items durable; returns store time and log offset of the last. May run in a thread.

        Once a sync failed, each later one raises too, until `publish` has written everything again.
        """
        published = (0, 0)
        self._sync_names()
        for file in list(self._files):
            published = file.published
            file.sync()
        return published

    def _sync_names(self) -> None:
        if not self._has_new_names:
            return
        self._has_new_names = False  # first: the loop may make another file meanwhile
        try:
            self._disk.sync_dir(self._directory)
        except OSError:
            self._has_new_names = True
            raise

    def flush(self) -> tuple[int, int]:
        """Publishes and syncs; returns store time and log offset of the last message that is durable now."""
        self.publish()
        return self.sync()

    def delete_before(self, min_offset: int) -> None:
        """Deletes files whose messages are all below log offset `min_offset`, never the last file."""
        while len(self._files) > 1 and self._files[0].end_offset < min_offset:
            self._remove(self._files[0])

    def remove_newer(self, timestamp: int) -> None:
        """Deletes the files from the first on that is empty or has a message stored after `timestamp`."""
        newer = (n for n, f in enumerate(self._files) if f.end_timestamp > timestamp or f.count <= 1)
        self._remove_durably(self._files[next(newer, len(self._files)) :])
        self._remember_end()

    def truncate(self, offset: int) -> None:
        """Removes, durably, the items from log offset `offset` on; rebuilds the slots of the last file.

        The slots, and the items from `offset` on, may be in any state. The end time becomes the index time of
        the last item, which may be a second early.
        """
        gone: list[IndexFile] = []
        for file in reversed(self._files):
            file.publish()
            if file.begin_offset < offset and file.cut(offset):
                break
            gone.append(file)
        self._remove_durably(gone)
        self._remember_end()

    def close(self) -> None:
        """Closes the files without a sync: call `flush` before, or the next start has to recover."""
        for file in self._files:
            file.publish()
            file.close()
        self._files.clear()

    def _roll(self) -> IndexFile:
        last = self._files[-1] if self._files else None
        name = _file_name(self._clock.now_ms(), last.name if last else "")
        size = file_size(self._slots, self._items)
        mapped = self._disk.create_mapped(f"{self._directory}/{name}", size, sparse=True, durable_name=False)
        self._has_new_names = True
        try:
            mapped.reserve(0, HEADER.size + self._slots * SLOT.size)
        except OSError:
            mapped.close()
            self._disk.remove(mapped.path)
            raise
        file = IndexFile(mapped, self._slots, self._items, is_new=True)
        if last:
            last.publish()
            last.rest()
            file.begin_timestamp = file.end_timestamp = last.end_timestamp
            file.begin_offset = file.end_offset = last.end_offset
        file.publish()
        self._files.append(file)
        return file

    def _remove(self, file: IndexFile) -> None:
        self._files.remove(file)
        file.close()
        self._disk.remove(file.path)

    def _remove_durably(self, files: list[IndexFile]) -> None:
        for file in files:
            self._remove(file)
        if files:
            self._disk.sync_dir(self._directory)

    def _remember_end(self) -> None:
        """Remembers the keys of the last message: when it is dispatched again, only missing ones are put."""
        self._repeat_offset, self._repeated = self.end_offset, []
        for file in reversed([file for file in self._files if file.is_ours]):
            for number in range(file.count - 1, 0, -1):
                key_hash, offset, _, _ = file.item(number)
                if offset != self._repeat_offset:
                    return
                self._repeated.append(key_hash)

    def _is_repeated(self, key_hash: int) -> bool:
        if key_hash not in self._repeated:
            return False
        self._repeated.remove(key_hash)
        return True


def _file_name(now_ms: int, last: str) -> str:
    """Returns local time as yyyyMMddHHmmssSSS; greater than the last name even if the clock went back."""
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
    if name > last:
        return name
    with contextlib.suppress(ValueError, OverflowError):
        later = datetime.strptime(last + "000", "%Y%m%d%H%M%S%f") + timedelta(milliseconds=1)
        return later.strftime("%Y%m%d%H%M%S%f")[:17]
    return str(int(last) + 1).zfill(len(last))
