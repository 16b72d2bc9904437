"""Consumers that choose by properties: what they are given, told and woken by."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, Desk, running
from tests.unit.broker.sql_pulls_kit import beat, bodies, numbered

from turbopump.protocol.codes import RequestCode
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock, run_virtual

SQL = replace(CONFIG, filters=replace(CONFIG.filters, enabled=True))
SUSPEND, SUBSCRIPTION = 2, 4


def with_broker(scenario: Callable[[Desk], Coroutine[Any, Any, None]], **changes: Any) -> None:
    async def run() -> None:
        async with running(**({"config": SQL} | changes)) as desk:
            await scenario(desk)

    run_virtual(run())


async def pull_by(desk: Desk, text: str, offset: int = 0, **changes: Any) -> Any:
    return await desk.pull("T", offset, subscription=text, expressionType="SQL92", **changes)


def test_a_pull_that_brings_its_expression_gets_what_it_wants() -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 8)
        answer = await pull_by(desk, "a BETWEEN 2 AND 3 OR a >= 6")
        assert bodies(answer) == [b"2", b"3", b"6", b"7"]
        assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "8")
        answer = await pull_by(desk, "a > 100")
        assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
        assert answer.ext["nextBeginOffset"] == "8"

    with_broker(scenario)


def test_a_group_gets_what_its_heartbeat_wants() -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 4)
        await beat(desk, "a = 1 OR a = 3")
        assert bodies(await desk.pull("T", 0, sysFlag=0, subVersion=1)) == [b"1", b"3"]
        answer = await desk.pull("T", 0, sysFlag=0, subVersion=2)
        assert (answer.code, answer.remark) == (25, "the consumer's subscription not latest")
        await beat(desk, "a = ", 2)
        answer = await desk.pull("T", 0, sysFlag=0, subVersion=2)
        words = "The broker's consumer filter data is not exist!Your expression may be wrong!"
        assert (answer.code, answer.remark) == (27, words)
        assert answer.ext == {}

    with_broker(scenario)


def test_an_expression_may_give_way_to_tags_and_come_back() -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 1)
        await beat(desk, "a = 0", 5)
        await beat(desk, "*", 6, expressionType="TAG")
        await beat(desk, "a = 0", 7, expressionType="SQL92")
        assert bodies(await desk.pull("T", 0, sysFlag=0, subVersion=7)) == [b"0"]

    with_broker(scenario)


@pytest.mark.parametrize("lite", [False, True])
def test_with_the_feature_off_expressions_are_refused(lite: bool) -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 1)
        code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
        answer = await pull_by(desk, "a = 0", code=code)
        assert (answer.code, answer.remark) == (
            1,
            "The broker does not support consumer to filter message by SQL92",
        )

    with_broker(scenario, config=CONFIG)


def test_a_pull_with_a_bad_expression_is_told_where() -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 1)
        answer = await pull_by(desk, "a = 0 AND b =")
        assert (answer.code, answer.ext) == (23, {})
        assert "line 1, column 14" in answer.remark
        assert (await pull_by(desk, "")).code == 23

    with_broker(scenario)


def test_a_client_that_asks_first_is_told_where() -> None:
    async def ask(desk: Desk, text: str, kind: str = "SQL92") -> tuple[int, str]:
        body = {"subscriptionData": {"topic": "T", "subString": text, "expressionType": kind}}
        answer = await desk.ask(RequestCode.CHECK_CLIENT_CONFIG, body=msgspec.json.encode(body))
        return answer.code, answer.remark or ""

    async def scenario(desk: Desk) -> None:
        assert await ask(desk, "a = 0") == (0, "")
        code, remark = await ask(desk, "a BETWEEN 5 AND 3")
        assert code == 23
        assert "column 3" in remark
        assert (await ask(desk, "a", "XPATH"))[0] == 23
        assert await ask(desk, "x", "TAG") == (0, "")

    with_broker(scenario)


def test_a_waiting_pull_is_woken_by_a_message_that_it_wants_alone() -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 1)
        await beat(desk, "a = 7")
        waiting = asyncio.create_task(desk.pull("T", 1, sysFlag=SUSPEND, subVersion=1))
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        await desk.send("T", b"unwanted", pairs={"a": "6"})
        await desk.send("T", b"odd", pairs={"a": "many"})
        await asyncio.sleep(1)
        assert not waiting.done()
        await desk.send("T", b"wanted", pairs={"a": "7"})
        answer = await waiting
        assert bodies(answer) == [b"wanted"]
        assert asyncio.get_running_loop().time() - began < 2.5

    with_broker(scenario)


def test_a_waiting_pull_moves_on_over_what_it_does_not_want() -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 1)
        waiting = asyncio.create_task(pull_by(desk, "a = 7", 1, sysFlag=SUSPEND | SUBSCRIPTION))
        await asyncio.sleep(1)
        await numbered(desk, 3)
        answer = await waiting
        assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "4")

    with_broker(scenario)


def test_many_unwanted_messages_are_passed_in_steps() -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 1000)
        answer = await pull_by(desk, "a = 999")
        assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "200")  # the end of a small queue file
        long = " OR ".join(["a = 999"] * 1000)
        answer = await pull_by(desk, long)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "33")
        assert bodies(await pull_by(desk, "a = 999", 990)) == [b"999"]

    with_broker(scenario)


@virtual
async def test_expressions_outlive_a_restart() -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(SQL, disk) as desk:
        await numbered(desk, 2)
        await beat(desk, "a = 1")
    async with running(SQL, disk) as desk:
        path = "/store/config/consumerFilter.json"
        assert b'"expression": "a = 1"' in desk.disk.read(path)
        await beat(desk, "a = 0")  # of the same version: what was registered with it counts
        assert bodies(await desk.pull("T", 0, sysFlag=0, subVersion=1)) == [b"1"]


def test_who_looks_at_a_queue_for_a_group_sees_its_expression() -> None:
    async def scenario(desk: Desk) -> None:
        await numbered(desk, 1)
        await beat(desk, "a = 1")
        ext = {"topic": "T", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "readers"}
        answer = await desk.ask(RequestCode.QUERY_CONSUME_QUEUE, ext)
        shown = msgspec.json.decode(msgspec.json.decode(answer.body)["filterData"])
        assert (shown["expression"], shown["dead"]) == ("a = 1", False)

    with_broker(scenario)
