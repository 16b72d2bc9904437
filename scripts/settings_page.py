"""Writes docs/settings.md from the tables of client/settings.py.

Run `python scripts/settings_page.py` after a change of the tables. A unit test fails when the page is not
current.
"""

import dataclasses
from pathlib import Path
from typing import get_type_hints

from turbopump.client import settings
from turbopump.client.signature import default_text
from turbopump.client.times import Time

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

HEAD = """\
# Settings of the clients

<!-- Written by scripts/settings_page.py; change src/turbopump/client/settings.py, not this page. -->

Every setting is a keyword argument of the client, in Python's spelling of Apache's name:

```python
Producer("orders", name_servers="127.0.0.1:9876", send_msg_timeout=5, compress_type="ZSTD")
```

Durations are seconds and sizes are bytes, also where Apache uses milliseconds, minutes or mebibytes. A
value out of its bounds, an unknown name, and a number of seconds that looks like milliseconds raise
`InvalidArgument`, whose text says what to write.

A setting that is not passed to a client comes from, in this order:

1. `turbopump.configure(send_msg_timeout=5)`, for all clients made after it in this process,
2. the table `[client]` of the file that `TURBOPUMP_CONFIG` names, or of `~/.turbopump.toml`,
3. the defaults below, which are Apache's unless a reason is given.

`name_servers` comes from the same places, then from `NAMESRV_ADDR`, then from the HTTP endpoint at
`name_server_domain` if that is set, which is asked again every two minutes. The default is 127.0.0.1:9876.
"""

SECTIONS = (
    ("All clients", settings.ClientSettings, settings.ClientSettings),
    ("Producer", settings.ProducerSettings, settings.ClientSettings),
    ("Consumer and PullConsumer", settings.ReadingSettings, settings.ClientSettings),
    ("Consumer", settings.ConsumerSettings, settings.ReadingSettings),
    ("PullConsumer", settings.PullSettings, settings.ReadingSettings),
)

TABLE = """
## {title}

| keyword | Apache's name | type | default | bounds | what it is |
|---|---|---|---|---|---|
"""

NOT_NEEDED = """
## Apache's settings that are not needed here

As a keyword argument, one of these is refused with its reason.

| Apache's name | why |
|---|---|
"""

NOT_OFFERED = """
## Apache's settings that are not offered

| Apache's name | why |
|---|---|
"""


def page() -> str:
    parts = [HEAD]
    for title, kind, base in SECTIONS:
        parts.append(TABLE.format(title=title))
        inherited = {field.name for field in dataclasses.fields(base)} if kind is not base else set()
        parts += [row(kind, field) for field in dataclasses.fields(kind) if field.name not in inherited]
    parts.append(NOT_NEEDED)
    parts += [f"| `{name}` | {why} |\n" for name, why in settings.NOT_NEEDED.items()]
    parts.append(NOT_OFFERED)
    parts += [f"| `{name}` | {why} |\n" for name, why in settings.NOT_OFFERED.items()]
    return "".join(parts)


def row(kind: type[settings.ClientSettings], field: "dataclasses.Field[object]") -> str:
    about = field.metadata
    cells = (
        f"`{field.name}`",
        f"`{about['java']}`" if about["java"] else "",
        type_text(get_type_hints(kind)[field.name]),
        f"`{readable(field.default)}`",
        bounds(about["low"], about["high"]),
        about["doc"],
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def type_text(hint: object) -> str:
    if hint == settings.Strategy:
        return "strategy"
    if hint == Time | None:
        return "Time | None"
    return hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)


def readable(default: object) -> str:
    """Returns a default as text, with sizes as a product."""
    if isinstance(default, int) and not isinstance(default, bool) and default >= 1 << 16:
        for power, factor in ((20, "1024 * 1024"), (10, "1024")):
            if default % (1 << power) == 0:
                return f"{default >> power} * {factor}"
    return default_text(default)


def bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return ""
    return f"≥ {low:g}" if high is None else f"{low:g} – {high:g}"


if __name__ == "__main__":
    PAGE.write_text(page())
