"""A small store in real files, written by our own store, and what the log reader makes of it."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.unit.store.kit import HandClock
from tests.unit.store.lab import Workers, draft, small

from turbopump.pipelines.log import read_log
from turbopump.runtime.disk import SystemDisk
from turbopump.store.store import Store

LOG_FILE = 4096


def opened(root: Path, clock: HandClock | None = None, **settings: Any) -> Store:
    return Store.open(small(root_dir=str(root), **settings), SystemDisk(), clock or HandClock(), Workers())


def closed(store: Store) -> None:
    asyncio.run(store.close())


def put(store: Store, topic: str = "T", queue: int = 0, body: bytes = b"hello", **fields: Any) -> None:
    store.log.append([draft(store.queues.queue(topic, queue), body, **fields)])


def rows(root: Path | str, *topics: str, **asked: Any) -> list[dict[str, Any]]:
    table = read_log(root, topics, **asked).read_all()
    table.validate(full=True)
    return table.to_pylist()


def bodies(root: Path | str, *topics: str, **asked: Any) -> list[bytes]:
    return [row["body"] for row in rows(root, *topics, columns=["body"], **asked)]


def log_files(root: Path | str) -> list[str]:
    directory = os.path.join(root, "commitlog")
    return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]


def changed(path: str, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def numbered(count: int) -> Iterator[bytes]:
    return (b"%04d" % number for number in range(count))
