"""Reads `tools.yml`, the file with the credentials of Apache's mqadmin: two keys, each in a line of its own.

    accessKey: rocketmq2
    secretKey: "12345678"

In: text. Out: credentials. The file is flat, so a full reader of YAML is not needed: what such a reader could
take for something else than the text that stands there is refused, and must be quoted.
"""

import re

from turbopump.auth.signature import Credentials

LINE = re.compile(r"(?P<key>[A-Za-z_][\w.-]*)\s*:(?:\s+(?P<value>.*?))?\s*\Z")
QUOTED = re.compile(r"""(?:"(?P<double>[^"\\]*)"|'(?P<single>(?:[^']|'')*)')\s*(?:#.*)?\Z""")
PLAIN = re.compile(
    r"(?P<plain>0|[1-9][0-9]*"  # a number, whose digits are the text
    r"|[1-9][A-Za-z0-9]*[A-DF-Za-df-z][A-Za-z0-9]*"  # cannot be a number, a date or a time
    r"|[A-Za-z][\w.@/+=$-]*)(?:\s+#.*)?\Z",
    re.ASCII,
)
NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
NAMES = ("accessKey", "secretKey")


class BadToolsFile(ValueError):
    """The file cannot be used; the text has the line, and never what stands in it."""


def tools_credentials(text: str) -> Credentials | None:
    """Returns the credentials of a `tools.yml`; None if it has neither key, or both are empty.

    Raises BadToolsFile.
    """
    found = dict(_entries(text))
    access_key, secret_key = (found.get(name, "") for name in NAMES)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise BadToolsFile(f"{NAMES[1 if access_key else 0]} is missing")
    return Credentials(access_key, secret_key)


def _entries(text: str) -> list[tuple[str, str]]:
    lines = [line.rstrip("\r") for line in text.lstrip("\ufeff").split("\n")]
    entries: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#") or line.rstrip() == "---":
            continue
        entry = LINE.match(line)
        if entry is None:
            raise BadToolsFile(f"line {number}: must be `key: value`")
        entries.append((entry["key"], _value(entry["value"] or "", entry["key"], number)))
    return entries


def _value(text: str, key: str, number: int) -> str:
    if not text or text.startswith("#"):
        return ""
    quoted = QUOTED.match(text)
    if quoted is not None:
        single = quoted["single"]
        return quoted["double"] if single is None else single.replace("''", "'")
    plain = PLAIN.match(text)
    if plain is None or plain["plain"].lower() in NOT_TEXT:
        raise BadToolsFile(f'line {number}: the value of {key} must be in quotes, such as {key}: "name"')
    return plain["plain"]
