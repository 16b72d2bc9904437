"""Shared set-up lives in kit modules: no test module imports from another one."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
FROM_A_TEST = re.compile(
    r"^\s*(?:from\s+(?:tests\.|\.)[\w.]*\btest_\w+\s+import|from\s+[\w.]+\s+import\s+.*\btest_\w+|import\s+tests\.[\w.]*\btest_)",
    re.MULTILINE,
)


def test_no_module_imports_from_a_test() -> None:
    found = [
        f"{path.relative_to(TESTS)}: {match[0].strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        for match in FROM_A_TEST.finditer(path.read_text())
    ]
    assert found == []


def test_each_way_to_import_from_a_test_is_found() -> None:
    for line in (
        "from tests.unit.client.test_background import Core",
        "from .test_source_stream import Stream",
        "from ..spark.test_sink import rows",
        "from tests.spark import test_sink",
        "import tests.spark.test_sink",
    ):
        assert FROM_A_TEST.search(line), line
    for line in ("from tests.kit import virtual", "from tests.interop import peers", "import test_data"):
        assert not FROM_A_TEST.search(line), line
