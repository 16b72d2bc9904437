"""Writes rows exactly once: half messages, and one decision of the brokers' ledger per batch.

In: the Arrow batches of a task, and the batch and run that it is an attempt at. Out: what the attempt has
written, for the driver, which decides. Decision 0014 has the protocol: tasks open the ledger for their run,
so a new run fences off the one before it; the first decision about a batch counts, and brokers carry it out.
"""

import contextlib
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from turbopump.client import background
from turbopump.client.admin.calls import ServerUnreachable
from turbopump.client.namespace import wrap
from turbopump.client.produce.ledger import (
    MAX_FRAME_BYTES,
    MAX_FRAME_MESSAGES,
    Ledger,
    LedgerNotSupported,
    Writer,
    Written,
)
from turbopump.pipelines.options import SECOND_BATCH
from turbopump.pipelines.sink.connections import (
    MAX_CACHED,
    TOPIC_PATIENCE_S,
    ConnectionCache,
    retry_while_unavailable,
)
from turbopump.pipelines.sink.frames import Place, half_frames
from turbopump.pipelines.sink.row_pipeline import new_key_prefix, send_all
from turbopump.pipelines.sink.rows import MessageRows, refused_row
from turbopump.pipelines.sink.settings import SinkOptions
from turbopump.protocol.errors import FlowControl, MessageIllegal, Refused, TopicNotFound

NOTHING = Written("", 0, ())
REPEATED = "Skipping batch %d of %s: the brokers have already decided batches up to %d of this id"

log = logging.getLogger(__name__)


class CannotBeExact(RuntimeError):
    """Exactly-once delivery is not possible here; the text has the way out."""


@dataclass(frozen=True, slots=True)
class QueryRun:
    """One run of a query: `id` is that of all its runs, `run` its own; `home` is set once it is opened."""

    id: str
    run: str
    home: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one task has written for its part of a batch, and the run that it belongs to."""

    run: QueryRun
    written: Written


# --- a task ----------------------------------------------------------------------------------------------


def write(sink: SinkOptions, run: QueryRun, batch: int, batches: Iterable[Any]) -> Attempt:
    """Sends a task's rows as half messages and returns the attempt; sends nothing if the batch is decided."""
    ledger = opened(sink, run)
    try:
        if background.run(ledger.decided(batch)):
            return Attempt(where(ledger), NOTHING)
        return Attempt(where(ledger), _written(sink, ledger, batch, batches))
    except BaseException:
        _ledgers.drop((sink, run))
        raise


def opened(sink: SinkOptions, run: QueryRun) -> Ledger:
    """Returns this process's open ledger for the run. Raises Fenced if there is a newer run.

    All tasks of a run may open it.
    """
    return _ledgers.get((sink, run), lambda: _open(sink, run))


_ledgers: ConnectionCache[Ledger] = ConnectionCache()


def _open(sink: SinkOptions, run: QueryRun) -> Ledger:
    ledger = _ledger(sink, run)
    if run.home:
        return ledger
    try:
        background.run(
            retry_while_unavailable(lambda: ledger.open(run.run), sink.patience_s, ledger.admin.clock)
        )
    except LedgerNotSupported as error:
        raise not_here(error) from None
    return ledger


def _ledger(sink: SinkOptions, run: QueryRun) -> Ledger:
    return Ledger(
        run.id,
        sink.name_servers,
        run=run.run if run.home else "",
        home=run.home,
        cluster=run.cluster or sink.cluster,
        timeout=sink.patience_s,
        **sink.client_options,
    )


def where(ledger: Ledger) -> QueryRun:
    """Returns the run of an open ledger with its home, so that other processes need not open it again."""
    return QueryRun(ledger.id, ledger.run, ledger.home, ledger.cluster)


def not_here(error: LedgerNotSupported) -> CannotBeExact:
    return CannotBeExact(
        f"delivery=exactly-once is not possible: {error}. Give the option delivery=at-least-once, which "
        "works with every broker"
    )


def _written(sink: SinkOptions, ledger: Ledger, batch: int, batches: Iterable[Any]) -> Written:
    writer = ledger.writer(batch)
    sender = _HalfSender(ledger, writer)
    count = send_all(batches, sink.topic, sender.key_prefix, sender.send)
    assert writer.written.count == count
    return writer.written


class _HalfSender:
    """Sends rows as half messages."""

    def __init__(self, ledger: Ledger, writer: Writer) -> None:
        self._ledger = ledger
        self._writer = writer
        self._places: dict[str, Sequence[Place]] = {}
        self._turn = ledger.admin.chance.getrandbits(16)

    def key_prefix(self) -> str:
        return new_key_prefix(self._ledger.admin.clock, self._ledger.admin.chance)

    async def send(self, rows: MessageRows, before: int) -> None:
        places = [await self._queues(topic) for topic in rows.topics]
        found: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
        for broker, body, count in half_frames(
            rows, places, self._turn + before, MAX_FRAME_BYTES, MAX_FRAME_MESSAGES
        ):
            found[broker].append((body, count))
        try:
            await self._writer.send_packed(
                [(broker, await self._ledger.address(broker), frames) for broker, frames in found.items()]
            )
        except FlowControl as refused:
            raise CannotBeExact(
                f"{refused.remark}. A batch that is written exactly once must be smaller: give its source "
                "the option maxOffsetsPerTrigger, such as 200000"
            ) from None
        except MessageIllegal as refused:
            raise refused_row(rows, before, refused.remark) or _refused(rows, refused) from None

    async def _queues(self, topic: str) -> Sequence[Place]:
        """Returns a topic's writable queues, asked once per task. Raises CannotBeExact for no such topic."""
        if topic not in self._places:
            admin = self._ledger.admin
            name = wrap(admin.settings.namespace, topic)
            try:
                route = await retry_while_unavailable(
                    lambda: admin.routes.refresh(name), TOPIC_PATIENCE_S, admin.clock
                )
            except TopicNotFound:
                route = None
            if route is None or not route.publish:
                raise CannotBeExact(
                    f"topic {topic} does not exist: create it, mqadmin updateTopic -t {topic} …"
                )
            self._places[topic] = [(name, queue.broker, queue.id) for queue in route.publish]
        return self._places[topic]


def _refused(rows: MessageRows, refused: MessageIllegal) -> Exception:
    if not len(rows.timed):
        return refused
    return CannotBeExact(
        f"a broker refuses rows, some of which have a delayLevel or deliverTime: {refused.remark}. Older "
        "brokers take them only with the option delivery=at-least-once: update the broker, or give that "
        "option"
    )


# --- the driver ------------------------------------------------------------------------------------------


@lru_cache(MAX_CACHED)
def check_brokers(sink: SinkOptions) -> None:
    """Raises CannotBeExact if the brokers keep no ledger. Asks them once per process."""
    with closing(_ledger(sink, QueryRun("check", "check"))) as ledger:
        try:
            background.run(
                retry_while_unavailable(ledger.check_supported, sink.patience_s, ledger.admin.clock)
            )
        except LedgerNotSupported as error:
            raise not_here(error) from None


def begin_job(sink: SinkOptions) -> tuple[QueryRun, int]:
    """Opens a ledger run for a batch job; returns it with its batch number, which is `txnVersion` or 0.

    The same id fences off an earlier job that has not ended. Raises CannotBeExact for a second batch without
    a version: it could be the first one repeated.
    """
    name = uuid.uuid4().hex
    with closing(_open(sink, QueryRun(sink.transactional_id or f"spark-{name}", name))) as ledger:
        last, batch = background.run(ledger.highest()), sink.version or 0
        if last >= batch:
            if sink.version is None:
                raise CannotBeExact(
                    f"transactionalId {ledger.id!r} has already written a batch. {SECOND_BATCH}"
                )
            log.warning(REPEATED, batch, ledger.id, last)
        return where(ledger), batch


def commit(sink: SinkOptions, batch: int, attempts: Sequence[Attempt]) -> None:
    """Decides in the ledger that these attempts are the batch, then commits their messages. Raises Fenced."""
    with closing(_ledger(sink, attempts[0].run)) as ledger:
        decide(sink, ledger, batch, [one.written for one in attempts])
        end(ledger, batch)


def decide(sink: SinkOptions, ledger: Ledger, batch: int, written: Sequence[Written]) -> None:
    background.run(
        retry_while_unavailable(lambda: ledger.decide(batch, written), sink.patience_s, ledger.admin.clock)
    )


def end(ledger: Ledger, batch: int) -> None:
    """Commits a decided batch's messages at once. Ignores failures: brokers would do it later in any case."""
    with contextlib.suppress(ServerUnreachable, Refused):
        background.run(ledger.end(batch))


def give_up(sink: SinkOptions, run: QueryRun) -> None:
    """Fences off the run of a failed batch job by opening a last run, unless another job has done so.

    Nothing else would end it. What the job had decided before it failed stays decided.
    """
    with closing(_ledger(sink, run)) as ledger:
        if background.run(ledger.is_current()):
            background.run(ledger.open(f"{run.run}-failed"))


@contextlib.contextmanager
def closing(ledger: Ledger) -> Iterator[Ledger]:
    try:
        yield ledger
    finally:
        background.run(ledger.close())
