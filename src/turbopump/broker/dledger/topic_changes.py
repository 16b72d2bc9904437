"""New and changed topics in the log of a group, before the first message that is stored in them."""

from collections.abc import Callable

from turbopump.broker.dledger.table_log import TableLog
from turbopump.broker.dledger.table_records import Table
from turbopump.broker.topics import Topic, TopicTable

CHANGED_TOPICS = "topics.json+"
"""Name of a table that has only the topics that are new or were changed."""


class TopicChanges:
    """Appends topics to the log as soon as they are created or changed; the whole table follows later."""

    def __init__(
        self, tables: TableLog, topics: TopicTable, deleted: set[str], remove_queues: Callable[[str], None]
    ) -> None:
        """`deleted`: topics whose queues an earlier leader has removed, and this member still has."""
        self._tables = tables
        self._topics = topics
        self._deleted = deleted
        self._remove_queues = remove_queues

    def __call__(self, changed: list[Topic]) -> None:
        for name in self._deleted.intersection(topic.name for topic in changed):
            # Created again: its queues begin at 0, and messages of the deleted topic stay away.
            self._remove_queues(name)
            self._deleted.discard(name)
        if changed:
            self._tables.try_append(Table(CHANGED_TOPICS, self._topics.to_wire(changed).encode()))
