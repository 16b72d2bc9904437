"""A store directory with one damaged file, read as a table: fewer rows or an error, never a crash.

The first byte of an input selects the file, the rest is its content. Without PyArrow there is no such target.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.fuzz.targets import Target
from tests.unit.store.queue_kinds_kit import TOPICS, fill_batches

try:
    from tests.unit.pipelines.log.kit import closed, opened, put, rows

    from turbopump.pipelines.log import OffsetsGone, RecordsLost

    HAS_ARROW = True
except ModuleNotFoundError:
    HAS_ARROW = False

FOLDERS = ("batchconsumequeue", "commitlog", "consumequeue", "index")
QUEUES = ("batchconsumequeue", "consumequeue")
MESSAGES = 24
WAYS = ({"scan": "queue"}, {"scan": "log"}, {"key": "K3"})

Row = tuple[str, int, int, bytes]


def log_reader(data: bytes) -> None:
    files, whole = _store()
    path = files[data[0] % len(files) if data else 0]
    good = path.read_bytes()
    path.write_bytes(data[1:].ljust(len(good), b"\0")[: len(good)])
    try:
        for asked in WAYS:
            found = _rows(**asked, fail_on_data_loss=False)
            if path.parts[-4] in QUEUES:
                assert len(set(found)) == len(found)
                assert {*found} <= whole
        _rows(scan="queue")
    finally:
        path.write_bytes(good)


@cache
def _root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="fuzz-log-reader-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_bytes(TOPICS)
    store = opened(root, batch_queue_file_size=46 * 3)
    fill_batches(store)
    for number in range(MESSAGES):
        put(store, "T", number % 2, b"%04d" % number, key=f"K{number % 5}", tag=f"t{number % 3}")
    closed(store)
    return root


@cache
def _store() -> tuple[list[Path], frozenset[Row]]:
    """Its files, and what they say."""
    found = [path for folder in FOLDERS for path in (_root() / folder).rglob("*") if path.is_file()]
    return sorted(found), frozenset(_rows(scan="queue"))


def _rows(**asked: object) -> list[Row]:
    columns = ("topic", "queueId", "queueOffset", "body")
    return [
        (row["topic"], row["queueId"], row["queueOffset"], row["body"])
        for row in rows(_root(), columns=columns, **asked)
    ]


def _seeds() -> Iterator[bytes]:
    for number, path in enumerate(_store()[0]):
        yield bytes([number]) + path.read_bytes().rstrip(b"\0")


TARGETS: dict[str, Target] = {}
if HAS_ARROW:
    TARGETS["log-reader"] = Target(log_reader, _seeds, (OffsetsGone, RecordsLost), taste=60)
