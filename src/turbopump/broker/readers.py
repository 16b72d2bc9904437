"""Parses the texts of configuration values, and describes the texts that are accepted."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turbopump.protocol.addresses import MAX_PORT, has_host_and_port, split_list


class NotAccepted(Exception):
    """Raised by a `ValueReader` for a text that it does not accept; the caller adds key and line."""


@dataclass(frozen=True, slots=True)
class ValueReader:
    """Parses the text of a setting (`read`, may raise NotAccepted) and formats its value (`show`).

    `accepts` describes the texts that are accepted: it completes "must be …". The text of a secret setting is
    in no error.
    """

    accepts: str
    read: Callable[[str], Any]
    show: Callable[[Any], str] = str
    is_secret: bool = False


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise NotAccepted
    return lowered == "true"


BOOLEAN = ValueReader("true or false", _boolean, lambda value: "true" if value else "false")
TEXT = ValueReader("text", str)


def integer(low: int, high: int, meaning: str = "") -> ValueReader:
    """Returns a reader of whole numbers from `low` to `high`, both included."""

    def read(text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and low <= int(text) <= high):
            raise NotAccepted
        return int(text)

    return ValueReader(f"{meaning or 'a whole number'} from {low} to {high}", read)


def choice(*values: str) -> ValueReader:
    """Returns a reader that accepts one of `values` in any case and gives it as it is spelt there."""

    def read(text: str) -> str:
        for value in values:
            if text.upper() == value.upper():
                return value
        raise NotAccepted

    return ValueReader(" or ".join(values), read)


def _name(text: str) -> str:
    known = text.isascii() and all(char.isalnum() or char in "%|_-." for char in text)
    if not text or len(text) > 127 or not known:
        raise NotAccepted
    return text


NAME = ValueReader("letters, digits, _ - . % and |, at most 127", _name)


def _host(text: str) -> str:
    if not text or any(char.isspace() or char in ";,/" for char in text):
        raise NotAccepted
    return text


HOST = ValueReader("an IP address or host name", _host)
OPTIONAL_HOST = ValueReader(
    "an IP address or host name, or nothing", lambda text: _host(text) if text else ""
)


def _addresses(text: str) -> tuple[str, ...]:
    addresses = split_list(text)
    if not all(map(has_host_and_port, addresses)):
        raise NotAccepted
    return addresses


ADDRESSES = ValueReader("host:port, several separated by ;", _addresses, ";".join)


def _optional_address(text: str) -> str:
    if text and not has_host_and_port(text):
        raise NotAccepted
    return text


OPTIONAL_ADDRESS = ValueReader("host:port, or nothing", _optional_address)


def _hours(text: str) -> str:
    parts = [part.strip() for part in text.split(";")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 2 and int(part) < 24 for part in parts):
        raise NotAccepted
    return ";".join(f"{int(part):02d}" for part in parts)


HOURS = ValueReader("hours from 00 to 23, several separated by ;", _hours)


def _directory(text: str) -> str:
    if "," in text:
        raise NotAccepted
    return text


def _root(text: str) -> str:
    if not text:
        raise NotAccepted
    return _directory(text)


def _delay_levels(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}[smhd]( [0-9]{1,9}[smhd])*", text):
        raise NotAccepted
    return text


DELAY_LEVELS = ValueReader("times such as 1s 5m 2h 1d, separated by one space", _delay_levels)
DIRECTORY = ValueReader("one directory", _directory)
ROOT_DIRECTORY = ValueReader("one directory", _root)


def _labels(text: str) -> tuple[str, ...]:
    labels = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*:[^:]*", label) for label in labels):
        raise NotAccepted
    return labels


LABELS = ValueReader("name:value, several separated by ,", _labels, ",".join)
KEYS = ValueReader(
    "keys, several separated by ;",
    lambda text: tuple(part.strip() for part in text.split(";") if part.strip()),
    ";".join,
)

PORT = integer(0, MAX_PORT, "a port")
MILLISECONDS = integer(0, 2**63 - 1, "milliseconds")
COUNT = integer(1, 2**31 - 1)
INTERVAL = integer(1, 2**31 - 1, "milliseconds")
PERCENT = integer(1, 100, "percent")
PERCENT_OR_NONE = integer(0, 100, "percent")


def _precision(text: str) -> int:
    """Returns the greatest of 100, 200, 500, 1000 ms that is not above the text's number; at least 100."""
    asked = INTERVAL.read(text)
    return max([known for known in (100, 200, 500, 1000) if known <= asked], default=100)


PRECISION = ValueReader("100, 200, 500 or 1000 milliseconds", _precision)
