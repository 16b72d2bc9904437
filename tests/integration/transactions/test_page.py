"""The pages about effects and telemetry do what they say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client import pages

import turbopump
from turbopump.testing import Cluster

DOCS = Path(__file__).parents[3] / "docs"
EFFECTS = DOCS / "exactly-once-effects.md"
TELEMETRY = DOCS / "telemetry.md"


@pytest.fixture
def namespace() -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {"__name__": "__main__"}
    yield names
    for client in names.values():
        if isinstance(client, turbopump.Producer):
            client.close()
    turbopump.configure(telemetry=False)


@pytest.mark.parametrize("page", [EFFECTS, TELEMETRY], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_print_what_stands_below_them(
    page: Path, namespace: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Cluster() as cluster:
        for block in pages.blocks(page):
            pages.run(page, block, cluster.name_servers, namespace)
