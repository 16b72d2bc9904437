"""`turbopump dlq` against a broker in memory: lists, resends once, exports."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.admin.steady import sent
from tests.unit.client.listening import Reader, consumer

from turbopump.cli import dlq
from turbopump.cli.failures import CommandFailure
from turbopump.client.admin import NotFound
from turbopump.client.admin.dead_letters import MADE_FROM, DeadLetters

Capture = pytest.CaptureFixture[str]


async def run(town: MemoryCluster, *words: str) -> int:
    parser = argparse.ArgumentParser()
    dlq.add_arguments(parser)
    options = parser.parse_args(words)
    letters = DeadLetters(town.admin.messages, town.admin.routes, options.group)
    return await dlq.ACTIONS[options.action][1](dlq.DeadLetterCommand(options, town.admin, letters))


async def died(town: MemoryCluster, *texts: bytes, **message: Any) -> None:
    """Makes dead letters of group `readers`."""
    for text in texts:
        await sent(town, 0, text, **message)
    async with consumer(town, Reader(lambda body: True), max_reconsume_times=0):
        await town.clock.sleep(6)


@virtual
async def test_letters_are_listed_and_the_list_says_when_it_is_cut(capsys: Capture) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await died(town, b"one", b"two\n", b"x" * 100, tags="paid", keys=("k1", "k2"))
        assert await run(town, "list", "readers") == 0
        heading, *rows = capsys.readouterr().out.splitlines()
        assert heading.split()[:2] == ["#Message", "ID"]
        assert [row.split()[-1] for row in rows] == ["one", r"two\n", "x" * 60 + "…"]
        assert all(" orders " in row and " paid " in row and " k1 k2 " in row for row in rows)
        assert await run(town, "list", "readers", "-n", "2", "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert [one["originTopic"] for one in shown["messages"]] == ["orders", "orders"]
        assert shown["cut"] == "2 letters are shown, there are more; use -n for more"
        assert await run(town, "list", "readers", "-n", "3") == 0
        assert "cut" not in capsys.readouterr().out


@virtual
async def test_letters_are_chosen_by_id_and_by_time(capsys: Capture) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await died(town, b"old")
        await town.clock.sleep(3600)
        await died(town, b"new")
        await town.clock.sleep(60)

        async def listed(*words: str) -> list[dict[str, Any]]:
            await run(town, "list", "readers", "--json", *words)
            found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["messages"]
            return found

        old, new = await listed()
        assert [one["body"] for one in await listed("--since", "10m")] == ["new"]
        assert [one["body"] for one in await listed("--until", "10m")] == ["old"]
        assert await listed("--since", "30m", "--until", "10m") == []
        assert [one["body"] for one in await listed("--id", old["msgId"], "--id", new["offsetMsgId"])] == [
            "old",
            "new",
        ]
        with pytest.raises(NotFound, match="no dead letter nowhere"):
            await listed("--id", "nowhere")
        alive = await sent(town, 0)
        with pytest.raises(NotFound, match="is not a dead letter of group readers"):
            await listed("--id", alive.offset_message_id)


@virtual
async def test_letters_are_sent_again_once_to_their_group(capsys: Capture) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await died(town, b"one", b"two", tags="paid", properties={"a": "b"})
        assert await run(town, "resend", "readers", "--all") == 0
        *lines, last = capsys.readouterr().out.splitlines()
        assert [" resent to %RETRY%readers offsetMsgId=" in line for line in lines] == [True, True]
        assert last == "2 resent, 0 already resent, 0 not sent"
        reader = Reader()
        async with consumer(town, reader), consumer(town, others := Reader(), 2, group="others"):
            await town.clock.sleep(6)
        assert reader.bodies == [b"one", b"two"]
        assert all(
            (one.topic, one.tags, one.properties["a"]) == ("orders", "paid", "b") for one in reader.got
        )
        assert all("DELAY" not in one.properties and one.reconsume_times == 0 for one in reader.got)
        assert len(others.got) == 2  # what was first sent, and nothing of this
        assert await run(town, "resend", "readers", "--all", "--json") == 0
        again = json.loads(capsys.readouterr().out)["results"]
        assert [one["status"] for one in again] == ["already resent", "already resent"]
        assert await run(town, "resend", "readers", "--all", "--again") == 0
        assert "2 resent" in capsys.readouterr().out


@virtual
async def test_letters_are_sent_again_to_their_topic(capsys: Capture) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await died(town, b"one", keys=("k",))
        assert await run(town, "resend", "readers", "--all", "--to-topic", "--json") == 0
        (result,) = json.loads(capsys.readouterr().out)["results"]
        assert (result["status"], result["topic"]) == ("resent", "orders")
        first, copy = await town.admin.messages.by_key("orders", "k")
        assert (first.body, first.message_id) == (copy.body, copy.message_id)
        assert copy.properties[MADE_FROM] == result["dlqOffsetMsgId"]
        assert "RETRY_TOPIC" not in copy.properties
        assert await run(town, "resend", "readers", "--all", "--to-topic") == 0
        assert capsys.readouterr().out.endswith("0 resent, 1 already resent, 0 not sent\n")


@virtual
async def test_a_copy_is_found_behind_any_number_of_later_ones(capsys: Capture) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await died(town, b"one")
        assert await run(town, "resend", "readers", "--all", "--json") == 0
        (result,) = json.loads(capsys.readouterr().out)["results"]
        for _ in range(70):  # as often as the copy failed again
            await town.clock.sleep(1)
            await town.send("%RETRY%readers", properties={"UNIQ_KEY": result["msgId"]})
        assert await run(town, "resend", "readers", "--all") == 0
        assert capsys.readouterr().out.endswith("0 resent, 1 already resent, 0 not sent\n")


@virtual
async def test_a_bounded_resend_goes_on_where_it_was_cut(capsys: Capture) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await died(town, b"1", b"2", b"3")
        assert await run(town, "resend", "readers", "--all", "-n", "2") == 0
        words = "2 letters were sent, there are more; run the command again to continue"
        assert capsys.readouterr().out.endswith(f"(cut: {words})\n")
        assert await run(town, "resend", "readers", "--all", "-n", "2") == 0
        assert capsys.readouterr().out.endswith("1 resent, 2 already resent, 0 not sent\n")


@virtual
async def test_what_to_resend_must_be_said() -> None:
    async with cluster() as town:
        with pytest.raises(CommandFailure, match="choose letters"):
            await run(town, "resend", "readers")


@virtual
async def test_letters_are_exported_with_every_byte(capsys: Capture, tmp_path: Path) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await died(town, b"text", b"\xff\x00")
        file = tmp_path / "letters.jsonl"
        assert await run(town, "export", "readers", "-o", str(file)) == 0
        text, binary = map(json.loads, file.read_text().splitlines())
        assert (text["body"], binary["bodyBase64"]) == ("text", "/wA=")
        assert capsys.readouterr().err == "2 dead letters of group readers exported\n"
        assert await run(town, "export", "readers", "-n", "1") == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["body"] == "text"
        assert printed.err.endswith("(cut: there are more; use -n for more)\n")


@virtual
async def test_a_group_without_letters_and_a_topic_that_may_not_be_read() -> None:
    async with cluster() as town:
        with pytest.raises(NotFound, match="group readers has no dead letters"):
            await run(town, "list", "readers")
        await town.create_topic("orders", 1)
        await died(town, b"one")
        perm = ("updateTopicPerm", "-t", "%DLQ%readers", "-p", "2", "-c", "DefaultCluster")
        assert (await town.mqadmin(*perm)).status == 0
        await town.registered()
        with pytest.raises(NotFound, match="may not be read; `mqadmin updateTopicPerm"):
            await run(town, "list", "readers")
