"""The store of a DLedger node in real files, with a commit log before its entries."""

from __future__ import annotations

from pathlib import Path

from tests.unit.pipelines.log.kit import closed, opened, put
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import HOST

from turbopump.protocol import record as codec
from turbopump.store.store import Store

START = 1_700_000_000_000
QUEUES = 2
OLD, NEW = 60, 50
UNCOMMITTED = 3


def switched_store(root: Path) -> str:
    """Messages a second apart: OLD in a commit log, NEW in committed entries, UNCOMMITTED behind them."""
    clock = HandClock(START)
    store = opened(root, clock)
    for number in range(OLD):
        clock.now = START + number * 1000
        put(store, "T", number % QUEUES, b"%04d" % number, key=f"U{number}", tag="abc"[number % 3])
    closed(store)
    store = opened(root, dledger_id="n0", dledger_index_units=64)
    append(store, range(OLD, OLD + NEW))
    store.entries.commit_to(store.entries.end_index)
    while store.committed.dispatch():
        pass
    append(store, range(OLD + NEW, OLD + NEW + UNCOMMITTED))
    closed(store)
    return str(root)


def append(store: Store, numbers: range) -> None:
    store.entries.append([_message(number) for number in numbers], 1)
    store.entries.sync()


def _message(number: int) -> bytes:
    stored = START + number * 1000
    place = ("T", number % QUEUES, 0, number // QUEUES, 0, 0, stored, HOST, stored, HOST)
    properties = f"UNIQ_KEY\1U{number}\2TAGS\1{'abc'[number % 3]}\2".encode()
    return codec.encode(codec.Record(*place, body=b"%04d" % number, properties=properties))
