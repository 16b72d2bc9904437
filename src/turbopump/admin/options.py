"""Typed options of a command: a `CommandOption[int]` is declared once, and `given[option]` is an int.

The syntax is Apache's: `-t orders`, `-torders`, `--topic orders`, `--topic=orders`, `-topic orders`, and any
prefix of a long name that matches one option only. A value that cannot be read raises `UsageError`.
"""

import codecs
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from turbopump.protocol.addresses import split_address

T = TypeVar("T")

TRUE_OR_FALSE = {"true": True, "false": False}


class UsageError(Exception):
    """The command line is wrong; the text is the line to print."""


@dataclass(frozen=True, slots=True, eq=False)
class CommandOption(Generic[T]):
    """One option of a command; made by `required`, `optional`, `defaulting` and `flag`."""

    short: str
    """Short name without dash; empty if there is none."""

    long: str
    help: str
    read: Callable[[str], T]
    default: T | None = None
    is_required: bool = False
    is_flag: bool = False
    is_secret: bool = False
    """Whether its value is in no error."""

    @property
    def shown(self) -> str:
        return f"-{self.short}" if self.short else f"--{self.long}"


def text(word: str) -> str:
    try:
        word.encode()
    except UnicodeEncodeError:  # Python passes invalid bytes of a terminal as lone surrogates
        raise ValueError("text in UTF-8") from None
    return word.strip()


def host_port(word: str) -> str:
    """Returns the word without outer spaces; raises ValueError if it is not `host:port`."""
    try:
        split_address(word.strip())
    except ValueError:
        raise ValueError("an address host:port") from None
    return word.strip()


def number(word: str) -> int:
    try:
        return int(word.strip())
    except ValueError:
        raise ValueError("a whole number") from None


def boolean(word: str) -> bool:
    found = TRUE_OR_FALSE.get(word.strip().lower())
    if found is None:
        raise ValueError("true or false")
    return found


def charset(word: str) -> str:
    try:
        return codecs.lookup(word.strip()).name
    except LookupError:
        raise ValueError("a character set such as UTF-8 or GBK") from None


def choice(*words: str) -> Callable[[str], str]:
    def read(word: str) -> str:
        if word.strip() not in words:
            *others, last = words
            raise ValueError(f"{', '.join(others)} or {last}" if others else last)
        return word.strip()

    return read


def pairs_of_changes(word: str) -> dict[str, str]:
    """Reads changes of attributes, `+name=value` to set, `-name` to remove, as name with sign → value."""
    changes = {}
    for part in word.strip().split(","):
        name, _, value = part.strip().partition("=")
        if not name[1:] or name[0] not in "+-" or (name[0] == "+") != ("=" in part):
            raise ValueError("changes such as +a=b,+c=d,-e")
        changes[name] = value
    return changes


def required(short: str, long: str, help: str, read: Callable[[str], T]) -> CommandOption[T]:
    return CommandOption(short, long, help, read, is_required=True)


def secret(short: str, long: str, help: str) -> CommandOption[str]:
    return CommandOption(short, long, help, text, is_required=True, is_secret=True)


def optional(short: str, long: str, help: str, read: Callable[[str], T]) -> CommandOption[T | None]:
    return CommandOption(short, long, help, read)


def defaulting(short: str, long: str, help: str, read: Callable[[str], T], default: T) -> CommandOption[T]:
    return CommandOption(short, long, help, read, default)


def flag(short: str, long: str, help: str) -> CommandOption[bool]:
    return CommandOption(short, long, help, boolean, default=False, is_flag=True)


NAME_SERVERS = optional(
    "n", "namesrvAddr", "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'", text
)
HELP = flag("h", "help", "Print help")
JSON = flag("", "json", "Print one JSON document in place of text; one per line while a command goes on")
CREDENTIALS = optional(
    "",
    "credentials",
    "File with accessKey and secretKey that sign requests: properties, or Apache's tools.yml",
    text,
)
COMMON: tuple[CommandOption[Any], ...] = (HELP, NAME_SERVERS, JSON, CREDENTIALS)


class Given:
    """The option values of one call, by their declaration: `given[TOPIC]`."""

    def __init__(self, values: dict[CommandOption[Any], Any], ignored: Sequence[str] = ()) -> None:
        self._values = values
        self.ignored = tuple(ignored)
        """Words that belong to no option."""

    def __getitem__(self, option: CommandOption[T]) -> T:
        return cast(T, self._values.get(option, option.default))

    def __contains__(self, option: CommandOption[Any]) -> bool:
        return option in self._values


def parse(
    words: Sequence[str],
    options: Sequence[CommandOption[Any]],
    one_of: Sequence[CommandOption[Any]] = (),
    any_of: Sequence[CommandOption[Any]] = (),
) -> Given:
    """Parses options. Of an option given twice the first counts, as in Apache. Raises UsageError."""
    known = _Names((*options, *one_of, *any_of, *COMMON))
    values: dict[CommandOption[Any], Any] = {}
    ignored: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            ignored.append(word)
            continue
        for option, value in known.resolve(word):
            if value is None:
                value = "true" if option.is_flag else _next_value(option, left, known)
            values.setdefault(option, _read(option, value))
    if HELP not in values:
        _check_required(values, options)
        _check_choice(values, one_of, is_exclusive=True)
        _check_choice(values, any_of, is_exclusive=False)
    return Given(values, ignored)


class _Names:
    def __init__(self, options: Sequence[CommandOption[Any]]) -> None:
        self._by_name: dict[str, CommandOption[Any]] = {}
        for option in reversed(options):  # a command's own -n or -h wins over the common one
            self._by_name[option.long] = option
            if option.short:
                self._by_name[option.short] = option

    def resolve(self, word: str) -> list[tuple[CommandOption[Any], str | None]]:
        """Returns the options that a word such as `--topic=T` or `-am` names, each with its value or None."""
        name, has_value, value = word.lstrip("-").partition("=")
        exact = self._by_name.get(name)
        if exact is not None:
            return [(exact, value if has_value else None)]
        if not word.startswith("--"):
            attached = self._attached(word[1:])
            if attached:
                return attached
        begun = {option for long, option in self._by_name.items() if name and long.startswith(name)}
        if len(begun) == 1:
            return [(begun.pop(), value if has_value else None)]
        raise UsageError(f"there is no option {word}" if not begun else f"{word} matches several options")

    def _attached(self, letters: str) -> list[tuple[CommandOption[Any], str | None]]:
        """Splits the letters after a dash: `torders` is -t with a value, `am` two flags; [] if neither."""
        first = self._by_name.get(letters[:1])
        if first is None:
            return []
        if not first.is_flag:
            return [(first, letters[1:])]
        flags = [self._by_name.get(letter) for letter in letters]
        return [(each, None) for each in flags if each] if all(f and f.is_flag for f in flags) else []

    def is_option(self, word: str) -> bool:
        if not word.startswith("-") or _is_number(word):
            return False
        try:
            return bool(self.resolve(word))
        except UsageError:
            return False


def _next_value(option: CommandOption[Any], left: list[str], known: _Names) -> str:
    if not left or known.is_option(left[0]):
        raise UsageError(f"{option.shown} (--{option.long}) needs a value")
    return left.pop(0)


def _read(option: CommandOption[Any], value: str) -> Any:
    try:
        return option.read(value)
    except ValueError as error:
        got = "" if option.is_secret else f", got {value!r}"
        raise UsageError(f"{option.shown} (--{option.long}) must be {error}{got}") from None


def _check_required(values: dict[CommandOption[Any], Any], options: Iterable[CommandOption[Any]]) -> None:
    missing = [option for option in options if option.is_required and option not in values]
    if missing:
        raise UsageError("missing: " + ", ".join(f"{option.shown} (--{option.long})" for option in missing))


def _check_choice(
    values: dict[CommandOption[Any], Any], choice: Sequence[CommandOption[Any]], is_exclusive: bool
) -> None:
    shown = " or ".join(option.shown for option in choice)
    chosen = sum(option in values for option in choice)
    if choice and not chosen:
        raise UsageError(f"missing: {shown}")
    if is_exclusive and chosen > 1:
        raise UsageError(f"only one of {shown} can be given")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
