"""Arbitrary read events, handled by Python and by the compiled twin: the results must be equal.

Without a twin (no compiler, or TURBOPUMP_PURE) both are Python, and only crashes and hangs are found. To use
a sanitizer, build the twin with it: docs/testing.md.
"""

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.compat.wire import captured
from tests.fuzz.targets import Target
from tests.unit.broker.desk import letters
from tests.unit.broker.ledgers import LedgerBench
from tests.unit.broker.sends import Bench, frame
from tests.unit.store.lab import small

from turbopump.compiled import twins
from turbopump.protocol import batch, properties
from turbopump.protocol.frame import JSON, Frame, cut, pack

LOG_SIZE = 1 << 17
CRAMPED = 16  # one input in this many finds a nearly full log file
TOPICS = ("T", "JT")


def send_headers(data: bytes) -> None:
    """Runs a header in a whole frame between two plain sends."""
    plain = pack(*frame(310, letters("T"), b"neighbour", 1))
    sends(plain + pack(JSON, data, b"body") + plain)


def sends(data: bytes) -> None:
    compiled, pure = benches()
    if zlib.crc32(data) % CRAMPED == 0:
        for bench in (compiled, pure):
            bench.store.commit_log.position = LOG_SIZE - 600
    try:
        for bench in (compiled, pure):
            bench.receive(data)
        assert outcome(compiled) == outcome(pure)
    except Exception:
        benches.cache_clear()  # the two differ now
        raise
    for bench in (compiled, pure):
        rewind(bench)


def batches(data: bytes) -> None:
    """Runs the body of a batch send."""
    sends(pack(*frame(320, letters("T", m="true"), data, 1)))


def ledger_frames(data: bytes) -> None:
    """Runs half messages of a ledger, which are committed if accepted."""
    config = small(commit_log_file_size=LOG_SIZE)
    outcomes = []
    for ledger in (LedgerBench(twins(), config), LedgerBench(None, config)):
        ledger.bench.receive(pack(*frame(310, letters("T"), b"first", 0)))
        ledger.send(0, "token", data)
        ledger.decide(0, "token")
        ledger.settle()
        assert ledger.transactions.stamps.total == 0, "it was taken, and cannot be committed"
        outcomes.append(ledger.outcome())
    assert outcomes[0] == outcomes[1]


@cache
def benches() -> tuple[Bench, Bench]:
    return new_bench(compiled=True), new_bench(compiled=False)


def new_bench(compiled: bool) -> Bench:
    bench = Bench(twins() if compiled else None, small(commit_log_file_size=LOG_SIZE))
    for topic in TOPICS:
        bench.receive(pack(*frame(310, letters(topic), b"first", 0)))
    rewind(bench)
    return bench


def outcome(bench: Bench) -> list[Any]:
    log = bench.store.commit_log
    return [bench.connection.written, log.base, bytes(log.buffer[: log.position]), *bench.derived()]


def rewind(bench: Bench) -> None:
    """Resets the stores, so that inputs are independent; after a new log file both get a new store."""
    store = bench.store
    if store.commit_log.base or len(store.queues.opened()) > 64:
        benches.cache_clear()
    store.commit_log.position = 0
    store._appender.keys.clear()
    for queue in list(store.queues.dirty):
        queue.tail.clear()
        queue.next_offset, queue.last_physical, queue.counted = 0, -1, 0
    store.queues.dirty.clear()
    store._appender.messages = store._appender.bytes = 0
    bench.connection.written = b""


def headers() -> Iterator[bytes]:
    for event in seeds():
        frames: list[Frame] = []
        cut(event, frames)
        yield from (header for encoding, header, _ in frames if encoding == JSON)


def seeds() -> Iterator[bytes]:
    yield b"".join(
        pack(*frame(code, letters("T"), b"body", code, flag)) for code in (10, 310) for flag in (0, 2)
    )
    keyed = {"KEYS": "a b", "TAGS": "TagA", "own": 'quo"te\\'}
    yield pack(*frame(310, letters("T", pairs=keyed), bytes(100), -1))
    yield pack(*frame(310, letters("Multi", pairs={"TAGS": "Ü"}), b"x", 1))
    yield from (row.data for row in captured() if b'"code":310,' in row.data and len(row.data) < 2000)


def batch_seeds() -> Iterator[bytes]:
    place = {"REAL_TOPIC": "T", "REAL_QID": "1", "UNIQ_KEY": "A"}
    more = {"TAGS": "TagA", "KEYS": "a b", "own": "Ü"}, {"DELAY": "2"}, {"TIMER_DELAY_SEC": "9", "own": "x"}
    for pairs in (place, *(place | each for each in more), {"UNIQ_KEY": "A"}):
        packed = properties.pack(pairs).encode()
        yield batch.join([(0, b"body", packed), (-1, bytes(100), packed)])


BATCH_WORDS = (
    *(
        b"UNIQ_KEY\x01",
        b"KEYS\x01",
        b"TAGS\x01",
        b"DELAY\x012\x02",
        b"TIMER_DELAY_SEC\x019\x02",
        b"REAL_TOPIC\x01T\x02",
        b"REAL_QID\x010\x02",
    ),
    *(b"\x01", b"\x02", b"\x00\x00\x00\x16", b"\x7f\xff", b"\xff\xff\xff\xff", b"TRAN_MSG\x01true\x02"),
)
WORDS = (
    *(
        b'"code":310,',
        b'{"code":10,',
        b'"extFields":{',
        b'"flag":2',
        b'"opaque":-1',
        b'"m":"true"',
        b'"b":"T"',
    ),
    *(b"UNIQ_KEY\\u0001", b"KEYS\\u0001", b"TAGS\\u0001", b"WAIT\\u0001false\\u0002", b"DELAY\\u00012"),
    *(b"\\u0001", b"\\u0002", b"\\u0041", b'\\"', b"\\\\", b"\\/", b"\\n", b"2147483648", b"-0", b" ", b","),
)
TARGETS = {
    "send-headers": Target(send_headers, headers, allowed=(), words=WORDS, taste=300),
    "batches": Target(batches, batch_seeds, allowed=(), words=BATCH_WORDS, taste=200),
    "ledger-frames": Target(ledger_frames, batch_seeds, allowed=(), words=BATCH_WORDS, taste=100),
    "sends": Target(sends, seeds, allowed=(), words=WORDS, taste=200),
}
