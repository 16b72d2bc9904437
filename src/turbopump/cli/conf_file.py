"""A configuration file given to a command: its text, error lines that name its place, and changes of it."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.guard.config import SECRET_KEYS
from turbopump.protocol.conf import ConfigError, pack_properties, parse_properties
from turbopump.remoting.tls_settings import SECRET_KEYS as TLS_SECRET_KEYS
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.secret_files import exposure


@dataclass(frozen=True, slots=True)
class ConfFile:
    """A configuration file given to a command: its path and text."""

    path: str | None
    text: bytes

    @classmethod
    def read(cls, path: str | None) -> "ConfFile":
        """Reads the file at `path`, or returns an empty one without a path. Raises CommandFailure."""
        try:
            if path is None:
                return cls(None, b"")
            with open(path, "rb") as file:
                return cls(path, file.read())
        except OSError as error:
            raise CommandFailure(f"{path}: {error.strerror}", USAGE_ERROR) from None

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Turns a ConfigError in the block into a CommandFailure, which names the file if a line is wrong."""
        try:
            yield
        except ConfigError as error:
            raise CommandFailure(f"{self.path}: {error}" if error.line else str(error), USAGE_ERROR) from None

    def warnings(self) -> list[str]:
        """Returns a warning if the file has secrets and other users of this machine can read it."""
        if self.path is None or (SECRET_KEYS | TLS_SECRET_KEYS).isdisjoint(self.keys()):
            return []
        found = exposure(SystemDisk(), self.path)
        return [f"{self.path} has secrets and {found}"] if found else []

    def keys(self) -> set[str]:
        with self.blamed():
            return {entry.key for entry in parse_properties(self.text)}


def edited(text: bytes, changes: Mapping[str, str]) -> bytes:
    """Returns the text of a configuration file with some keys changed; all other lines stay as they are."""
    lines = text.splitlines(keepends=True)
    entries = parse_properties(text)
    begins = [entry.line for entry in entries]
    left = dict(changes)
    for entry in reversed(
        entries
    ):  # the last one of a key counts: it is changed, those before it are removed
        if entry.key not in changes:
            continue
        end = entry.line
        while _goes_on(lines[end - 1]) and end < len(lines) and end + 1 not in begins:
            end += 1
        new = pack_properties({entry.key: left.pop(entry.key)}) if entry.key in left else b""
        lines[entry.line - 1 : end] = [new]
    if left and lines and not lines[-1].endswith((b"\n", b"\r")):
        lines.append(b"\n")
    return b"".join([*lines, pack_properties(left)])


def _goes_on(line: bytes) -> bool:
    stripped = line.rstrip(b"\r\n")
    return (len(stripped) - len(stripped.rstrip(b"\\"))) % 2 == 1


def change_file(path: str, changes: Mapping[str, str]) -> str:
    """Changes some keys of a file, atomically; returns the path of the copy of the old file beside it."""
    with open(path, "rb") as file:
        text = file.read()
    number, kept = 1, f"{path}.old"
    while os.path.exists(kept):
        number += 1
        kept = f"{path}.old.{number}"
    shutil.copy2(path, kept)
    unfinished = f"{path}.new"
    with open(unfinished, "wb") as file:
        file.write(edited(text, changes))
        file.flush()
        os.fsync(file.fileno())
    shutil.copystat(path, unfinished)
    os.replace(unfinished, path)
    return kept
