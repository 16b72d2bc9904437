"""The API reference is what the script writes of today's signatures and docstrings."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import turbopump
import turbopump.errors
import turbopump.testing

ROOT = Path(__file__).parents[3]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("api_page")


def test_the_reference_is_current(script: ModuleType) -> None:
    for path, text in script.pages().items():
        assert path.read_text() == text, f"{path.name}: run python scripts/api_page.py"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("client", [name for name in turbopump.__all__ if name not in ("aio", "errors")]),
        ("errors", turbopump.errors.__all__),
        ("testing", turbopump.testing.__all__),
    ],
)
def test_every_public_name_has_an_entry(page: str, names: list[str]) -> None:
    headings = re.findall(r"^## `(\w+)`$", (ROOT / f"docs/api/{page}.md").read_text(), re.MULTILINE)
    assert set(names) <= set(headings)


def test_no_entry_shows_an_address_of_this_process() -> None:
    for path in (ROOT / "docs/api").glob("*.md"):
        assert " at 0x" not in path.read_text(), path.name


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (lambda first, *, second=1: None, "f(first, *, second=1)"),
        (lambda *all, last: None, "f(*all, last)"),
        (lambda **rest: None, "f(**rest)"),
    ],
)
def test_a_signature_is_written_as_python_reads_it(
    script: ModuleType, function: Callable[..., None], shown: str
) -> None:
    assert script.signature("f", function) == f"```python\n{shown}\n```\n"
