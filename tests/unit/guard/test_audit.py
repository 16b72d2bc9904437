"""The audit log: lines of JSON, in the background, with a bound and a count of what was lost."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit import virtual

from turbopump.guard import audit
from turbopump.guard.audit import AuditLog
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock

PATH = "/store/config/access-audit.jsonl"


class Desk:
    def __init__(self) -> None:
        self.clock = VirtualClock(start_ms=1_794_732_388_000)
        self.disk = SimulatedDisk(Chance(1), self.clock)
        self.log = AuditLog(PATH, self.disk, SimulatedWorkers(self.disk).run, self.clock)

    def lines(self, path: str = PATH) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.disk.read(path).splitlines()]


@virtual
async def test_a_refusal_says_who_from_where_what_and_why() -> None:
    desk = Desk()
    desk.log.refused("alice", "10.0.0.7", 310, "no matched policies", "Pub on Topic:orders")
    desk.log.changed("root", "10.0.0.8", 3001, "user bob created")
    await desk.log.close()
    assert desk.lines() == [
        {
            "time": "2026-11-15T08:46:28.000Z",
            "event": "refused",
            "user": "alice",
            "address": "10.0.0.7",
            "code": 310,
            "need": "Pub on Topic:orders",
            "why": "no matched policies",
        },
        {
            "time": "2026-11-15T08:46:28.000Z",
            "event": "changed",
            "user": "root",
            "address": "10.0.0.8",
            "code": 3001,
            "what": "user bob created",
        },
    ]
    assert desk.disk.mode(PATH) == 0o600


@virtual
async def test_lines_beyond_the_bound_are_counted_and_the_next_line_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit, "MAX_PENDING", 2)
    desk = Desk()
    for number in range(5):
        desk.log.refused(f"u{number}", "10.0.0.7", 10, "no")
    await desk.log.close()
    assert desk.log.lost == 3
    assert [line["what"] if line["event"] == "lost" else line["user"] for line in desk.lines()] == [
        *("u0", "u1"),
        "3 lines could not be written",
    ]
    desk.log.refused("after", "10.0.0.7", 10, "no")
    await desk.log.close()
    assert len(desk.lines()) == 4


@virtual
async def test_lines_that_the_disk_does_not_take_are_counted_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()

    def full(*args: object, **more: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(desk.disk, "write", full)
        desk.log.refused("alice", "10.0.0.7", 10, "no")
        await desk.log.close()
    assert desk.log.lost == 1
    assert "1 lines are lost so far: no space left" in caplog.text
    desk.log.refused("alice", "10.0.0.7", 10, "no")
    await desk.log.close()
    assert [line["event"] for line in desk.lines()] == ["refused", "lost"]


@virtual
async def test_a_full_file_is_renamed_and_a_new_one_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", 300)
    desk = Desk()
    for number in range(5):
        desk.log.refused(f"u{number}", "10.0.0.7", 10, "no")
        await desk.log.close()
    assert [line["user"] for line in desk.lines()] == ["u4"]
    assert [line["user"] for line in desk.lines(f"{PATH}.1")] == ["u2", "u3"]
    assert desk.disk.mode(PATH) == desk.disk.mode(f"{PATH}.1") == 0o600


@virtual
async def test_what_a_peer_chose_is_cut() -> None:
    desk = Desk()
    desk.log.refused("x" * 5000, "10.0.0.7", 10, "y" * 5000)
    await desk.log.close()
    (line,) = desk.lines()
    assert (len(line["user"]), len(line["why"])) == (audit.MAX_TEXT, audit.MAX_TEXT)


@virtual
async def test_lines_whose_writer_is_cancelled_are_written_all_the_same() -> None:
    desk = Desk()

    async def slow(work: Callable[..., None], *args: object) -> None:
        await asyncio.sleep(1)
        work(*args)

    desk.log = AuditLog(PATH, desk.disk, slow, desk.clock)
    writer = asyncio.create_task(desk.log.run())
    desk.log.refused("alice", "10.0.0.7", 10, "no")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writer.cancel()
    await desk.log.close()
    assert [line["user"] for line in desk.lines()] == ["alice"]
    assert desk.log.lost == 0
