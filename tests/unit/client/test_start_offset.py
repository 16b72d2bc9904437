"""Where a new group begins, while messages arrive between any two requests of the consumer."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from turbopump.client.group.start_offset import StartOffset
from turbopump.client.message import MessageQueue
from turbopump.client.settings import ConsumeFromWhere, PullSettings
from turbopump.protocol.names import retry_topic

QUEUE = MessageQueue("orders", "broker-a", 0)
RETRY = MessageQueue(retry_topic("readers"), "broker-a", 0)
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
MAX_REQUESTS = 4


@dataclass
class PlayedBroker:
    """One queue. A message is stored just before the request of number `arrives_before`.

    Without a commit it answers 0 while message 0 is young; an empty queue is "not found" to 5.5.0, and 0 to
    4.9.7 and to our own broker.
    """

    end: int = 0
    is_old: bool = False
    finds_empty: bool = False
    committed: int | None = None
    arrives_before: int = 0
    asked: list[str] = field(default_factory=list)

    async def query(self, queue: MessageQueue) -> int | None:
        self._next("query")
        if self.committed is not None:
            return self.committed
        is_zero = self.finds_empty if not self.end else not self.is_old
        return 0 if is_zero else None

    async def max_offset(self, queue: MessageQueue) -> int:
        self._next("max")
        return self.end

    def _next(self, name: str) -> None:
        self.asked.append(name)
        if len(self.asked) == self.arrives_before:
            self.end += 1


def start_of(broker: PlayedBroker, queue: MessageQueue = QUEUE, where: ConsumeFromWhere = LAST) -> int:
    played: Any = broker
    settings = PullSettings(consume_from_where=where)
    return asyncio.run(StartOffset(played, played, settings, started_ms=0).of(queue))


@pytest.mark.parametrize("finds_empty", [False, True])
@pytest.mark.parametrize("arrives_before", range(MAX_REQUESTS + 1))
def test_the_first_message_of_a_new_queue_is_read_whenever_it_arrives(
    arrives_before: int, finds_empty: bool
) -> None:
    assert start_of(PlayedBroker(arrives_before=arrives_before, finds_empty=finds_empty)) == 0


def test_of_an_old_queue_a_new_group_reads_nothing_that_was_there_before() -> None:
    for arrives_before in range(MAX_REQUESTS + 1):
        assert start_of(PlayedBroker(12, is_old=True, arrives_before=arrives_before)) >= 12
    assert start_of(PlayedBroker(12, is_old=True)) == 12


def test_a_group_with_a_commit_asks_once() -> None:
    broker = PlayedBroker(12, committed=5)
    assert start_of(broker) == 5
    assert broker.asked == ["query"]


@pytest.mark.parametrize("where", ConsumeFromWhere)
def test_a_retry_topic_is_read_from_its_first_message_by_whatever_rule(where: ConsumeFromWhere) -> None:
    """It holds what the group itself sent back: none of it may be skipped."""
    assert start_of(PlayedBroker(3, is_old=True), RETRY, where) == 0


def test_a_commit_of_another_member_that_comes_in_between_counts() -> None:
    broker = PlayedBroker(12, is_old=True)

    async def commits_meanwhile(queue: MessageQueue) -> int:
        broker.committed = 7
        return broker.end

    broker.max_offset = commits_meanwhile  # type: ignore[method-assign]
    assert start_of(broker) == 7
