"""Files with secrets: replaced as a whole, readable by the user of this process alone.

In: a path and bytes. Out: a file of mode 600 that is either the old one or the new one after a crash.
"""

from turbopump.runtime.disk import Disk


def read_file(disk: Disk, path: str) -> bytes | None:
    """Returns the contents of a file; None: there is none."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def replace_private(disk: Disk, path: str, data: bytes) -> None:
    """Replaces a file durably, with mode 600. Blocks for two syncs."""
    directory = path.rpartition("/")[0] or "."
    disk.make_dirs(directory)
    disk.write(f"{path}.tmp", data, sync=True, private=True)
    disk.rename(f"{path}.tmp", path)
    disk.sync_dir(directory)
