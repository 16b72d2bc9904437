"""Removes queues without messages (306), unknown topics (316) and old files (329) when an operator asks.

None of it can lose a message. The store's retention decides which files are old. A queue that a topic still
has keeps the file that holds its end, so that its offsets continue and no consumer is moved.
"""

import logging

from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.names import LIGHT_PREFIX
from turbopump.remoting.router import Answer, Request, Route, Routes

log = logging.getLogger(__name__)


class MaintenanceHandler:
    """Handles requests to remove expired queues, unknown topics and expired log files from the store."""

    def __init__(
        self, store: Storage, topics: TopicTable, offsets: CommittedOffsets, statistics: Statistics
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._statistics = statistics

    def routes(self) -> Routes:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Route(None, self.clean_queues),
            RequestCode.CLEAN_UNUSED_TOPIC: Route(None, self.clean_topics),
            RequestCode.DELETE_EXPIRED_COMMITLOG: Route(None, self.delete_old_files),
        }

    async def clean_queues(self, request: Request[None]) -> Answer:
        gone = await self._store.upkeep.clean_queues(self._is_wanted)
        names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in gone) or "none was"
        log.info("Asked by %s to remove expired consume queues: %s", request.connection, names)
        return Answer()

    async def clean_topics(self, request: Request[None]) -> Answer:
        """Removes queues and offsets of topics not in the topic table, except system and light topics."""
        unknown = sorted(self._store.queues.topics(but={topic.name for topic in self._topics.all()}))
        keeps = self._topics.is_system
        gone = [name for name in unknown if not keeps(name) and not name.startswith(LIGHT_PREFIX)]
        if gone:
            # Recovery starts after the checkpoint and does not rebuild these queues from the log.
            await self._store.upkeep.take_checkpoint()
        for name in gone:
            await self._store.upkeep.expect_deletion(name)
            if self._topics.find(name) is None:  # it may have been created while the disk was busy
                self._offsets.forget_topic(name)
                self._store.queues.delete_topic(name)
                await self._store.upkeep.sync_removals()
                await self._statistics.forget_topic(name)
        log.info("Asked by %s to remove unused topics: %s", request.connection, ", ".join(gone) or "none was")
        return Answer()

    def delete_old_files(self, request: Request[None]) -> Answer:
        """Has expired log files deleted at the next check, at any hour; the retention time stays the same."""
        log.info("Asked by %s to delete expired commit log files at any hour", request.connection)
        self._store.retention.ask()
        return Answer()

    def _is_wanted(self, topic: str, queue_id: int) -> bool:
        """Returns whether to keep a queue: its topic is known, and has this queue or an offset on it."""
        if self._topics.is_system(topic):  # there may be more delay levels than their topic has queues
            return True
        found = self._topics.find(topic)
        if found is None:
            return False
        if queue_id < max(found.read_queues, found.write_queues) and not self._topics.is_light(topic):
            return True
        groups = self._offsets.groups_of_topic(topic)
        return any(self._offsets.query(group, topic, queue_id) >= 0 for group in groups)
