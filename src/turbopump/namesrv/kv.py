"""The key-value table: namespace -> key -> value, stored as Apache's kvConfig.json, rewritten on each change.

A change that cannot be written is refused and undone, so that memory and file agree. Changes are made one at
a time, in a thread, because they wait for the disk; tables are replaced, never changed in place.
"""

import json
import logging
import os

import msgspec

from turbopump.protocol import dialect
from turbopump.protocol.errors import BrokenBody, SystemFailure
from turbopump.runtime.disk import Disk

log = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace of order topics: topic -> `broker:queues;broker:queues`."""

MAX_BYTES = 32 << 20  # of JSON, far beyond any use of the table
MAX_NAMESPACE_BYTES = 8 << 20  # of JSON: one answer holds a whole namespace, and a frame has at most 16 MiB


class KeyValueTable:
    """Table of values by namespace and key, kept in a JSON file that each change rewrites."""

    def __init__(self, disk: Disk, path: str) -> None:
        """With an empty `path` the table is only in memory."""
        self._disk = disk
        self._path = path
        self._table: dict[str, dict[str, str]] = {}
        self._bytes: dict[str, int] = {}  # by namespace

    def load(self) -> None:
        """Loads the table from its file, else from the backup; leaves it empty if neither can be read."""
        for path in (self._path, self._path + ".bak"):
            if self._path and self._disk.exists(path):
                try:
                    self._table = _parse(self._disk.read(path))
                except (OSError, BrokenBody) as error:
                    log.error("Cannot read the key-value table %s: %s", path, error)
                    continue
                break
        self._bytes = {namespace: _size(namespace, table) for namespace, table in self._table.items()}
        for namespace, size in self._bytes.items():
            if size > MAX_NAMESPACE_BYTES:
                log.warning(
                    "Key-value namespace %.40s has %d bytes: requests for all of it may fail",
                    namespace,
                    size,
                )

    @property
    def is_on_disk(self) -> bool:
        """Whether changes are written to a file; False for a table in memory only."""
        return bool(self._path)

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def all_of(self, namespace: str) -> dict[str, str] | None:
        """Returns all values of a namespace by key; None when the namespace was never used."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str | None) -> None:
        """Sets the value of a key, or removes the key if `value` is None; raises SystemFailure if it fails.

        None leaves the key without a value, as in Apache's table. After a failure nothing has changed.
        """
        table = dict(self._table.get(namespace, {}))
        table.pop(key, None)
        if value is not None:
            table[key] = value
        self._replace(namespace, table)

    def delete(self, namespace: str, key: str) -> None:
        if self.get(namespace, key) is not None:
            table = dict(self._table[namespace])
            del table[key]
            self._replace(namespace, table)

    def _replace(self, namespace: str, table: dict[str, str]) -> None:
        size = _size(namespace, table)
        if size > self._bytes.get(
            namespace, 0
        ):  # a file may hold more than allowed, then changes may only shrink it
            self._check(namespace, size)
        before = self._table
        self._table = {**before, namespace: table}
        try:
            self._save()
        except BaseException:
            self._table = before
            raise
        self._bytes[namespace] = size

    def _check(self, namespace: str, size: int) -> None:
        if size > MAX_NAMESPACE_BYTES:
            raise SystemFailure(f"a key-value namespace must have at most {MAX_NAMESPACE_BYTES} bytes")
        if sum(self._bytes.values()) - self._bytes.get(namespace, 0) + size > MAX_BYTES:
            raise SystemFailure(f"the key-value table must have at most {MAX_BYTES} bytes")

    def _save(self) -> None:
        if not self._path:
            return
        content = json.dumps({"configTable": self._table}, ensure_ascii=False, separators=(",", ":"))
        try:
            replace_file(self._disk, self._path, content.encode())
        except OSError as error:
            raise SystemFailure(f"cannot write the key-value table: {error}") from error


def replace_file(disk: Disk, path: str, content: bytes, private: bool = False) -> None:
    """Replaces a small file atomically; the previous content stays as `.bak`."""
    directory = os.path.dirname(path) or "."
    disk.make_dirs(directory)
    disk.write(path + ".tmp", content, private=private)
    if disk.exists(path):
        disk.write(path + ".bak", disk.read(path), private=private)
    disk.rename(path + ".tmp", path)
    disk.sync_dir(directory)


def _parse(data: bytes) -> dict[str, dict[str, str]]:
    document = dialect.loads(data)
    table = document.get("configTable") if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise BrokenBody("configTable is missing")
    return {
        namespace: {key: str(value) for key, value in values.items() if value is not None}
        for namespace, values in table.items()
        if isinstance(values, dict)
    }


def _size(namespace: str, table: dict[str, str]) -> int:
    """Returns the size in bytes of a namespace as JSON, in which escapes are longer."""
    return len(msgspec.json.encode({namespace: table}))
