"""Reads the arguments of a job: flags of a command line or keys of a small TOML file, by one table.

    job = "archive"
    from = "topic:OrderTopic"
    to = "delta:lake/orders"

    [options]        # of the source, by its own names
    tags = "paid"

Flags override the file. A word that the job does not know is an error that names the nearest one.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from turbopump.pipelines.refusals import DISTANT, nearest, refusal
from turbopump.runtime.clock import Clock
from turbopump.runtime.times import format_time, parse_time


class BadSpec(ValueError):
    """The arguments of a job are wrong; the text says what must be given."""


@dataclass(frozen=True, slots=True)
class TypedTime:
    """A point in time in ms, and the text it was given as, such as `1h`, which depends on the clock."""

    text: str
    ms: int

    def __str__(self) -> str:
        return self.text

    def with_zone(self) -> str:
        """Formats the time with its zone, so that a person sees which zone was used."""
        return format_time(self.ms)


@dataclass(frozen=True, slots=True)
class JobFlag:
    """One flag of a job; `read` converts its text or raises ValueError, and is None for a switch."""

    name: str
    help: str
    read: Callable[[str], Any] | None = str
    default: Any = None
    metavar: str | None = None
    is_pairs: bool = False  # KEY=VALUE, may be repeated; a table in the file
    is_list: bool = False  # separated by commas
    is_time: bool = False  # read as a time: `read` is not used

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")


Given = Mapping[str, Any]
"""Key of a flag → its value, for every flag of the job."""


def read_file(text: str, where: str) -> dict[str, Any]:
    """Parses the text of a job's TOML file; `where` names the file in errors. Raises BadSpec."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSpec(f"{where} must be TOML: {error}") from None


def given_by(
    flags: Iterable[JobFlag], file: Mapping[str, Any], line: Mapping[str, Any], job: str, clock: Clock
) -> Given:
    """Returns each flag's value by its key: from the command line, else the file, else its default.

    Raises BadSpec. `line` has texts by key, None for a flag that was not given. `clock` is for times such as
    `10m`, which is ten minutes ago.
    """
    now_ms = clock.now_ms()
    known = {flag.key: flag for flag in flags}
    named = {word.replace("-", "_"): value for word, value in file.items() if word != "job"}
    for word in named:
        if word not in known:
            raise BadSpec(_unknown(word, known, job))
    return {key: _value(flag, line.get(key), named.get(key), now_ms) for key, flag in known.items()}


def _value(flag: JobFlag, typed: Any, filed: Any, now_ms: int) -> Any:
    if flag.is_pairs:
        return _pairs(flag, filed or {}, typed or ())
    found = filed if typed is None else typed
    if found is None:
        return flag.default
    if flag.read is None:
        return _switch(flag, found)
    texts = found if isinstance(found, list) else [found]
    if flag.is_list and isinstance(found, str):
        texts = [part.strip() for part in found.split(",") if part.strip()]
    read = partial(_time, now_ms, is_typed=typed is not None) if flag.is_time else flag.read
    values = [_read(flag, read, text) for text in texts]
    return tuple(values) if flag.is_list else values[0]


def _time(now_ms: int, text: str, *, is_typed: bool) -> TypedTime:
    """Reads a time; one without a zone is local time if a person typed it, and an error in a file."""
    return TypedTime(text, parse_time(text, now_ms, local=is_typed))


def _read(flag: JobFlag, read: Callable[[str], Any], found: Any) -> Any:
    try:
        return read(str(found))
    except ValueError as error:
        raise BadSpec(refusal(flag.name, str(found), error)) from None


def _switch(flag: JobFlag, found: Any) -> bool:
    if not isinstance(found, bool):
        raise BadSpec(f"{flag.name} must be true or false, got {found!r}")
    return found


def _pairs(flag: JobFlag, filed: Any, typed: Iterable[str]) -> dict[str, str]:
    if not isinstance(filed, dict):
        raise BadSpec(f"{flag.name} must be a table, got {filed!r}: write [{flag.name}] and a line for each")
    found = {str(name): _plain(value) for name, value in filed.items()}
    for pair in typed:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadSpec(f"{flag.name} must be NAME=VALUE, got {pair!r}")
        found[name] = value
    return found


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unknown(word: str, known: Mapping[str, JobFlag], job: str) -> str:
    names = {key: flag.name for key, flag in known.items()}
    hint = nearest(word, names, f"there are {', '.join(names.values())}", DISTANT)
    return f"job {job} has no {word!r}: {hint}"
