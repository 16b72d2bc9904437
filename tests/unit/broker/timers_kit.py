"""What the tests of timers share with others."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.unit.broker.desk import CONFIG, Desk

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command

RULES = replace(CONFIG.timers, roll_window_slots=200, log_file_size=4_096)


TIMED: dict[str, Any] = {"config": replace(CONFIG, timers=RULES)}


async def send(desk: Desk, body: bytes = b"later", key: str = "", **pairs: str) -> Command:
    key = key or f"KEY{body.decode():0>29}"
    return await desk.send("T", body, pairs={"UNIQ_KEY": key, **pairs})


async def sent(desk: Desk, body: bytes = b"later", **pairs: str) -> str:
    """The handle by which it can be recalled."""
    answer = await send(desk, body, **pairs)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return (answer.ext or {})["recallHandle"]


async def recall(desk: Desk, handle: str, topic: str = "T") -> Command:
    ext = {"producerGroup": "PG", "topic": topic, "recallHandle": handle}
    return await desk.ask(RequestCode.RECALL_MESSAGE, ext)


def now_ms(desk: Desk) -> int:
    return desk.disk.clock.now_ms()


async def sleep_until(desk: Desk, time_ms: int) -> None:
    await asyncio.sleep((time_ms - now_ms(desk)) / 1000)
