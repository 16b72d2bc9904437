"""The compiled twin of the index loop writes the same files."""

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import Workers, new_disk, small

from turbopump.compiled import PURE, Twins, twins
from turbopump.store.index import Index
from turbopump.store.store import Store

WANTED = bool(os.environ.get("CI")) and PURE not in os.environ  # in CI missing twins are a failure
pytestmark = pytest.mark.skipif(twins() is None and not WANTED, reason="the twins are not built")

Row = tuple[str, int, int, str, str]  # topic, log offset, store time, unique key, keys

texts = st.text(st.sampled_from("aZ09#  Üß中\ud800\udfff\U0001f680"), max_size=12)
steps = st.tuples(
    st.sampled_from(["T", "中文"]), st.sampled_from([0, 1, 90]), st.integers(-2000, 5000), texts, texts
)


def rows_of(steps: list[Row]) -> list[Row]:
    """Generates rows with mostly increasing offsets and times."""
    rows, offset, timestamp = [], 0, 1_794_733_741_890
    for topic, further, later, unique_key, keys in steps:
        offset, timestamp = offset + further, timestamp + later
        rows.append((topic, offset, timestamp, unique_key, keys))
    return rows


class IndexFiles:
    def __init__(self, twins: Twins | None) -> None:
        self.disk = new_disk()
        self.store = Store.open(small(index_items=40), self.disk, HandClock(), Workers(), twins=twins)

    def put(self, rows: list[Row]) -> None:
        waiting = self.store._appender.keys
        waiting.extend((self.store.queues.queue(row[0], 0), *row[1:]) for row in rows)
        self.store._dispatcher.put_all_keys()

    def files(self) -> list[tuple[str, bytes]]:
        index(self.store).publish()
        names = [entry.name for entry in self.disk.entries("/store/index")]
        return [(name, bytes(self.disk.open_mapped(f"/store/index/{name}").buffer)) for name in names]


def index(store: Store) -> Index:
    assert store.index is not None
    return store.index


@examples(150)
@given(st.lists(steps, max_size=80), st.integers(0, 80))
def test_the_files_are_the_same(steps: list[Row], cut: int) -> None:
    rows = rows_of(steps)
    compiled, pure = IndexFiles(twins()), IndexFiles(None)
    for part in (rows[:cut], rows[max(0, cut - 3) :], rows[-3:]):  # some twice, as after a crash
        for shelf in (compiled, pure):
            shelf.put(part)
        assert compiled.files() == pure.files()
        for shelf in (compiled, pure):
            index(shelf.store)._remember_end()


def test_most_are_put_by_the_twin() -> None:
    """Python adds the first of a file, and those that do not fit."""
    rows = rows_of([("T", 10, 1, f"key{n}", "a b") for n in range(1000)])
    by_python: list[Any] = []
    shelf = IndexFiles(twins())
    shelf.store = Store.open(
        small(root_dir="/other", index_items=4000), shelf.disk, HandClock(), Workers(), twins=twins()
    )
    put_many = index(shelf.store).put_many
    index(shelf.store).put_many = lambda entries: put_many(by_python.append(1) or one for one in entries)  # type: ignore[method-assign,func-returns-value]
    shelf.put(rows[:1])
    shelf.put(rows[1:])
    assert len(by_python) == 3
    assert index(shelf.store).end_offset == rows[-1][1]


def test_wrong_rows_are_type_errors() -> None:
    found = twins()
    assert found is not None
    rest = (bytearray(64), bytearray(400), 0, 1, 2, 9, 0, 0, 0, -1)
    for row in (None, (), (1, 2, 3, "", None), ("no queue", 5, 3, "", "")):
        with pytest.raises((TypeError, AttributeError)):
            found.put_keys([row], 1, *(memoryview(rest[0]).cast("i"), *rest[1:]))
    with pytest.raises(TypeError):
        found.put_keys((), 1)
