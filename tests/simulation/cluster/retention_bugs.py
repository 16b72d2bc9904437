"""Errors of retention that are planted into the code: see `bugs.py`, which lists them."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from turbopump.broker.delay.levels import DelayedMessages
from turbopump.broker.replicas.slave_retention import SlaveRetention
from turbopump.replication.comparison import LogComparison, Relation
from turbopump.replication.progress import CopyProgress
from turbopump.store import reading, retention
from turbopump.store.reading import GetStatus


async def _go_ahead(*_: Any) -> bool:
    """Replaces a guard of the files of a log."""
    return True


def slave_deletes_by_its_own_clock() -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(SlaveRetention, "may_delete", _go_ahead)


def delayed_messages_go_with_their_file() -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(DelayedMessages, "rescue", _go_ahead)


@contextlib.contextmanager
def one_file_too_many() -> Iterator[None]:
    """Deletes the first file that has not expired with the last that has."""
    decide = retention.decide

    def decide_for_more(files: Any, *args: Any) -> Any:
        found = decide(files, *args)
        more = found.delete + (found.delete > 0)
        return replace(found, delete=min(more, len(files) - 1))

    with mock.patch.object(retention, "decide", decide_for_more):
        yield


@contextlib.contextmanager
def begin_at_the_last_file() -> Iterator[None]:
    """Has an empty slave begin where Apache's begins, and call that complete."""
    compare = LogComparison._with_ours

    async def last_file(self: LogComparison, address: str) -> Any:
        found = await compare(self, address)
        if found is None or found.relation is not Relation.EMPTY or not found.file_size:
            return found
        last = max(found.master.end - 1, 0) // found.file_size * found.file_size
        return replace(found, start=max(last, found.master.begin))

    def begun_at(self: CopyProgress, offset: int) -> None:
        self.state.begins = self.state.wanted_begin

    with (
        mock.patch.object(LogComparison, "_with_ours", last_file),
        mock.patch.object(CopyProgress, "begun_at", begun_at),
    ):
        yield


@contextlib.contextmanager
def readers_sent_to_the_end() -> Iterator[None]:
    """Sends a reader of deleted messages to the end of the queue."""
    outside = reading._outside

    def to_the_end(offset: int, low: int, high: int) -> tuple[GetStatus, int] | None:
        found = outside(offset, low, high)
        return (found[0], high) if found is not None and found[0] is GetStatus.OFFSET_TOO_SMALL else found

    with mock.patch.object(reading, "_outside", to_the_end):
        yield
