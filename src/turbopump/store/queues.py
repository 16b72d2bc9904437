"""All consume queues of a store: which there are, and how a topic's queues are found, made and deleted.

A queue is opened when it is first asked for; an unused one costs nothing. Its files are the business of
`queue_files.py`.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Container, Iterator
from typing import NamedTuple

from turbopump.protocol.light import QUEUE_ID as LIGHT_QUEUE
from turbopump.protocol.names import LIGHT_PREFIX
from turbopump.runtime.disk import Disk
from turbopump.store.batch_queue import BatchQueue
from turbopump.store.commit_log import CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ConsumeQueue, check_topic_size
from turbopump.store.errors import UnusableStore
from turbopump.store.flags import is_no_room
from turbopump.store.queue_files import QueueFiles, batch_topics, is_directory_name

log = logging.getLogger(__name__)

MAX_AWAITED = 20_000  # light queues without messages that are remembered
MAX_WAITING_BYTES = 64 << 20  # entries, all queues together, that recovery on a full disk keeps in memory

KEPT_KIND = (
    "Topic %s is now %s topic with queue.type=BatchCQ, but has queues of the other kind, which are kept. "
    "Stop the broker and remove %s: the queues are rebuilt from the commit log"
)


class QueueCounts(NamedTuple):
    """Number and bytes of the messages that a queue received since the last `take_counts`."""

    queue: ConsumeQueue
    messages: int
    size: int


class ConsumeQueues:
    """The consume queues of all topics: finds, opens, creates and deletes them."""

    def __init__(self, config: StoreConfig, disk: Disk, log: CommitLog) -> None:
        self.files = QueueFiles(config, disk, log)
        self.dirty = self.files.dirty
        """Queues with entries to write, oldest first."""
        self.lights: set[str] = set()
        """Light queues with messages."""
        self.waits_for_room = False
        """In recovery: on a full disk entries stay in memory, for upkeep to write."""
        self._disk = disk
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._awaited: OrderedDict[str, None] = OrderedDict()  # light queues that were asked for

    def load(self) -> None:
        """Counts the queues on disk and finds batch topics; opens no queue. May raise UnusableStore."""
        files = self.files
        files.batch_topics = batch_topics(files.config_dir, self._disk) | set(
            files.topics_in(files.batch_root)
        )
        for topic in files.batch_topics.intersection(files.topics_in(files.root)):
            raise UnusableStore(
                f"{topic} is a topic with queue.type=BatchCQ, but {files.root} has queues of it. Remove "
                f"{os.path.join(files.root, topic)}: what belongs there is rebuilt from the commit log"
            )
        files.count = 0
        for topic, _ in self.on_disk():
            files.count += 1
            if topic.startswith(LIGHT_PREFIX):
                self.lights.add(topic)

    # finding

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Returns a queue for writing, made in memory if new. Raises MessageIllegal for a bad topic length.

        A new queue needs no file before its first entry is written.
        """
        found = self._queues.get((topic, queue_id))
        if found is None:
            check_topic_size(topic)
            found = self.known(topic, queue_id)
        return found

    def known(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Returns a queue that a file or record names, opened if need be; any length of topic is accepted."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            assert is_directory_name(topic), f"topic {topic!r}"
            make = BatchQueue if topic in self.files.batch_topics else ConsumeQueue
            found = self._queues[topic, queue_id] = make(self.files, topic, queue_id)
        return found

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Returns a queue that a writer asked for or that is on disk; None: there is no such queue."""
        found = self._queues.get((topic, queue_id))
        if found is None and "/" not in topic and self.files.exists(topic, queue_id):
            found = self.known(topic, queue_id)
        return found

    def light(self, name: str) -> ConsumeQueue:
        """Returns a light queue, made in memory if new; at most 20,000 queues without messages are kept."""
        if name not in self.lights:
            self._awaited[name] = None
            self._awaited.move_to_end(name)
            if len(self._awaited) > MAX_AWAITED:
                forgotten = self._awaited.popitem(last=False)[0]
                if forgotten not in self.lights:  # a pull that waits for its messages asks again
                    self._queues.pop((forgotten, LIGHT_QUEUE), None)
        return self.known(name, LIGHT_QUEUE)

    def is_used(self, light_queue: str) -> bool:
        """Whether a light queue has, or had, messages."""
        return light_queue in self.lights

    def of(self, topic: str) -> list[ConsumeQueue]:
        """Returns the queues of a topic that are on disk or that a writer asked for."""
        ids = set(self.files.queue_ids(self.files.topic_directory(topic)))
        ids |= {queue_id for name, queue_id in self._queues if name == topic}
        return [self.known(topic, queue_id) for queue_id in sorted(ids)]

    def on_disk(self) -> Iterator[tuple[str, int]]:
        """Yields topic and queue id of every queue that has a directory."""
        for root in (self.files.root, self.files.batch_root):
            for topic in self.files.topics_in(root):
                for queue_id in self.files.queue_ids(os.path.join(root, topic)):
                    yield topic, queue_id

    def every(self) -> Iterator[ConsumeQueue]:
        """Yields every queue, on disk or in memory; opens each when it is reached."""
        for topic, queue_id in {**dict.fromkeys(self.on_disk()), **dict.fromkeys(self._queues)}:
            yield self.known(topic, queue_id)

    def opened(self) -> list[ConsumeQueue]:
        """Returns the queues that are in memory."""
        return list(self._queues.values())

    def topics(self, but: Container[str] = ()) -> dict[str, int]:
        """Returns the largest queue id plus one of each topic with queues, except the topics in `but`."""
        found: dict[str, int] = {}
        for root in (self.files.root, self.files.batch_root):
            for topic in (entry.name for entry in self._disk.entries(root) if entry.name not in but):
                for queue_id in self.files.queue_ids(os.path.join(root, topic)):
                    found[topic] = max(found.get(topic, 0), queue_id + 1)
        for topic, queue_id in self._queues:
            if topic not in but:
                found[topic] = max(found.get(topic, 0), queue_id + 1)
        return found

    def count_of(self, topic: str) -> int:
        """Returns the number of a topic's queues on disk."""
        return len(self.files.queue_ids(self.files.topic_directory(topic)))

    # changing

    def set_kind(self, topic: str, of_batches: bool) -> None:
        """Sets whether a topic has batch queues. If it has queues of the other kind, logs that they are kept.

        That happens on a slave that copies messages of a new topic before the table with its kind.
        """
        if of_batches == (topic in self.files.batch_topics):
            return
        if self.of(topic):
            log.error(KEPT_KIND, topic, "a" if of_batches else "no", self.files.topic_directory(topic))
        elif of_batches:
            self.files.batch_topics.add(topic)
        else:
            self.files.batch_topics.discard(topic)

    def take_counts(self) -> list[QueueCounts]:
        """Returns number and bytes of new messages of each queue since the last call; resets the counters.

        Light queues are not counted.
        """
        found = []
        for queue in self.files.fresh.union(self.dirty):
            messages, size = queue.next_offset - queue.counted, queue.put_bytes
            queue.counted, queue.put_bytes = queue.next_offset, 0
            if messages > 0 and not queue.is_light:
                found.append(QueueCounts(queue, messages, size))
        self.files.fresh.clear()
        return found

    def delete_topic(self, topic: str) -> None:
        """Removes the queues of a topic. Its records stay in the log until the log's files are deleted.

        `files.removed_from` has to be synced (`Upkeep.sync_removals`) before the deletion is reported.
        """
        self.lights.discard(topic)
        for key in [key for key in self._queues if key[0] == topic]:
            self._queues.pop(key).delete()
        self.files.remove_topic(topic)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Removes a queue with its files; the topic's directory too after the last. See `remove_queue`."""
        self.lights.discard(topic)
        if (queue := self._queues.pop((topic, queue_id), None)) is not None:
            queue.delete()
        self.files.remove_queue(topic, queue_id)

    def clear(self) -> None:
        """Removes every queue with its files; for a store whose log has no files."""
        for topic in {topic for topic, _ in self.on_disk()} | {topic for topic, _ in self._queues}:
            self.delete_topic(topic)

    def write_out(self, limit: int) -> int:
        """Writes entries of up to `limit` queues, longest waiting first; returns how many queues remain."""
        try:
            for queue in list(self.dirty)[:limit]:
                queue.write_out()
        except OSError as error:
            waiting = sum(len(queue.tail) for queue in self.dirty)
            if not self.waits_for_room or not is_no_room(error) or waiting > MAX_WAITING_BYTES:
                raise
        return len(self.dirty)
