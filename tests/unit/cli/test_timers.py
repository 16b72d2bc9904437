"""`turbopump timers` against a broker in memory: lists timed messages; a recalled one is never delivered."""

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster

from turbopump.cli import timers
from turbopump.client.admin.timers import EXACT
from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, SendResult
from turbopump.protocol.errors import Refused
from turbopump.store import timer_wheel
from turbopump.store.delays import DELIVER_AT

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_wheel, "SLOTS", 200_000)


async def run(town: MemoryCluster, *words: str) -> int:
    parser = argparse.ArgumentParser()
    timers.add_arguments(parser)
    options = parser.parse_args(words)
    return await timers.ACTIONS[options.action][1](options, town.admin)


async def timed(town: MemoryCluster, body: bytes, topic: str = "orders", **more: Any) -> SendResult:
    return await town.producer.send(Message(topic, body, **more))


@virtual
async def test_what_waits_is_listed_the_next_first_until_it_came_or_was_recalled(capsys: Capture) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await town.create_topic("mails", 1)
        await timed(town, b"second", delay=60, tags="T")
        await timed(town, b"first", delay=timedelta(seconds=5))
        await timed(town, b"third", "mails", delay=500_000)  # rolled twice before it comes
        at = datetime.fromtimestamp(town.clock.now_ms() / 1000 + 90, UTC)
        receipt = await timed(town, b"recalled", deliver_at=at)
        assert await run(town, "recall", receipt.recall_handle or "") == 0
        assert capsys.readouterr().out == f"{receipt.message_id} is recalled\n"

        async def listed(*words: str) -> list[str]:
            assert await run(town, "list", "--json", *words) == 0
            shown = json.loads(capsys.readouterr().out)
            return [one["body"] for one in shown["timers"]]

        assert await listed() == ["first", "second", "third"]
        assert await listed("--topic", "mails") == ["third"]
        await town.clock.sleep(10)
        assert await listed() == ["second", "third"]
        assert await run(town, "list", "-n", "1") == 0
        heading, row, cut = capsys.readouterr().out.splitlines()
        assert heading.startswith("#Due")
        assert all(f" {word} " in row for word in ("orders", "T", "second"))
        assert "1 of 2 are shown; use -n for more" in cut


@virtual
async def test_a_handle_that_is_none_and_one_that_is_too_late_are_refused() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        receipt = await timed(town, b"soon", delay=1)
        await town.clock.sleep(2)
        with pytest.raises(Refused, match="timestamp invalid"):
            await run(town, "recall", receipt.recall_handle or "")
        with pytest.raises(InvalidArgument, match="must be a recall handle"):
            await run(town, "recall", "xyz")


def test_the_client_knows_the_name_of_the_brokers_own_property() -> None:
    assert EXACT == DELIVER_AT
