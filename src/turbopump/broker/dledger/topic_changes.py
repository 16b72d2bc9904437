"""New and changed topics in the log of a group, before the first message that is stored in them."""

from turbopump.broker.dledger.table_log import TableLog
from turbopump.broker.dledger.table_records import Table
from turbopump.broker.topics import Topic, TopicTable

CHANGED_TOPICS = "topics.json+"
"""Name of a table that has only the topics that are new or were changed."""


class TopicChanges:
    """Appends topics to the log as soon as they are created or changed; the whole table follows later."""

    def __init__(self, tables: TableLog, topics: TopicTable) -> None:
        self._tables = tables
        self._topics = topics

    def __call__(self, changed: list[Topic]) -> None:
        if changed:
            self._tables.try_append(Table(CHANGED_TOPICS, self._topics.to_wire(changed).encode()))
