"""docs/mqadmin.md says what the table of commands says."""

import importlib.util
from pathlib import Path

from turbopump.admin.commands import AREAS

SCRIPT = Path(__file__).parents[3] / "scripts" / "mqadmin_page.py"


def test_the_page_of_commands_is_current() -> None:
    spec = importlib.util.spec_from_file_location("mqadmin_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.PAGE.read_text()
    assert text == module.page(), "run python scripts/mqadmin_page.py"
    for commands in AREAS.values():
        for command in commands:
            assert f"### `{command.name}`\n" in text
