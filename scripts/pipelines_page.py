"""Writes docs/pipeline-options.md from the tables of options that the formats themselves use.

Run `python scripts/pipelines_page.py` after a change of a table, where PySpark is installed, as after
`make test-spark`: some tables are in modules that need it. A unit test fails when the page is not current.
"""

import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from turbopump import pipelines
from turbopump.pipelines.credentials import CREDENTIALS
from turbopump.pipelines.options import EARLIEST, FormatOption

PAGE = Path(__file__).parents[1] / "docs" / "pipeline-options.md"

HEAD = """\
# Options of the Spark formats

<!-- Written by scripts/pipelines_page.py; change the tables in src/turbopump/pipelines, not this page. -->

Names are those of Spark's Kafka connector where it has one. Case does not matter. An unknown option is an
error that names the most similar one. [Topics in Spark](pipelines.md) explains how to use them.
"""
TITLES = {
    "turbopump.pipelines.source.settings.OPTIONS": "Format `rocketmq`: reading",
    "turbopump.pipelines.sink.settings.SINK": "Format `rocketmq`: writing",
    "turbopump.pipelines.log.options.TABLE": "Format `rocketmq-log`: reading",
    "turbopump.pipelines.lake.spark.TABLE": "Format `rocketmq-delta`: reading",
    "turbopump.pipelines.lake.spark.LAKE": "Format `rocketmq-delta`: writing",
}
TABLE = """
## {title}

| option | also | default | what it is |
|---|---|---|---|
"""


def sections() -> dict[str, str]:
    """By module and name, those whose module can be imported here. A table is shown once."""
    found = dict(_tables())
    order = [*(name for name in TITLES if name in found), *sorted(found.keys() - TITLES.keys())]
    return {name: _section(TITLES.get(name, f"`{name}`"), found[name]) for name in order}


def _tables() -> Iterator[tuple[str, tuple[FormatOption, ...]]]:
    seen: list[tuple[FormatOption, ...]] = [CREDENTIALS]  # part of other tables
    for found in pkgutil.walk_packages(pipelines.__path__, f"{pipelines.__name__}."):
        try:
            module = import_module(found.name)
        except ImportError:  # Spark, Delta: not everywhere
            continue
        for name, value in vars(module).items():
            if _is_table(value) and not any(value is other for other in seen):
                seen.append(value)
                yield _home(f"{found.name}.{name}", value), value


def _home(name: str, table: tuple[FormatOption, ...]) -> str:
    """Where a table is made: modules that import it have it too, under the same name."""
    for title in TITLES:
        module, _, word = title.rpartition(".")
        if module in sys.modules and getattr(sys.modules[module], word, None) is table:
            return title
    return name


def _is_table(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(one, FormatOption) for one in value)


def _section(title: str, table: tuple[FormatOption, ...]) -> str:
    rows = [
        f"| `{one.name}` | {', '.join(f'`{word}`' for word in one.aliases)} | {_default(one.default)} | "
        f"{one.help.replace('|', chr(92) + '|')} |\n"
        for one in table
    ]
    return TABLE.format(title=title) + "".join(rows)


def _default(value: Any) -> str:
    if value is None or value in ("", (), frozenset()):
        return ""
    if hasattr(value, "default") and hasattr(value, "of"):  # positions in a log
        return "`earliest`" if value.default == EARLIEST else "`latest`"
    if isinstance(value, float):
        return f"`{value:g}s`"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`"


def main() -> None:
    found = sections()
    if missing := [name for name in TITLES if name not in found]:
        sys.exit(f"not written: {', '.join(missing)} need PySpark: `make .venv/.spark`")
    PAGE.write_text(HEAD + "".join(found.values()))


if __name__ == "__main__":
    main()
