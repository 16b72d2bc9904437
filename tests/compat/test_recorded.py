"""Apache's servers were asked all that they should be: each pull status, each size in each way to send."""

from __future__ import annotations

import re

import pytest
from tests.interop import recordings
from tests.interop.artifacts import SERVERS
from tests.interop.clients import CLIENTS, GO

MIB = 1 << 20
SIZES = {0, 1, 4095, 4096, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1}
SIZE = re.compile(r"\b(\d+) bytes")
WAYS = ("send sync", "send async", "send oneway", "send by selector", "send batch")
JAVA_WAYS = (*WAYS, "send sync, no limit in the client", "send to a queue")  # Go's messages name their queues
STATUSES = {"FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG", "OFFSET_ILLEGAL"}
GO_STATUSES = {0, 1, 2, 3}  # the same: this client's are numbers

# The Dashboard neither sends nor pulls.
SENDERS = [client for client in CLIENTS if not client.startswith("dashboard-")]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", SENDERS)
def test_every_pull_status_was_recorded(client: str, server: str) -> None:
    pulls = [steps for name, steps in recordings.load(client, server).items() if name.startswith("pull")]
    answers = [answer for steps in pulls for answer in steps.values() if isinstance(answer, dict)]
    assert {answer["status"] for answer in answers if "status" in answer} == (
        GO_STATUSES if client == GO else STATUSES
    )


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("client", "way"),
    [(client, way) for client in SENDERS for way in (WAYS if client == GO else JAVA_WAYS)],
)
def test_every_size_was_recorded(client: str, way: str, server: str) -> None:
    steps = " / ".join(recordings.load(client, server)[way])
    assert {int(size) for size in SIZE.findall(steps)} == SIZES
