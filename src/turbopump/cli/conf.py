"""A configuration file as a command was given it: its text, and whom to blame for what is wrong in it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from turbopump.cli.failures import ASKED_WRONGLY, Failure
from turbopump.protocol.conf import ConfigError, parse_properties


@dataclass(frozen=True, slots=True)
class ConfFile:
    path: str | None
    text: bytes

    @classmethod
    def read(cls, path: str | None) -> "ConfFile":
        """No path: an empty file."""
        try:
            if path is None:
                return cls(None, b"")
            with open(path, "rb") as file:
                return cls(path, file.read())
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}", ASKED_WRONGLY) from None

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Turns what is wrong in the file, or in flags and environment, into a line for the terminal."""
        try:
            yield
        except ConfigError as error:
            raise Failure(f"{self.path}: {error}" if error.line else str(error), ASKED_WRONGLY) from None

    def keys(self) -> set[str]:
        with self.blamed():
            return {entry.key for entry in parse_properties(self.text)}
