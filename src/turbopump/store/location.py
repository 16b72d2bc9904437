"""Finds the store in a directory that a user names, and what kind of log it has."""

import os

from turbopump.runtime.disk import Disk
from turbopump.store.errors import UnusableStore

DLEDGER_PREFIX = "dledger-"


def find_store(directory: str, with_dledger: bool = False) -> str | None:
    """Returns the directory, or its subdirectory `store`, whichever has a commit log; None: neither has.

    With `with_dledger`, a log of DLedger counts as well.
    """
    for candidate in (directory, os.path.join(directory, "store")):
        if os.path.isdir(os.path.join(candidate, "commitlog")):
            return candidate
        if with_dledger and os.path.isdir(candidate):
            names = os.listdir(candidate)
            if any(os.path.isdir(os.path.join(candidate, name, "data")) for name in _of_nodes(names)):
                return candidate
    return None


def dledger_id(directory: str, disk: Disk) -> str:
    """Returns the id of the DLedger node whose log a store has; empty: it has none.

    Raises UnusableStore for the logs of several nodes.
    """
    found = [
        name
        for name in _of_nodes([entry.name for entry in disk.entries(directory) if entry.is_dir])
        if disk.entries(f"{directory}/{name}/data")
    ]
    if len(found) > 1:
        raise UnusableStore(f"{directory} has the logs of several DLedger nodes: {', '.join(found)}")
    return found[0].removeprefix(DLEDGER_PREFIX) if found else ""


def refuse_dledger(directory: str, disk: Disk, what: str) -> None:
    """Raises UnusableStore for a store with a log of DLedger, where only a commit log can be read."""
    if node := dledger_id(directory, disk):
        raise UnusableStore(
            f"the log of {directory} is that of the DLedger node {node}: {what} is not possible with it"
        )


def _of_nodes(names: list[str]) -> list[str]:
    return [name for name in sorted(names) if name.startswith(DLEDGER_PREFIX)]
