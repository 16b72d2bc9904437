"""docs/migrate.md names what exists: methods, attributes, keyword arguments, values."""

import dataclasses
import inspect
import re
from pathlib import Path

import turbopump
import turbopump.aio
from turbopump.client import settings

PAGE = Path(__file__).parents[3] / "docs/migrate.md"

CLASSES = (
    *(turbopump.Producer, turbopump.Consumer, turbopump.PullConsumer, turbopump.Admin),
    *(turbopump.Message, turbopump.MessageExt, turbopump.MessageQueue, turbopump.SendResult),
    *(turbopump.RetryLater, turbopump.ConsumeStatus, turbopump.errors.SendFailed, turbopump.errors.Refused),
)
NAMES = {kind.__name__ for kind in CLASSES} | {
    name for kind in CLASSES for name in (*dir(kind), *getattr(kind, "__annotations__", {}))
}
FUNCTIONS = [
    *(member for kind in CLASSES for _, member in inspect.getmembers(kind, inspect.isfunction)),
    *(turbopump.Message, turbopump.Message.json),
]
KEYWORDS = {name for function in FUNCTIONS for name in inspect.signature(function).parameters} | {
    field.name
    for kind in (settings.ProducerSettings, settings.ConsumerSettings, settings.PullSettings)
    for field in dataclasses.fields(kind)
}
OTHERS = {"f", "add_done_callback", "handle", "lambda", "encode", "get", "code", "tries"}


def right_column() -> list[str]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `") or line.startswith("| ")]
    cells = [re.split(r"(?<!\\)\|", row)[2] for row in rows]
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


def test_methods_of_the_page_exist() -> None:
    called = {name for code in right_column() for name in re.findall(r"(?<![\w\"'])(\w+)\(", code)}
    known = NAMES | OTHERS | set(turbopump.__all__) | set(dir(turbopump.selectors))
    assert len(called) > 30
    assert called <= known, called - known


def test_attributes_of_the_page_exist() -> None:
    asked = {name for code in right_column() for name in re.findall(r"^\.(\w+)|\bmessage\.(\w+)", code)}
    names = {one or other for one, other in asked}
    assert len(names) > 10
    assert names <= NAMES | OTHERS, names - NAMES


def test_keyword_arguments_of_the_page_exist() -> None:
    given = {name for code in right_column() for name in re.findall(r"(?<![.\w])(\w+)=(?!=)", code)}
    assert len(given) > 30
    assert given <= KEYWORDS, given - KEYWORDS


def test_names_of_the_package_exist() -> None:
    for code in right_column():
        for name in re.findall(r"\bturbopump\.(\w+)", code):
            assert name in {*turbopump.__all__, "transactions"}, name
