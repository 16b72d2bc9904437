"""What the documents name exists: tests in the table of deviations, targets, commands, files."""

import importlib.util
import re
from pathlib import Path

import pytest

from turbopump.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
COMPATIBILITY = (ROOT / "docs/compatibility.md").read_text()
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def test_every_row_of_the_table_names_a_test_that_exists() -> None:
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    exist = set(re.findall(r"def (test_\w+)", written))
    rows = [line for line in COMPATIBILITY.splitlines() if re.match(r"\| [CD]\d+ ", line)]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, f"no test in: {row}"
        assert set(named) <= exist, f"no such test: {set(named) - exist}"


def test_rows_are_numbered_without_gaps() -> None:
    for letter in "DC":
        numbers = [int(number) for number in re.findall(rf"^\| {letter}(\d+) ", COMPATIBILITY, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("row", [1, 3, 4, 8, 9, 15, 20, 23, 24, 25, 26, 27])
def test_a_loss_of_data_that_others_have_had_has_a_test_by_its_row(row: int) -> None:
    """Rows of our list of known losses, with the issues they come from named in each test."""
    tests = (ROOT / "tests").rglob("test_*.py")
    assert any(re.search(rf"^(async )?def test_row_{row}_", path.read_text(), re.MULTILINE) for path in tests)


def test_every_make_target_that_is_mentioned_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        mentioned = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
        assert mentioned <= targets, f"{page}: {mentioned - targets}"


def test_every_command_that_is_mentioned_exists() -> None:
    for page in PAGES:
        mentioned = set(re.findall(r"(?<!from )\bturbopump ([a-z]+)\b", "\n".join(_code(page.read_text()))))
        assert mentioned <= set(COMMANDS), f"{page}: {mentioned - set(COMMANDS)}"


def test_links_between_files_lead_somewhere() -> None:
    for page in PAGES:
        text = page.read_text()
        links = [
            *re.findall(r"\]\(([^)#:\s\"]+)[)#]", text),
            *re.findall(r'(?:src|srcset)="([^":#]+)"', text),
        ]
        for link in links:
            assert (page.parent / link).exists(), f"{page}: {link}"


def test_no_page_installs_from_an_index_that_does_not_have_us() -> None:
    """`pip install turbopump[x]` is right only where turbopump is installed, as the messages say that do."""
    notebooks = [*(ROOT / "examples").rglob("*.md"), *(ROOT / "examples").rglob("*.ipynb")]
    for page in [*PAGES, *notebooks]:
        found = re.findall(r"pip install[^`\n]*?[\s'\"]turbopump\b[^`\n]*", page.read_text())
        assert not found, f"{page}: {found}"


def test_programs_can_be_read_on_pages_that_nobody_built() -> None:
    spec = importlib.util.spec_from_file_location("example_pages", ROOT / "scripts/example_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for page in module.PAGES:
        text = page.read_text()
        assert "--8<--" not in text
        assert len(module.BLOCK.findall(text)) > 4
        assert text == module.current(text), "run python scripts/example_pages.py"


def test_readme_says_which_clients_of_5_work() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    assert re.search(r"The gRPC clients of 5\.x [^.]*\([^)]*\) do not work yet", text)


def test_the_page_for_those_who_move_knows_timers() -> None:
    text = (ROOT / "docs/migrate.md").read_text()
    assert "any time is not yet there" not in text
    assert "setDeliverTimeMs(" in text
    assert "deliver_at=" in text


def test_container_files_and_pages_say_which_address_clients_are_told() -> None:
    for name in ("Dockerfile", "compose.yaml", "docs/quickstart.md"):
        assert "TURBOPUMP_BROKER_IP1" in (ROOT / name).read_text(), name
    for command in re.findall(r"docker run [^`\n]*", (ROOT / "Dockerfile").read_text()):
        assert all(f"-p {port}:{port}" in command for port in (9876, 10911, 10909)), command
        assert "TURBOPUMP_BROKER_IP1=" in command


def test_modules_on_the_map_exist() -> None:
    """Below the package, or below the role that the paragraph is about."""
    package = ROOT / "src/turbopump"
    modules = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert len(modules) > 30
    for module in modules:
        assert any((package / role / module).exists() for role in ("", "broker", "client")), module


def test_modules_of_the_glossary_exist() -> None:
    rows = re.findall(r"^\| .* \| `([a-z_/.]+)` \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert len(rows) > 50
    for module in rows:
        assert (ROOT / "src/turbopump" / module).exists(), module


def test_files_that_pages_name_exist() -> None:
    """In code marks: modules below src/turbopump, and files of other directories of the repository."""
    packages = "|".join(
        path.name for path in (ROOT / "src/turbopump").iterdir() if (path / "__init__.py").exists()
    )
    others = "tests|benchmarks|scripts|examples|packaging"
    for page in (page for page in PAGES if page.name != "ARCHITECTURE.md"):
        text = page.read_text()
        modules = re.findall(rf"`(?:src/turbopump/)?((?:{packages})/[a-z_/]+(?:\.py|\.c)?)`", text)
        files = re.findall(rf"`((?:{others})/[\w/.-]+)`", text)
        named = [Path("src/turbopump", module) for module in modules] + [Path(file) for file in files]
        missing = [str(path) for path in named if not (ROOT / path).exists()]
        assert not missing, f"{page}: {missing}"


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_the_site_asks_nothing_of_the_network() -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"^  font: false", config, re.MULTILINE)
    assert "http://" not in config
    assert "https://" not in config
    assert "@import" not in (ROOT / "docs/site.css").read_text()


def _code(text: str) -> list[str]:
    """Inline code and fenced blocks."""
    fences = re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)
    return fences + re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def test_every_row_of_a_table_has_as_many_cells_as_its_header() -> None:
    for page in PAGES:
        width = 0
        for line in re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).splitlines():
            cells = len(re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line))) if line.startswith("|") else 0
            assert not (width and cells) or cells == width, f"{page}: {line[:100]}"
            width = cells
