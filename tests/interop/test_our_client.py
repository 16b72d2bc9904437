"""Our client tells the same story of our servers and of Apache's."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from . import artifacts, our_client, peers
from .conftest import Early

NAME = "our-client"
KINDS = (peers.OURS, *artifacts.SERVERS)
EARLY = {NAME: lambda home: our_client.tell_all(KINDS, home)}
PAIRS = [(name, kind) for name, story in our_client.STORIES.items() for kind in story.servers]


@pytest.mark.early(NAME)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_our_client_sees_the_same_on_every_server(name: str, kind: str, early: Early) -> None:
    told: dict[str, Future[Any]] = early(NAME)
    assert told[kind].result()[name].result() == our_client.STORIES[name].facts
