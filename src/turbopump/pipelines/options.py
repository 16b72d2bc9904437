"""Options of the Spark formats: Spark's strings in, typed values out.

Names are those of Spark's Kafka connector where it has one, with RocketMQ's own as aliases; case does not
matter, since Spark does not keep it. An unknown option is an error that names the nearest known one: ignoring
a misspelt option would return the wrong rows. Each format declares its options in one table of
`FormatOption`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from turbopump.client.discovery import addresses
from turbopump.client.errors import InvalidArgument
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.times import parse_time

SPARKS_OWN = frozenset({"checkpointlocation", "path", "queryname"})  # come with ours, and are not for us
TABLE_PREFIX, TABLE_MARK, LOCATION = "option.", "provider", "location"  # of tables in Spark's catalog
NO_VERSION = "option txnVersion is for batches: a stream numbers its batches by itself; drop the option"


class BadOption(ValueError):
    """An option that is unknown, missing, unreadable, or at odds with another; the text has the fix."""


@dataclass(frozen=True, slots=True)
class FormatOption:
    """One option: `read` makes its value of the text, and raises ValueError with what it wants."""

    name: str
    read: Callable[[str], Any]
    default: Any = None
    aliases: tuple[str, ...] = ()
    help: str = ""


class FormatOptions:
    """What was given, by the names of the table; all that was not given has its default."""

    def __init__(self, table: Iterable[FormatOption], given: Mapping[str, str], format: str) -> None:
        self._values: dict[str, Any] = {}
        self._given: dict[str, str] = {}
        known = {word.lower(): option for option in table for word in (option.name, *option.aliases)}
        for option in known.values():
            self._values[option.name] = option.default
        for word, text in given.items():
            self._take(word, text, known, format)

    def _take(self, word: str, text: str, known: Mapping[str, FormatOption], format: str) -> None:
        option = known.get(word.lower())
        if option is None:
            if word.lower() not in SPARKS_OWN:
                raise BadOption(_unknown(word, known, format))
            return
        if option.name in self._given:
            raise BadOption(f"options {self._given[option.name]!r} and {word!r} say the same thing: give one")
        self._given[option.name] = word
        try:
            self._values[option.name] = option.read(text)
        except ValueError as error:
            raise BadOption(f"option {word}={text!r}: {error}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def is_given(self, name: str) -> bool:
        return name in self._given

    def need(self, name: str, hint: str) -> Any:
        if name not in self._given:
            raise BadOption(f"option {name} is missing: {hint}")
        return self._values[name]

    def one_of(self, *names: str, hint: str) -> str:
        """The one of these that was given; more or less than one is an error."""
        found = [name for name in names if name in self._given]
        if len(found) != 1:
            count = "none is given" if not found else f"{' and '.join(found)} are given"
            raise BadOption(f"give one of {', '.join(names)}; {count}: {hint}")
        return found[0]


def is_of_table(given: Mapping[str, str]) -> bool:
    """Whether these come from CREATE TABLE: Spark adds all that it knows of the table."""
    return TABLE_MARK in given


def own_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a statement without what Spark adds: of CREATE TABLE those with the prefix `option.`,
    and the location as `path`; properties of the table are for people. Names are in lower case then.
    """
    if not is_of_table(given):
        return dict(given)
    found = {
        name.removeprefix(TABLE_PREFIX): text for name, text in given.items() if name.startswith(TABLE_PREFIX)
    }
    if LOCATION in given:
        found["path"] = given[LOCATION]
    return found


def local_path(address: str) -> str:
    """A path without the scheme that Spark puts before it: `file:/x`, `file:///x`."""
    return re.sub(r"^file:(//)?(?=/)", "", address)


def version_of(options: FormatOptions) -> int | None:
    """The option txnVersion, which is for batches that have a transactionalId."""
    if options.is_given("txnVersion") and not options.is_given("transactionalId"):
        raise BadOption("option txnVersion numbers batches of a transactionalId: give transactionalId too")
    version: int | None = options["txnVersion"]
    return version


def text(given: str) -> str:
    if not given.strip():
        raise ValueError("is empty")
    return given.strip()


def words(given: str) -> tuple[str, ...]:
    """A list with commas between."""
    found = tuple(word.strip() for word in given.split(",") if word.strip())
    if not found:
        raise ValueError("wants a list with commas between, and is empty")
    return found


def servers(given: str) -> tuple[str, ...]:
    """Addresses of name servers, with `;` or `,` between."""
    try:
        found = addresses(given)
    except InvalidArgument as error:
        raise ValueError(str(error)) from None
    if not found:
        raise ValueError("must be host:port, several with ; between, and is empty")
    return found


def flag(given: str) -> bool:
    if given.strip().lower() not in ("true", "false"):
        raise ValueError("wants true or false")
    return given.strip().lower() == "true"


def count(least: int = 1) -> Callable[[str], int]:
    def read(given: str) -> int:
        try:
            value = int(given)
        except ValueError:
            raise ValueError("wants a whole number") from None
        if value < least:
            raise ValueError(f"wants {least} or more")
        return value

    return read


def time_ms(given: str) -> int:
    """Milliseconds since 1970, ISO 8601 with a time zone, or an age such as `10m`."""
    return parse_time(given, SystemClock().now_ms())


def choice(*among: str) -> Callable[[str], str]:
    def read(given: str) -> str:
        if given.strip().lower() not in among:
            raise ValueError(f"wants one of {', '.join(among)}")
        return given.strip().lower()

    return read


def document(given: str) -> Any:
    try:
        return json.loads(given)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error}") from None


def _unknown(word: str, known: Mapping[str, FormatOption], format: str) -> str:
    near = get_close_matches(word.lower(), known, 1, 0.5)
    names = sorted({option.name for option in known.values()})
    hint = f"did you mean {_spelled(near[0], known[near[0]])}?" if near else f"there are {', '.join(names)}"
    return f"format {format} has no option {word!r}: {hint}"


def _spelled(near: str, option: FormatOption) -> str:
    return next(word for word in (option.name, *option.aliases) if word.lower() == near)
