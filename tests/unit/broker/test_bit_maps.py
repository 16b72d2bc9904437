"""Bit maps in extension files: as Apache's brokers wrote them, and what they spare a pull."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, Desk, running
from tests.unit.broker.sql_pulls_kit import beat, bodies, numbered
from tests.unit.store.golden_stores_kit import draft_of
from tests.unit.store.kit import HandClock, apache_store
from tests.unit.store.lab import Workers, config_of, records

from turbopump.broker.config import FilterRules
from turbopump.broker.consume.filters import GroupFilters
from turbopump.filter.sql import Predicate
from turbopump.runtime.disk import SystemDisk
from turbopump.store.store import Store

WITH_BITS = replace(
    CONFIG,
    filters=FilterRules(enabled=True, bit_maps=True),
    store=replace(CONFIG.store, write_extensions=True, consume_queue_ext_file_size=4096),
)


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean"])
def test_the_same_messages_and_groups_give_the_same_files(name: str, tmp_path: Path) -> None:
    root = apache_store(name, tmp_path / "apache")
    apache = Store.open(config_of(name, root), SystemDisk(), HandClock(), Workers())
    clock = HandClock()
    filters = GroupFilters(FilterRules(enabled=True, bit_maps=True), clock)  # type: ignore[arg-type]
    assert filters.load((Path(root) / "config" / "consumerFilter.json").read_bytes()) == 2
    born_ms = max(one.born_ms for one in filters._by_topic["Filt"].values())
    config = replace(config_of(name, str(tmp_path / "ours")), write_extensions=True)
    ours = Store.open(config, SystemDisk(), clock, Workers())

    def bit_map(topic: str, message: bytes) -> bytes:
        return filters.bit_map(topic, message) if clock.now > born_ms else b""

    ours.queues.files.bit_map = bit_map
    for record in records(apache):
        clock.now = record.store_timestamp
        ours.log.store_host = record.store_host
        ours.log.append([draft_of(record, ours, apache)])
    ours.queues.write_out(1000)
    compared = 0
    for part in ("consumequeue_ext", "consumequeue"):
        for path in sorted((Path(root) / part).rglob("0*")):
            if path.is_file() and any(path.read_bytes()):
                twin = tmp_path / "ours" / path.relative_to(root)
                assert twin.read_bytes() == path.read_bytes(), path
                compared += 1
    assert compared > 30


@virtual
async def test_a_message_whose_bits_say_no_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(WITH_BITS) as desk:
        await beat(desk, "a >= 90")
        await asyncio.sleep(0.01)  # what comes in the same millisecond is not trusted
        await numbered(desk, 100)
        seen: list[bytes] = []
        evaluate = Predicate.matches
        monkeypatch.setattr(
            Predicate, "matches", lambda self, message: seen.append(message) or evaluate(self, message)
        )
        answer = await desk.pull("T", 0, sysFlag=0, subVersion=1)
        assert bodies(answer) == [b"%d" % number for number in range(90, 100)]
        assert len(seen) == 10
        seen.clear()
        await beat(desk, "a >= 95", 2)  # bits of an earlier expression mean nothing for this one
        answer = await desk.pull("T", 0, sysFlag=0, subVersion=2)
        assert bodies(answer) == [b"%d" % number for number in range(95, 100)]
        assert len(seen) == 100


@virtual
async def test_with_extension_files_everything_else_is_as_without() -> None:
    async with running(WITH_BITS) as desk:
        await by_tags_and_delays(desk)


async def by_tags_and_delays(desk: Desk) -> None:
    for tag in ("A", "B", "A"):
        assert (await desk.send("T", tag.encode(), pairs={"TAGS": tag})).code == 0
    assert bodies(await desk.pull("T", 0, subscription="A")) == [b"A", b"A"]
    assert (await desk.send("T", b"late", pairs={"DELAY": "1"})).code == 0
    await asyncio.sleep(0.5)
    assert len(bodies(await desk.pull("T", 0))) == 3
    await asyncio.sleep(1)
    assert bodies(await desk.pull("T", 3)) == [b"late"]
