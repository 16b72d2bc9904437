"""The audit log: lines of JSON, in the background, with a bound and a count of what was lost."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit import virtual

from turbopump.guard import audit, refusal_lines
from turbopump.guard.audit import AuditLog
from turbopump.guard.refusal_lines import LINES_PER_WINDOW, SAME_PER_WINDOW, WINDOW_S, RefusalLines
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock

PATH = "/store/config/access-audit.jsonl"


class AuditedServer:
    def __init__(self) -> None:
        self.clock = VirtualClock(start_ms=1_794_732_388_000)
        self.disk = SimulatedDisk(Chance(1), self.clock)
        self.log = AuditLog(PATH, self.disk, SimulatedWorkers(self.disk).run, self.clock)

    def lines(self, path: str = PATH) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.disk.read(path).splitlines()]


@virtual
async def test_a_refusal_says_who_from_where_what_and_why() -> None:
    desk = AuditedServer()
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
    desk = AuditedServer()
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
    desk = AuditedServer()

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
    desk = AuditedServer()
    for number in range(5):
        desk.log.refused(f"u{number}", "10.0.0.7", 10, "no")
        await desk.log.close()
    assert [line["user"] for line in desk.lines()] == ["u4"]
    assert [line["user"] for line in desk.lines(f"{PATH}.1")] == ["u2", "u3"]
    assert desk.disk.mode(PATH) == desk.disk.mode(f"{PATH}.1") == 0o600


@virtual
async def test_what_a_peer_chose_is_cut() -> None:
    desk = AuditedServer()
    desk.log.refused("x" * 5000, "10.0.0.7", 10, "y" * 5000)
    await desk.log.close()
    (line,) = desk.lines()
    assert (len(line["user"]), len(line["why"])) == (audit.MAX_TEXT, audit.MAX_TEXT)


@virtual
async def test_lines_whose_writer_is_cancelled_are_written_all_the_same() -> None:
    desk = AuditedServer()

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


# --- refusals without end -------------------------------------------------------------------------------


@virtual
async def test_refusals_of_one_user_and_address_have_a_limit_and_a_line_says_how_many_are_left_out() -> None:
    desk = AuditedServer()
    for number in range(1_000):
        desk.log.refused("alice", "10.0.0.7", 310, "no", f"Pub on Topic:t{number}")
    desk.log.refused("bob", "10.0.0.7", 310, "no")
    desk.log.refused("alice", "10.0.0.8", 310, "no")
    await desk.log.close()
    lines = desk.lines()
    assert len(lines) == LINES_PER_WINDOW + 3
    assert lines[-1] == {
        "time": "2026-11-15T08:46:28.000Z",
        "event": "left-out",
        "user": "alice",
        "address": "10.0.0.7",
        "what": "900 refusals within 60 s have no line",
    }


@virtual
async def test_a_request_that_is_repeated_does_not_hide_what_else_is_refused() -> None:
    desk = AuditedServer()
    for _ in range(1_000):
        desk.log.would_refuse("alice", "10.0.0.7", 310, "no", "Pub on Topic:a")
    desk.log.would_refuse("alice", "10.0.0.7", 310, "no", "Pub on Topic:b")
    await desk.log.close()
    needs = [line.get("need") for line in desk.lines()]
    assert needs == ["Pub on Topic:a"] * SAME_PER_WINDOW + ["Pub on Topic:b", None]


@virtual
async def test_claimed_names_and_addresses_of_one_network_have_one_limit_together() -> None:
    desk = AuditedServer()
    for number in range(1_000):
        desk.log.refused(f"u{number}", f"2001:db8::{number:x}", 310, "no", str(number), is_known=False)
    await desk.log.close()
    assert len(desk.lines()) == LINES_PER_WINDOW + 1
    assert (desk.lines()[-1]["user"], desk.lines()[-1]["address"]) == ("", "2001:db8::/64")


@virtual
async def test_what_was_left_out_is_written_when_the_minute_is_over_though_nothing_follows() -> None:
    desk = AuditedServer()
    writer = asyncio.create_task(desk.log.run())
    for _ in range(SAME_PER_WINDOW + 5):
        desk.log.refused("alice", "10.0.0.7", 310, "no")
    await asyncio.sleep(2 * WINDOW_S + 1)
    assert desk.lines()[-1]["what"] == "5 refusals within 60 s have no line"
    desk.log.refused("alice", "10.0.0.7", 310, "no")
    await asyncio.sleep(1)
    assert desk.lines()[-1]["event"] == "refused"
    writer.cancel()


def test_the_number_of_windows_is_bounded_and_none_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_lines, "MAX_WINDOWS", 2)
    table = RefusalLines()
    for _ in range(SAME_PER_WINDOW + 1):
        table.admits(("alice", "10.0.0.1"), "same", 0.0)
    for number in range(2, 4):
        table.admits(("alice", f"10.0.0.{number}"), "same", 0.0)
    assert list(table.ended(0.0)) == [("alice", "10.0.0.1", 1)]
    assert list(table.ended(WINDOW_S)) == []
    assert not table
