"""Pulls through filter modules, and what a hostile module costs those who do not use it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, Desk, records, running

from turbopump.broker.config import FilterRules
from turbopump.broker.consume import filter_modules
from turbopump.broker.consume.pull import PullHandler
from turbopump.protocol.bodies import CheckClientRequestBody, SubscriptionData
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.headers.pull import PullMessageRequest
from turbopump.remoting.router import Request
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock, run_virtual

EXAMPLES = Path(__file__).parents[3] / "examples" / "filters"
FOUND, NOT_FOUND, RETRY_AT_ONCE, FAILED, UNREADABLE = 0, 19, 20, 1, 23

HEAD = '(memory (export "memory") 1) (global (export "input") i32 (i32.const 1024))'
MATCHES = '(func (export "matches") (param $properties i32) (param $body i32) (result i32)'
MODULES = {
    "all": f"(module {HEAD} {MATCHES} i32.const 1))",
    "none": f"(module {HEAD} {MATCHES} i32.const 0))",
    "endless": f"(module {HEAD} {MATCHES} (loop br 0) i32.const 1))",
    "large_body": (EXAMPLES / "large_body.wat").read_text(),
    "broken": "(module",
}


@asynccontextmanager
async def with_modules(modules: dict[str, str] = MODULES) -> AsyncIterator[Desk]:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    disk.make_dirs("/filters")
    for name, text in modules.items():
        disk.write(f"/filters/{name}.wat", text.encode())
    rules = FilterRules(module_dir="/filters", module_fuel=10_000)
    async with running(replace(CONFIG, filters=rules), disk) as desk:
        yield desk


def by(module: str, **changes: Any) -> dict[str, Any]:
    return {"subscription": module, "expressionType": "WASM", **changes}


async def fill(desk: Desk, *bodies: bytes) -> None:
    for body in bodies:
        assert (await desk.send("T", body)).code == 0


@virtual
async def test_a_pull_gets_what_the_module_wants_and_goes_on_behind_what_it_does_not() -> None:
    async with with_modules() as desk:
        await fill(desk, b"small", b"x" * 1024, b"small", b"y" * 2000, b"small")
        answer = await desk.pull("T", 0, **by("large_body"))
        assert [record.body[:1] for record in records(answer)] == [b"x", b"y"]
        assert (answer.code, answer.ext and answer.ext["nextBeginOffset"]) == (FOUND, "5")


@virtual
async def test_a_pull_that_wants_nothing_of_what_there_is_is_told_to_go_on() -> None:
    async with with_modules() as desk:
        await fill(desk, b"a", b"b", b"c")
        answer = await desk.pull("T", 0, **by("none"))
        assert (answer.code, answer.ext and answer.ext["nextBeginOffset"]) == (RETRY_AT_ONCE, "3")


@virtual
async def test_an_answer_holds_no_more_than_was_asked_for() -> None:
    async with with_modules() as desk:
        await fill(desk, b"a", b"b", b"c")
        answer = await desk.pull("T", 0, **by("all", maxMsgNums=2))
        assert [record.body for record in records(answer)] == [b"a", b"b"]
        assert answer.ext
        assert answer.ext["nextBeginOffset"] == "2"


@virtual
async def test_a_pull_that_finds_nothing_waits_and_is_answered_when_a_message_comes() -> None:
    async with with_modules() as desk:
        await fill(desk, b"a")
        waiting = asyncio.ensure_future(desk.pull("T", 1, **by("large_body", sysFlag=6)))
        await asyncio.sleep(1)
        assert not waiting.done()
        await fill(desk, b"x" * 1024)
        assert [record.body[:1] for record in records(await waiting)] == [b"x"]


@virtual
async def test_a_module_that_fails_ends_the_pull_with_an_error_and_nothing_is_passed_over() -> None:
    async with with_modules() as desk:
        await fill(desk, b"a")
        answer = await desk.pull("T", 0, **by("endless"))
        assert answer.code == FAILED
        assert answer.remark is not None
        assert answer.remark.startswith("the filter module endless failed: ")
        assert [record.body for record in records(await desk.pull("T", 0))] == [b"a"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "nobody",
            "filter module 'nobody': there is no module of that name; usable are: all, endless, large_body",
        ),
        ("broken", "filter module 'broken': expected"),
        ("", "filter module '': there is no module"),
        ("../../etc/passwd", "there is no module of that name"),
    ],
)
@virtual
async def test_a_name_that_is_no_module_is_refused_in_pulls_and_before(name: str, words: str) -> None:
    async with with_modules() as desk:
        await fill(desk, b"a")
        pulled = await desk.pull("T", 0, **by(name))
        asked = CheckClientRequestBody(
            "c", "g", None, SubscriptionData(topic="T", subString=name, expressionType="WASM")
        )
        checked = await desk.ask(RequestCode.CHECK_CLIENT_CONFIG, body=asked.encode())
        for answer in (pulled, checked):
            assert answer.code == UNREADABLE
            assert words in (answer.remark or "")


@virtual
async def test_without_a_directory_there_are_no_modules() -> None:
    async with running() as desk:
        await fill(desk, b"a")
        answer = await desk.pull("T", 0, **by("all"))
        expected = (FAILED, "The broker does not support consumer to filter message by WASM")
        assert (answer.code, answer.remark) == expected


@virtual
async def test_a_directory_that_is_not_there_keeps_the_broker_from_starting() -> None:
    rules = FilterRules(module_dir="/nowhere")
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        async with running(replace(CONFIG, filters=rules)):
            pass


def test_no_other_pull_waits_for_more_than_the_fuel_of_one_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pulls through modules, and another that comes in the middle: of what happens in the loop between
    the arrival of its request and its answer, only one thing is a filter's.
    """
    events: list[str] = []
    evaluate, pulled = filter_modules.FilterModule.matches, PullHandler.pull

    def noted(self: filter_modules.FilterModule, properties: bytes, body: bytes) -> bool:
        events.append("filter")
        return evaluate(self, properties, body)

    def answered(self: PullHandler, request: Request[PullMessageRequest]) -> Command | None:
        if request.header.expressionType == "TAG":
            events.append("pull")
        return pulled(self, request)

    def wake() -> None:
        events.append("turn")
        if events.count("filter") < 500:
            asyncio.get_running_loop().call_soon(wake)

    async def main() -> None:
        async with with_modules() as desk:
            await fill(desk, *(b"%d" % number for number in range(50)))
            slow = [asyncio.ensure_future(desk.pull("T", 0, **by("none"))) for _ in range(10)]
            asyncio.get_running_loop().call_soon(wake)
            for _ in range(5):
                assert (await desk.pull("T", 0)).code == FOUND
            assert not any(one.done() for one in slow)
            assert {(await one).code for one in slow} == {RETRY_AT_ONCE}

    monkeypatch.setattr(filter_modules.FilterModule, "matches", noted)
    monkeypatch.setattr(PullHandler, "pull", answered)
    run_virtual(main())
    assert events.count("filter") == 500
    assert events.count("pull") == 5
    turns = " ".join(events).split("turn")
    assert max(turn.count("filter") for turn in turns) == 1
