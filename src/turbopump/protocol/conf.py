"""Java `.properties` text: configuration files, and the bodies of the requests that read or change one.

In: bytes. Out: entries with their line numbers, so that the caller, which knows the keys, can name the line
of a bad one. The meaning of keys never belongs here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_CONF_BYTES = 1 << 20

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PACK_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})


class ConfigError(Exception):
    """Raised for configuration that cannot be used; says the place and what would be accepted."""

    def __init__(self, message: str, key: str = "", line: int = 0) -> None:
        self.message = message
        self.key = key
        self.line = line
        place = ": ".join(part for part in (f"line {line}" if line else "", key) if part)
        super().__init__(f"{place}: {message}" if place else message)


@dataclass(frozen=True, slots=True)
class ConfEntry:
    """One key with its value and line number."""

    key: str
    value: str
    line: int


def parse_properties(text: bytes | str) -> list[ConfEntry]:
    """Parses all entries in their order; a key that is set twice occurs twice. Raises only ConfigError.

    Text is UTF-8; bytes that are not UTF-8 are read as Latin-1, as Java reads them.
    """
    if len(text) > MAX_CONF_BYTES:
        raise ConfigError(f"configuration must have at most {MAX_CONF_BYTES} bytes, got {len(text)}")
    if isinstance(text, bytes):
        text = _decode(text)
    return [_entry(logical, number) for number, logical in _logical_lines(text)]


def pack_properties(values: Mapping[str, str]) -> bytes:
    lines = [f"{_pack_key(key)}={_pack_value(value)}\n" for key, value in values.items()]
    return "".join(lines).encode()


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line number, text) without comments and blank lines; joins lines that end in a backslash.

    An even number of backslashes at the end does not join.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    index = 0
    while index < len(lines):
        number = index + 1
        line = lines[index].lstrip(_BLANKS)
        index += 1
        if not line or line[0] in "#!":
            continue
        parts = []
        while _continues(line):
            parts.append(line[:-1])
            line = lines[index].lstrip(_BLANKS) if index < len(lines) else ""
            index += 1
        parts.append(line)
        yield number, "".join(parts)


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(logical: str, line: int) -> ConfEntry:
    end = _key_end(logical)
    rest = logical[end:].lstrip(_BLANKS)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANKS)
    key = _unescape(logical[:end], line)
    return ConfEntry(key, _unescape(rest, line), line)


def _key_end(logical: str) -> int:
    escaped = False
    for position, char in enumerate(logical):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "=: \t\f":
            return position
    return len(logical)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append("" if char == "\\" else char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            out.append(_code_unit(text[position : position + 4], line))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return _join_surrogates("".join(out))


def _code_unit(digits: str, line: int) -> str:
    if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(f"\\u must be followed by four hexadecimal digits, got {digits!r}", line=line)
    return chr(int(digits, 16))


def _join_surrogates(text: str) -> str:
    """Joins two escapes that encode one character, as in Java; a lone surrogate becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _pack_key(key: str) -> str:
    packed = key.translate(_PACK_ESCAPES)
    for char in "=: ":
        packed = packed.replace(char, "\\" + char)
    return "\\" + packed if packed[:1] in ("#", "!") else packed


def _pack_value(value: str) -> str:
    packed = value.translate(_PACK_ESCAPES)
    return "\\" + packed if packed.startswith(" ") else packed
