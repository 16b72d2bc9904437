"""The stores of a DLedger group of Apache's, and what its broker answered."""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from tests.unit.store.kit import STORES

from turbopump.store.config import StoreConfig

NODES = ("n0", "n1", "n2")
ENTRIES, LAST_OF_TERM_1 = 59, 47


def dledger_store(node: str, target: Path) -> str:
    """Unpacks the store of a node; returns its directory."""
    with tarfile.open(STORES / "4.9.7-dledger.tar.xz") as archive:
        members = [member for member in archive.getmembers() if member.name.startswith(node)]
        archive.extractall(target, members=members, filter="data")
    return str(target / node / "store")


def config_of_node(node: str, root: str) -> StoreConfig:
    return StoreConfig(
        root_dir=root,
        dledger_id=node,
        commit_log_file_size=65536,
        consume_queue_file_size=6000,
        index_slots=100,
        index_items=400,
    )


def answers() -> dict[str, list[dict[str, Any]]]:
    """Returns the messages that Apache's broker returned, by topic and queue such as `Main/0`."""
    data = json.loads(lzma.decompress((STORES / "dledger.json.xz").read_bytes()))
    found: dict[str, list[dict[str, Any]]] = data["messages"]
    return found
