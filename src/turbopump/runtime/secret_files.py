"""Says whether other users of the machine can read or change a file with secrets.

In: a disk and a path. Out: words for a warning, or None. The group root is left out: files of containers
belong to it.
"""

from turbopump.runtime.disk import Disk

OTHERS_READ, OTHERS_WRITE = 0o004, 0o002
GROUP_READ, GROUP_WRITE = 0o040, 0o020
ROOT_GROUP = 0


def exposure(disk: Disk, path: str) -> str | None:
    """Returns who else can read or change a file, and what to do; None: no one, or there is no file."""
    try:
        mode, group = disk.mode(path), disk.group(path)
    except OSError:
        return None
    shown = f"group {group}"
    for bit, what, who, counts in (
        (OTHERS_READ, "read", "every user of this machine", True),
        (OTHERS_WRITE, "changed", "every user of this machine", True),
        (GROUP_READ, "read", shown, group != ROOT_GROUP),
        (GROUP_WRITE, "changed", shown, group != ROOT_GROUP),
    ):
        if counts and mode & bit:
            return f"can be {what} by {who}: chmod 600"
    return None
