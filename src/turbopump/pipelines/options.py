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
from typing import Any

from turbopump.client.discovery import addresses
from turbopump.client.errors import InvalidArgument
from turbopump.pipelines.refusals import DISTANT, nearest, refusal
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.times import parse_time

SPARKS_OWN = frozenset({"checkpointlocation", "path", "queryname"})
"""Options of Spark that come along with those of a format, and are ignored."""
TABLE_PREFIX, TABLE_MARK, LOCATION = "option.", "provider", "location"
"""Names by which Spark's catalog passes the options of a table."""
NO_VERSION = "option txnVersion is for batches: a stream numbers its batches by itself; remove the option"
SECOND_BATCH = (
    "Give each batch its number with the option txnVersion (in foreachBatch the batch id): batches up to the "
    "last number written are skipped, later ones are written. Or give another transactionalId"
)
"""What to do when a transactional id without txnVersion writes a second batch."""
EARLIEST, LATEST = -2, -1
"""In the JSON of starting and ending offsets, as with Spark's Kafka connector."""


class BadOption(ValueError):
    """An option is unknown, missing, unreadable, or contradicts another; the text has the fix."""


@dataclass(frozen=True, slots=True)
class FormatOption:
    """One option of a format; `read` converts its text, or raises ValueError that says what it must be."""

    name: str
    read: Callable[[str], Any]
    default: Any = None
    aliases: tuple[str, ...] = ()
    help: str = ""
    is_secret: bool = False
    """Whether its value is in no text."""


class FormatOptions:
    """The values of all options of a format: converted where given, else defaults. Raises BadOption."""

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
            raise BadOption(
                f"options {self._given[option.name]!r} and {word!r} are the same option: give one"
            )
        self._given[option.name] = word
        try:
            self._values[option.name] = option.read(text)
        except ValueError as error:
            shown = "(hidden)" if option.is_secret else text
            raise BadOption(f"option {refusal(word, shown, error)}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def is_given(self, name: str) -> bool:
        return name in self._given

    def need(self, name: str, hint: str) -> Any:
        """Returns the value of an option that must be given. Raises BadOption with the hint."""
        if name not in self._given:
            raise BadOption(f"option {name} is missing: {hint}")
        return self._values[name]

    def one_of(self, *names: str, hint: str) -> str:
        """Returns the one of these names that was given. Raises BadOption for none or several."""
        found = [name for name in names if name in self._given]
        if len(found) != 1:
            count = "none is given" if not found else f"{' and '.join(found)} are given"
            raise BadOption(f"give one of {', '.join(names)}; {count}: {hint}")
        return found[0]


def is_of_table(given: Mapping[str, str]) -> bool:
    """Tells whether the options come from CREATE TABLE, to which Spark adds all it knows of the table."""
    return TABLE_MARK in given


def own_options(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a statement without those that Spark adds.

    For CREATE TABLE these are the ones with the prefix `option.`, and the location as `path`; properties of
    the table are notes for people. Names are in lower case then.
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
    """Returns the path without the scheme that Spark puts before it: `file:/x`, `file:///x`."""
    return re.sub(r"^file:(//)?(?=/)", "", address)


def version_of(options: FormatOptions) -> int | None:
    """Returns option txnVersion, or None. Raises BadOption if it is given without transactionalId."""
    if options.is_given("txnVersion") and not options.is_given("transactionalId"):
        raise BadOption(
            "option txnVersion numbers the batches of a transactionalId: give transactionalId too"
        )
    version: int | None = options["txnVersion"]
    return version


def text(given: str) -> str:
    """Returns the text without outer spaces. Raises ValueError if it is empty."""
    if not given.strip():
        raise ValueError("must not be empty")
    return given.strip()


def words(given: str) -> tuple[str, ...]:
    """Returns the entries of a list separated by commas. Raises ValueError if there are none."""
    found = tuple(word.strip() for word in given.split(",") if word.strip())
    if not found:
        raise ValueError("must be a list separated by commas, with at least one entry")
    return found


def servers(given: str) -> tuple[str, ...]:
    """Returns the addresses of name servers, separated by `;` or `,`. Raises ValueError."""
    try:
        found = addresses(given)
    except InvalidArgument as error:
        raise ValueError(str(error)) from None
    if not found:
        raise ValueError("must be host:port, or several separated by ;")
    return found


def pattern(given: str) -> str:
    """Returns the text if it is a regular expression. Raises ValueError otherwise."""
    try:
        re.compile(given)
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    return given


def flag(given: str) -> bool:
    """Converts `true` or `false`, in any case, to a bool. Raises ValueError for other text."""
    if given.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return given.strip().lower() == "true"


def count(minimum: int = 1) -> Callable[[str], int]:
    """Returns a function that reads a whole number of at least `minimum`, or raises ValueError."""

    def read(given: str) -> int:
        try:
            value = int(given)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if value < minimum:
            raise ValueError(f"must be {minimum} or more")
        return value

    return read


def time_ms(given: str) -> int:
    """Returns ms since 1970 from such a number, ISO 8601 with a time zone, or an age such as `10m`."""
    return parse_time(given, SystemClock().now_ms())


def choice(*among: str) -> Callable[[str], str]:
    """Returns a function that reads one of these words in any case, or raises ValueError."""

    def read(given: str) -> str:
        if given.strip().lower() not in among:
            raise ValueError(f"must be one of {', '.join(among)}")
        return given.strip().lower()

    return read


def document(given: str) -> Any:
    """Returns the value of a JSON document. Raises ValueError."""
    try:
        return json.loads(given)
    except json.JSONDecodeError as error:
        raise ValueError(f"must be JSON ({error})") from None


def _unknown(word: str, known: Mapping[str, FormatOption], format: str) -> str:
    options = known.values()
    spelled = {one.lower(): one for option in options for one in (option.name, *option.aliases)}
    names = sorted({option.name for option in options})
    hint = nearest(word.lower(), spelled, f"there are {', '.join(names)}", DISTANT)
    return f"format {format} has no option {word!r}: {hint}"
