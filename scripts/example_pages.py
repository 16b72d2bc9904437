"""Writes the programs of examples/ and tests/recipes into docs/examples.md and docs/recipes.md.

The pages are read on GitHub as well, where nothing includes files. Run `python scripts/example_pages.py`
after a change of a program. A unit test fails when a page is not current.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs/examples.md", ROOT / "docs/recipes.md")
BLOCK = re.compile(r'```python title="([^"]+)"\n.*?^```$', re.DOTALL | re.MULTILINE)


def current(page: str) -> str:
    """The page with each program as its file has it."""
    return BLOCK.sub(lambda found: block(found[1]), page)


def block(path: str) -> str:
    return f'```python title="{path}"\n{(ROOT / path).read_text().rstrip()}\n```'


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(current(page.read_text()))
