"""Our consumer and Apache's in one group: one owner for each queue through joins, crashes and leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import artifacts, mixed_groups, peers
from .clients import GO, PYTHON
from .conftest import Early

PAIR = ("java-4.9.8", PYTHON)
ALL = ("java-4.9.8", "java-5.5.0", GO, PYTHON)
NAME = "mixed-groups"
EARLY = {NAME: lambda home: mixed_groups.observe(PAIR, peers.OURS, home)}


@pytest.mark.early(NAME)
def test_a_java_consumer_and_ours_share_a_group_through_joins_crashes_and_leaves(early: Early) -> None:
    assert early(NAME) == mixed_groups.EXPECTED


@pytest.mark.long
@pytest.mark.parametrize("kind", [peers.OURS, *artifacts.SERVERS])
def test_java_go_and_ours_share_a_group_on_every_server(kind: str, tmp_path: Path) -> None:
    assert mixed_groups.observe(ALL, kind, tmp_path) == mixed_groups.EXPECTED
