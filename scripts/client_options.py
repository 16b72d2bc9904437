"""Writes src/turbopump/client/options.py: the settings as keyword arguments that type checkers understand.

Run it after a change of client/settings.py; a unit test fails when the file is not current.
"""

import dataclasses
import sys
from pathlib import Path
from typing import get_type_hints

from turbopump.client import settings
from turbopump.client.times import Time

PATH = Path(__file__).parents[1] / "src/turbopump/client/options.py"

HEAD = '''"""Keyword arguments of the clients. Written by scripts/client_options.py: change settings.py."""

from typing import TypedDict

from turbopump.client.group.rebalance import Strategy
from turbopump.client.settings import AccessChannel, ConsumeFromWhere, LatencyTable, MessageModel
from turbopump.client.times import Time
'''

KINDS = {
    "ClientOptions": (settings.ClientSettings, "TypedDict, total=False"),
    "ProducerOptions": (settings.ProducerSettings, "ClientOptions, total=False"),
    "ReadingOptions": (settings.ReadingSettings, "ClientOptions, total=False"),
    "ConsumerOptions": (settings.ConsumerSettings, "ReadingOptions, total=False"),
    "PullOptions": (settings.PullSettings, "ReadingOptions, total=False"),
}


def text() -> str:
    parts = [HEAD]
    for name, (kind, bases) in KINDS.items():
        own = [field for field in dataclasses.fields(kind) if field.name in kind.__annotations__]
        lines = [f"    {field.name}: {type_text(kind, field.name)}" for field in own]
        parts.append(f'\n\nclass {name}({bases}):\n    """{kind.__doc__}"""\n\n' + "\n".join(lines) + "\n")
    return "".join(parts)


def type_text(kind: type, name: str) -> str:
    hint = get_type_hints(kind)[name]
    if hint == settings.Strategy:
        return "Strategy"
    if hint == Time | None:
        return "Time | None"
    return hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)


if __name__ == "__main__":
    PATH.write_text(text())
    sys.exit(0)
