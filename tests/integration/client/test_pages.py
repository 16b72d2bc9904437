"""The pages about the client do what they say."""

from pathlib import Path
from typing import Any

import pytest
from tests.integration.client import pages

from turbopump.testing import Cluster

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = DOCS / "client.md"
README = DOCS.parent / "README.md"
FRONT_PAGE = DOCS / "index.md"


@pytest.fixture(scope="module")
def namespace() -> dict[str, Any]:
    return {"__name__": "__main__"}


@pytest.mark.parametrize("block", pages.blocks(GUIDE), ids=lambda block: f"line {block.line}")
def test_a_block_of_the_guide_prints_what_stands_below_it(
    block: pages.Block, cluster: Cluster, namespace: dict[str, Any]
) -> None:
    pages.run(GUIDE, block, cluster.name_servers, namespace)


def test_the_readme_shows_a_program_that_works(cluster: Cluster) -> None:
    block, on_spark = pages.blocks(README)
    pages.run(README, block, cluster.name_servers, {"__name__": "__main__"})
    compile(on_spark.code, str(README), "exec")  # tests/spark has the same queries


def test_the_front_page_shows_a_program_that_works(cluster: Cluster) -> None:
    (block,) = pages.blocks(FRONT_PAGE)
    pages.run(FRONT_PAGE, block, cluster.name_servers, {"__name__": "__main__"})
