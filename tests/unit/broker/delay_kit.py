"""What the tests of delay share with others."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.unit.broker.desk import Desk, records, running

from turbopump.protocol import dialect
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.record import Record
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import Survival

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


TICK_S = 0.1


async def send(desk: Desk, body: bytes = b"later", level: int = 1, topic: str = "T", **pairs: str) -> None:
    answer = await desk.send(topic, body, pairs={"DELAY": str(level)} | pairs)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def arrived(desk: Desk, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """All that can be read, from the first on."""
    found: list[Record] = []
    while more := records(await desk.pull(topic, len(found), queue_id)):
        found += more
    return found


async def bodies(desk: Desk, topic: str = "T") -> list[bytes]:
    return [record.body for record in await arrived(desk, topic)]


def restarts(
    *lives: Callable[[Desk], Coroutine[Any, Any, Survival | None]], pause_s: float = 0.0, **config: Any
) -> None:
    """One store, opened again and again. A life ends by a clean stop, or as it says."""

    async def story() -> None:
        disk = SimulatedDisk(Chance(1), VirtualClock())
        for number, life in enumerate(lives):
            changes = {
                name: value[number] if isinstance(value, list) else value for name, value in config.items()
            }
            async with running(disk=disk, **changes) as desk:
                end = await life(desk)
                if end is not None:
                    disk = disk.crash(end)
            await asyncio.sleep(pause_s)

    run_virtual(story())


def saved(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = dialect.loads(desk.disk.read("/store/config/delayOffset.json"))
    return found
