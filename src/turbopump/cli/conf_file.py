"""A configuration file given to a command: its text, and error lines that name its place."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.protocol.conf import ConfigError, parse_properties


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

    def keys(self) -> set[str]:
        with self.blamed():
            return {entry.key for entry in parse_properties(self.text)}
