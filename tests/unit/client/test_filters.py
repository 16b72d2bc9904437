"""Filters of consumers: functions that say which messages are wanted at all."""

from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client import listening, pulling

from turbopump.client.message import MessageExt
from turbopump.testing.loop import run_virtual


def is_even(message: MessageExt) -> bool:
    return int(message.text) % 2 == 0


def broken(message: MessageExt) -> bool:
    raise ValueError("no")


def not_two(message: MessageExt) -> bool:
    return message.text != "002"


async def pushed(town: MemoryCluster, filters: list[Any]) -> list[str]:
    reader = listening.Reader()
    async with listening.consumer(town, reader, filters=filters):
        await town.clock.sleep(3)
    return sorted(reader.texts)


async def pulled(town: MemoryCluster, filters: list[Any]) -> list[str]:
    async with pulling.consumer(town, filters=filters) as reader:
        return pulling.texts_of(await pulling.all_of(reader))


@pytest.mark.parametrize("read", [pushed, pulled])
@virtual
async def test_what_a_filter_does_not_want_is_not_delivered_and_counts_as_consumed(read: Any) -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await pulling.sent(town, 8)
        assert await read(town, [is_even, not_two]) == ["000", "004", "006"]
        assert sum(offset or 0 for offset in await pulling.committed(town)) == 8


@pytest.mark.parametrize("read", [pushed, pulled])
def test_a_filter_that_fails_loses_nothing(read: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            texts = await pulling.sent(town, 2)
            assert await read(town, [broken]) == texts

    run_virtual(scene())
    assert "The filter" in caplog.text
