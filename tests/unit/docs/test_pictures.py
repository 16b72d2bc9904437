"""The pictures of the documentation are what the scripts draw, for light and dark pages."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of scripts/."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module


@pytest.mark.parametrize("script", ["diagrams", "charts"])
def test_committed_pictures_are_what_the_script_draws_now(
    load: Callable[[str], ModuleType], script: str
) -> None:
    drawn = load("drawing").files(load(script).drawings())
    assert len(drawn) >= 6
    for path, text in drawn.items():
        assert path.read_text() == text, f"{path.name}: run python scripts/{script}.py"


def test_every_committed_picture_is_drawn_by_a_script(load: Callable[[str], ModuleType]) -> None:
    names = [name for script in ("diagrams", "charts") for name in load(script).drawings()]
    expected = {f"{name}-{theme}.svg" for name in names for theme in ("light", "dark")}
    assert {path.name for path in (ROOT / "docs/pictures").iterdir()} == expected


def test_the_figures_of_the_front_page_are_those_of_the_last_results(
    load: Callable[[str], ModuleType],
) -> None:
    charts = load("charts")
    text = charts.FRONT_PAGE.read_text()
    assert len(charts.FIGURES.findall(text)) == 1
    assert text == charts.front_page(text), "run python scripts/charts.py"


def test_pictures_are_whole_documents_that_load_nothing() -> None:
    for path in (ROOT / "docs/pictures").glob("*.svg"):
        root = ElementTree.fromstring(path.read_text())
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
        assert "<script" not in path.read_text()
        assert re.findall(r"https?://[^\"]+", path.read_text()) == ["http://www.w3.org/2000/svg"]


def test_what_is_drawn_lies_within_the_picture() -> None:
    for path in (ROOT / "docs/pictures").glob("*.svg"):
        root = ElementTree.fromstring(path.read_text())
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for shape in root.iter():
            for name, most in (("x", width), ("x2", width), ("y", height), ("y2", height)):
                assert 0 <= float(shape.attrib.get(name, 0)) <= most, f"{path.name}: {shape.attrib}"


def test_pages_show_each_picture_for_light_and_for_dark(load: Callable[[str], ModuleType]) -> None:
    """The site replaces a `<picture>` by both images; a form that it does not know would stay light."""
    known = load("site_hooks").PICTURE
    shown = 0
    for page in PAGES:
        text = page.read_text()
        for dark, _, light in known.findall(text):
            assert dark.replace("-dark.svg", "-light.svg") == light
            shown += 1
        assert len(known.findall(text)) == text.count("<picture>"), page
    assert shown >= 8


def test_the_site_shows_both_images_of_a_picture_and_long_names_can_wrap(
    load: Callable[[str], ModuleType],
) -> None:
    hooks = load("site_hooks")
    picture = (
        '<p><picture>\n  <source media="(prefers-color-scheme: dark)" srcset="a-dark.svg">\n'
        '  <img alt="x" src="a-light.svg">\n</picture></p>'
    )
    assert hooks.on_page_content(picture) == (
        '<div class="picture"><img alt="x" src="a-light.svg#only-light">'
        '<img alt="x" src="a-dark.svg#only-dark"></div>'
    )
    assert hooks.breakable("store/commit_log.py") == "store/<wbr>commit_<wbr>log.py"
    assert hooks.breakable("short_name") == "short_name"
