"""What the tests of ledger requests share with others."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.broker.desk import CONFIG, Desk
from tests.unit.broker.writers import open_, topic

from turbopump.broker.config import BrokerConfig
from turbopump.broker.transactions.ledger.settlement import Settlement
from turbopump.protocol.codes import ResponseCode
from turbopump.testing.loop import VirtualLoop

OK, FENCED, ILLEGAL = 0, ResponseCode.LEDGER_FENCED, ResponseCode.ILLEGAL_OPERATION


DAY_S = 86_400


async def begun(desk: Desk) -> None:
    await topic(desk)
    assert (await open_(desk)).code == OK


@contextlib.contextmanager
def nothing_settles() -> Iterator[None]:
    """Nothing ends by itself meanwhile."""

    async def no_time(settling: Settlement, id: str) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settlement, "_settle_quietly", no_time)
        yield


async def a_day_passes(desk: Desk) -> None:
    """All that is due happens once, and then retention."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.jump(DAY_S)
    await asyncio.sleep(2)
    desk.store.retention.ask()
    while await desk.store.retention.round():
        pass


def small(desk_config: BrokerConfig = CONFIG) -> dict[str, Any]:
    return {
        "commit_log_file_size": 65_536,
        "file_reserved_hours": 12,
        "max_message_size": 32_768,
        "config": desk_config,
    }
