"""The page about administration does what it says, and names every call."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client import pages

from turbopump.client.admin import Admin
from turbopump.testing import Cluster

PAGE = Path(__file__).parents[3] / "docs/admin-api.md"
PARTS = (
    *("clusters", "brokers", "name_servers", "topics", "queues", "messages", "groups", "offsets"),
    *("connections", "users", "acls", "accounts"),
)


@pytest.fixture(scope="module")
def namespace() -> dict[str, Any]:
    return {"__name__": "__main__"}


@pytest.mark.parametrize("block", pages.blocks(PAGE), ids=lambda block: f"line {block.line}")
def test_a_block_of_the_page_prints_what_stands_below_it(
    block: pages.Block, cluster: Cluster, namespace: dict[str, Any]
) -> None:
    pages.run(PAGE, block, cluster.name_servers, namespace)


def test_the_table_names_every_call_and_no_other() -> None:
    admin = Admin("127.0.0.1:9876")
    exist = {
        f"{part}.{name}"
        for part in PARTS
        for name, value in inspect.getmembers(type(getattr(admin, part)))
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }
    rows = "\n".join(line for line in PAGE.read_text().splitlines() if line.startswith("|"))
    assert set(re.findall(r"`([a-z_]+\.[a-z_]+)`", rows)) == exist


def test_every_call_says_what_it_does() -> None:
    admin = Admin("127.0.0.1:9876")
    for part in PARTS:
        kind = type(getattr(admin, part))
        assert kind.__doc__, part
        for name, value in inspect.getmembers(kind, inspect.isfunction):
            assert name.startswith("_") or value.__doc__, f"{part}.{name}"
