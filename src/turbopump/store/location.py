"""Finds the store in a directory that a user names."""

import os


def find_store(directory: str) -> str | None:
    """Returns the directory, or its subdirectory `store`, whichever has a commit log; None: neither has."""
    for candidate in (directory, os.path.join(directory, "store")):
        if os.path.isdir(os.path.join(candidate, "commitlog")):
            return candidate
    return None
