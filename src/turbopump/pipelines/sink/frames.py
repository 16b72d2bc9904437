"""Groups rows into the frames in which they are sent: batch sends to a queue, or half messages for a broker.

In: `MessageRows`, and what the routes say: how many queues a topic has, and where they are. Out: frames,
grouped by what has to stay in order. Nothing is sent here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from turbopump.pipelines.sink.rows import NO_KEY, MessageRows, Numbers, cut, groups, records
from turbopump.protocol import properties
from turbopump.protocol.names import RETRY_PREFIX

# Apache's brokers accept 4 MiB including all that they add, and other requests wait behind a large frame.
MAX_FRAME_BYTES = 1 << 20
MAX_FRAME_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Frame:
    """Messages of one topic for one queue, as the body of a batch send; or one message sent alone."""

    topic: str
    body: bytes
    count: int
    alone: str | None = None
    """Properties of a message that is sent alone, whose `body` is its body."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Frames that must be sent one after another, to one queue or, if `queue` is None, to any."""

    queue: int | None
    """Index among the topic's queues; None: any queue."""
    frames: list[Frame]


def lanes(rows: MessageRows, queues: Mapping[str, int]) -> list[Lane]:
    """Groups rows into lanes by topic and queue. `queues`: how many queues each topic has."""
    found: list[Lane] = []
    counts = np.array([queues[topic] for topic in rows.topics], np.int64)
    queue_of = _queues(rows, counts)
    for index in rows.timed:
        queue = int(queue_of[index])
        found.append(Lane(None if queue == NO_KEY else queue, [_alone(rows, int(index))]))
    most = int(counts.max(initial=0)) + 1
    codes = rows.topic_of.astype(np.int64) * most + queue_of + 1
    for code, part in _parts(rows, codes):
        topic, queue = rows.topics[code // most], code % most - 1
        frames = list(_frames(topic, part))
        if queue == NO_KEY:
            found += [Lane(None, [frame]) for frame in frames]
        else:
            found.append(Lane(queue, frames))
    return found


def _queues(rows: MessageRows, counts: Numbers) -> Numbers:
    """Returns the queue number of each row, by the hash of its sharding key; NO_KEY for a row without one."""
    if rows.hashes is None:
        return np.full(len(rows), NO_KEY, np.int64)
    return np.where(rows.hashes == NO_KEY, NO_KEY, rows.hashes % counts[rows.topic_of])


def _parts(rows: MessageRows, codes: Numbers) -> Iterable[tuple[int, MessageRows]]:
    """Returns each code with its rows, without the delayed rows, which are sent alone.

    All rows of one code are not copied.
    """
    if not len(rows.timed):
        if len(codes) and (codes == codes[0]).all():
            return [(int(codes[0]), rows)]
        return [(code, rows.take(indices)) for code, indices in groups(codes)]
    others = np.setdiff1d(np.arange(len(rows)), rows.timed)
    return [(code, rows.take(others[indices])) for code, indices in groups(codes[others])]


def _frames(topic: str, rows: MessageRows) -> Iterator[Frame]:
    if topic.startswith(RETRY_PREFIX):  # no broker takes batches there
        yield from (_alone(rows, index) for index in range(len(rows)))
        return
    data, offsets = records(rows)
    view = memoryview(data)
    for begin, end in cut(np.diff(offsets), MAX_FRAME_BYTES, MAX_FRAME_ROWS):
        if offsets[end] - offsets[begin] > MAX_FRAME_BYTES:
            yield _alone(rows, begin)
        else:
            yield Frame(topic, bytes(view[offsets[begin] : offsets[end]]), end - begin)


def _alone(rows: MessageRows, index: int) -> Frame:
    topic = rows.topics[rows.topic_of[index]]
    return Frame(topic, rows.bodies[index].as_py(), 1, rows.properties[index].as_py().decode())


Place = tuple[str, str, int]
"""Topic as brokers know it, broker, queue."""


def half_frames(
    rows: MessageRows, places: Sequence[Sequence[Place]], turn: int, most_bytes: int, most_rows: int
) -> Iterator[tuple[str, bytes, int]]:
    """Yields broker, body and number of messages of each frame of half messages.

    Those of one broker come in the order of rows, delayed rows included: their delay begins when they are
    committed.
    """
    counts = np.array([len(each) for each in places], np.int64)
    turns = (turn + np.arange(len(rows))) % counts[rows.topic_of]
    queue_of = _queues(rows, counts)
    place_of = np.cumsum([0, *counts[:-1]])[rows.topic_of] + np.where(queue_of == NO_KEY, turns, queue_of)
    flat = [place for each in places for place in each]
    before = pa.array([_named(*place) for place in flat], pa.binary())
    brokers = sorted({broker for _, broker, _ in flat})
    broker_of = np.array([brokers.index(broker) for _, broker, _ in flat])[place_of]
    for code, indices in groups(broker_of):
        part = rows if len(brokers) == 1 else rows.take(indices)
        data, offsets = records(part, before.take(place_of[indices]))
        for begin, end in cut(np.diff(offsets), most_bytes, most_rows):
            yield brokers[code], bytes(memoryview(data)[offsets[begin] : offsets[end]]), end - begin


def _named(topic: str, broker: str, queue: int) -> bytes:
    return properties.pack({properties.REAL_TOPIC: topic, properties.REAL_QUEUE_ID: str(queue)}).encode()
