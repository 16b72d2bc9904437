"""Writes docs/api/*.md: public classes and functions with their signatures and docstrings.

Run `python scripts/api_page.py` after a change of a public signature or docstring. A unit test fails when a
page is not current. Signatures are read from the imported classes, since those of the clients are built
from the table of settings.
"""

import ast
import dataclasses
import enum
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from turbopump.client.settings import ConsumerSettings, ProducerSettings, PullSettings

FOLDER = Path(__file__).parents[1] / "docs" / "api"
WIDTH = 100

SETTINGS = {
    field.name
    for kind in (ProducerSettings, ConsumerSettings, PullSettings)
    for field in dataclasses.fields(kind)
}
"""Keywords of the clients that have a row in docs/settings.md; here they are `**settings`."""
SETTINGS_LIST = "\n\nSettings; durations are seconds"

Page = tuple[str, str, tuple[str, ...]]

PAGES: dict[str, Page] = {
    "client": (
        "turbopump",
        "The blocking clients. [The Python client](../client.md) explains them with examples.",
        (
            *("Producer", "Consumer", "PullConsumer", "Admin", "Message", "MessageExt", "MessageQueue"),
            *("SendResult", "SendStatus", "Decision", "TransactionResult", "RetryLater", "ConsumeStatus"),
            *("ConsumeFromWhere", "MessageModel", "AccessChannel", "configure", "read_log"),
            *("selectors", "strategies"),
        ),
    ),
    "aio": (
        "turbopump.aio",
        "The clients for asyncio. All other names of [turbopump](client.md) are here too.",
        ("Producer", "Consumer", "PullConsumer", "Admin"),
    ),
    "errors": ("turbopump.errors", "What the clients raise.", ()),
    "testing": (
        "turbopump.testing",
        "A cluster in the process of a test. [Testing your code](../testing-your-code.md) explains it.",
        (),
    ),
    "pipelines": (
        "turbopump.pipelines",
        "Topics as Spark tables and streams. [Topics in Spark](../pipelines.md) explains them.",
        ("register", "watch"),
    ),
    "transactions": (
        "turbopump.transactions",
        "[Each effect once](../exactly-once-effects.md) explains these modules, and "
        "[Distributed transactions](../distributed-transactions.md) the fence.",
        ("idempotent", "outbox", "fence"),
    ),
}
"""Page → module, what stands at its top, and the names in their order; without names, those of `__all__`."""


def pages() -> dict[Path, str]:
    return {FOLDER / f"{name}.md": page(*about) for name, about in PAGES.items()}


def page(module_name: str, about: str, names: tuple[str, ...]) -> str:
    module = import_module(module_name)
    head = (
        f"# {module_name}\n\n<!-- Written by scripts/api_page.py; change the docstrings in src/turbopump, "
        f"not this page. -->\n\n{about}\n"
    )
    return head + "".join(entry(name, member(module, name)) for name in names or module.__all__)


def member(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        return import_module(f"{module.__name__}.{name}")


def entry(name: str, value: Any) -> str:
    if isinstance(value, ModuleType):
        return of_module(value)
    if inspect.isclass(value):
        return of_class(name, value)
    return f"\n## `{name}`\n\n{signature(name, value)}{text_of(value)}"


def of_module(module: ModuleType) -> str:
    full = module.__name__
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    parts = [f"\n## `{full.split('.')[-1]}`\n", text_of(module)]
    for name in names:
        value = getattr(module, name)
        if getattr(value, "__module__", "") != full or not callable(value):
            continue
        parts.append(of_class(name, value, "###") if inspect.isclass(value) else of_function(name, value))
    return "".join(parts)


def of_function(name: str, value: Any, kind: str = "") -> str:
    return f"\n### `{name}`\n\n{signature(name, value, kind)}{text_of(value)}"


def of_class(name: str, kind: type, level: str = "##") -> str:
    if issubclass(kind, enum.Enum):
        values = "".join(f"- `{value.name}` = `{value.value!r}`\n" for value in kind)
        return f"\n{level} `{name}`\n{text_of(kind)}\n{values}"
    head = f"\n{level} `{name}`\n"
    if code := getattr(kind, "CODE", None):
        head += f"\nA `Refused` with the code {int(code)}, `{code.name}`.\n"
    elif issubclass(kind, BaseException):
        head += f"\nA subclass of {', '.join(f'`{base.__name__}`' for base in kind.__bases__)}.\n"
    parts = [head, "" if issubclass(kind, BaseException) else "\n" + signature(name, kind), text_of(kind)]
    parts += [f"\n- `{field}`: {told}\n" for field, told in fields(kind)]
    parts += [_member(f"{name}.{key}", value) for key, value in members(kind)]
    return "".join(parts)


def _member(name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"\n### `{name}`\n" + text_of(value.fget)
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    word = {classmethod: "classmethod ", staticmethod: "staticmethod "}.get(type(value), "")
    return f"\n### `{name}`\n\n{signature(name.split('.')[-1], function, word)}{text_of(function)}"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, those of bases in this package too, in the order of their source."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("turbopump") or (
            issubclass(base, BaseException) and base is not kind
        ):
            continue
        for name, value in vars(base).items():
            is_method = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if name.startswith("_") or name in seen or not is_method:
                continue
            seen.add(name)
            yield name, value


def fields(kind: type) -> list[tuple[str, str]]:
    """Fields of a class that have a docstring of their own below them."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return []
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = []
    for field, below in itertools.pairwise(body):
        if not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)):
            continue
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            found.append((field.target.id, plain(" ".join(str(below.value.value).split()))))
    return [(name, told) for name, told in found if not name.startswith("_")]


def signature(name: str, value: Any, kind: str = "") -> str:
    try:
        shape = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = list(shape.parameters.values())
    if "self" in shape.parameters or kind == "classmethod ":
        parameters = parameters[1:]
    marks = list(marked(parameters))
    returned = ""
    if not inspect.isclass(value) and shape.return_annotation is not inspect.Signature.empty:
        returned = f" -> {annotation(shape.return_annotation)}"
    word = "async " if inspect.iscoroutinefunction(value) else ""
    line = f"{word}{name}({', '.join(marks)}){returned}"
    if len(line) > WIDTH:
        line = f"{word}{name}(\n" + "".join(f"    {mark},\n" for mark in marks) + f"){returned}"
    return f"```python\n{line}\n```\n"


def marked(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """The parameters as they are written, with `*` before those that must be named; settings as one."""
    starred = False
    settings = [one for one in parameters if one.name in SETTINGS and one.kind is one.KEYWORD_ONLY]
    has_settings = len(settings) > 10
    for one in parameters:
        if has_settings and one in settings:
            continue
        if one.kind is one.VAR_POSITIONAL:
            starred = True
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield parameter(one)
    if has_settings:
        yield "**settings"


def parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    kind = "" if one.annotation is one.empty else f": {annotation(one.annotation)}"
    equals = " = " if kind else "="
    default = "" if one.default is one.empty else f"{equals}{default_text(one.default)}"
    return f"{stars}{one.name}{kind}{default}"


def default_text(default: object) -> str:
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    text = getattr(default, "__name__", None) or repr(default)
    return "..." if " at 0x" in text or "object" in text else text


def annotation(hint: object) -> str:
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    return re.sub(
        r"\b(?:turbopump|collections|typing|concurrent|asyncio|pathlib)(?:\.\w+)*\.(\w+)", r"\1", text
    )


def text_of(value: Any) -> str:
    own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    if not own or (inspect.isclass(value) and own.startswith(f"{value.__name__}(")):
        return ""
    told, _, listed = inspect.cleandoc(own).partition(SETTINGS_LIST)
    link = "\n\nAll settings: [Settings of the clients](../settings.md)." if listed else ""
    return f"\n{plain(told)}{link}\n"


def plain(text: str) -> str:
    """A docstring as Markdown: what looks like HTML is text."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else piece.replace("<", "&lt;") for piece in pieces)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)
