"""The slave's side, against a played master: every failure ends in a state with a reason."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.replication.ha_peers import RUN
from tests.unit.replication.slave_kit import ADDRESS, FILE, Bench, log_of
from tests.unit.store.replica_kit import bytes_of, queues_of

from turbopump.protocol import ha
from turbopump.protocol.errors import BrokenBody
from turbopump.replication import slave as slave_module
from turbopump.replication.comparison import CannotCompare, Extent, Relation, Verdict
from turbopump.replication.slave import SlaveState


@virtual
async def test_a_slave_of_ours_greets_copies_and_reports() -> None:
    async with Bench(log_of()) as bench:
        master = await bench.connected()
        await asyncio.sleep(0.1)
        assert master.reader.greeting == ha.Greeting(RUN, 0, 1)
        assert bench.slave.state is SlaveState.COPYING
        master.send(0, bytes_of(bench.log))
        await bench.until(SlaveState.FOLLOWING)
        await asyncio.sleep(1)
        assert bytes_of(bench.store) == bytes_of(bench.log)
        assert queues_of(bench.store) == queues_of(bench.log)
        assert master.reports[-1].end == bench.log.log.end
        await asyncio.sleep(12)  # ASYNC_FLUSH: the sync comes in its own time, and is reported
        assert master.reports[-1] == ha.Report(bench.log.log.end, bench.log.log.end)
        assert all(report.synced <= report.end for report in master.reports)
        assert bench.progress.state.missing(bench.store.replica.end) == ""


@virtual
async def test_an_apache_master_gets_no_greeting_and_where_its_log_begins_is_noted() -> None:
    """It sends its last file only: the copy lacks the beginning, and says so."""
    async with Bench(log_of(), run=None) as bench:
        master = await bench.connected()
        await asyncio.sleep(0.1)
        assert master.reader.greeting is None
        assert master.reports == [ha.Report(0)]
        master.send(FILE, bytes_of(bench.log, FILE))
        await bench.until(SlaveState.FOLLOWING)
        assert bench.progress.state.begins == FILE
        assert "lacks the first 4096 bytes" in bench.progress.state.missing(bench.store.replica.end)


@virtual
async def test_a_master_that_hangs_is_given_up_with_its_reason() -> None:
    async with Bench(log_of()) as bench:
        master = await bench.connected()
        await bench.until(SlaveState.SEARCHING, within_s=30)
        assert "silent" in bench.slave.trouble
        await asyncio.sleep(0.1)
        assert master.is_lost
        await bench.connected(2)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (ha.encode_part_head(-7, 5), "impossible part"),
        (ha.encode_part_head(0, 1 << 30), "impossible part"),
        (ha.encode_part_head(0, -1), "impossible part"),
        (ha.encode_part_head(-1, 2) + b"\x00x", "impossible name"),
        (ha.encode_part_head(1000, 10) + bytes(10), "mappedFileSizeCommitLog"),
    ],
)
@virtual
async def test_what_is_no_part_ends_the_connection_and_is_tried_again(data: bytes, words: str) -> None:
    async with Bench(log_of()) as bench:
        (await bench.connected()).transport.write(data)
        await bench.until(SlaveState.SEARCHING)
        assert words in bench.slave.trouble
        master = await bench.connected(2)
        master.send(0, bytes_of(bench.log))
        await bench.until(SlaveState.FOLLOWING)


@virtual
async def test_a_part_that_does_not_continue_the_log_is_not_appended() -> None:
    async with Bench(log_of()) as bench:
        master = await bench.connected()
        master.send(0, bytes_of(bench.log, 0, 1000))
        master.send(1200, bytes_of(bench.log, 1200, 1500))
        await bench.until(SlaveState.SEARCHING)
        assert "but this log ends at 1000" in bench.slave.trouble
        assert bytes_of(bench.store) == bytes_of(bench.log, 0, 1000)


@virtual
async def test_bytes_that_are_no_log_stop_the_slave_for_good(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench(log_of()) as bench:
        master = await bench.connected()
        master.send(0, bytes_of(bench.log, 0, FILE) + b"\xff" * 500)
        with caplog.at_level(logging.ERROR):
            await bench.until(SlaveState.STOPPED)
            end = bench.store.replica.end
            await asyncio.sleep(120)
        assert bench.slave.state is SlaveState.STOPPED
        assert "no log" in bench.slave.trouble
        assert "replica compare" in bench.slave.trouble
        assert len(bench.connections) == 1, "it does not ask for more"
        assert bench.store.replica.end == end
        assert caplog.text.count("stopped") == 1


@pytest.mark.parametrize("relation", [Relation.AHEAD, Relation.DIFFERENT])
@virtual
async def test_a_log_that_is_no_copy_stops_the_slave_with_one_line(
    relation: Relation, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(log_of())
    ends = iter(range(100, 10_000))
    bench.verdict = lambda: Verdict(relation, 0, Extent(0, next(ends)), RUN, FILE)
    with caplog.at_level(logging.ERROR):
        async with bench:
            await asyncio.sleep(100)
            assert bench.slave.state is SlaveState.STOPPED
            assert "turbopump replica" in bench.slave.trouble
            assert bench.connections == []
    assert caplog.text.count("stopped") == 1, "though the master's end, which is in it, grows"


@virtual
async def test_files_of_another_size_stop_the_slave_and_it_goes_on_with_another_master() -> None:
    bench = Bench(log_of())
    bench.verdict = lambda: Verdict(Relation.EMPTY, 0, Extent(0, 100), RUN, 2 * FILE)
    async with bench:
        await bench.until(SlaveState.STOPPED)
        assert "mappedFileSizeCommitLog" in bench.slave.trouble
        bench.verdict = bench.copy_of_log
        await bench.until(SlaveState.COPYING)


@virtual
async def test_a_log_that_the_master_has_outrun_is_set_aside_and_copied_again() -> None:
    async with Bench(log_of()) as bench:
        (await bench.connected()).send(0, bytes_of(bench.log))
        await bench.until(SlaveState.FOLLOWING)
        newer = log_of(150)
        newer.commit_log.mark_synced(newer.log.end)
        while newer.log.min_offset <= bench.log.log.end:
            newer.commit_log.delete_first()
        bench.log = newer
        extent = Extent(newer.log.min_offset, newer.log.end)
        bench.verdict = lambda: (
            bench.copy_of_log()
            if bench.store.replica.is_empty or bench.store.replica.min_offset
            else Verdict(Relation.OUTDATED, extent.begin, extent, RUN, FILE)
        )
        bench.connections[-1].transport.close()
        master = await bench.connected(2)
        await asyncio.sleep(0.1)
        assert master.reader.greeting == ha.Greeting(RUN, extent.begin, 1)
        master.send(extent.begin, bytes_of(newer))
        await bench.until(SlaveState.FOLLOWING)
        assert bytes_of(bench.store) == bytes_of(newer)
        assert bench.progress.state.missing(bench.store.replica.end) == ""


# failures around the slave


@virtual
async def test_a_table_that_cannot_be_taken_is_named_and_the_log_goes_on() -> None:
    async with Bench(log_of()) as bench:
        master = await bench.connected()

        def take(name: str, contents: bytes) -> None:
            if contents == b"broken":
                raise BrokenBody("not a table")
            if contents == b"bug":
                raise KeyError("a defect")

        bench.take = take
        for name, contents in (("topics.json", b"broken"), ("offsets.json", b"bug"), ("fine.json", b"{}")):
            master.transport.write(ha.encode_table(name, contents))
        master.send(0, bytes_of(bench.log))
        await bench.until(SlaveState.FOLLOWING)
        assert set(bench.slave.untaken) == {"topics.json", "offsets.json"}
        assert bytes_of(bench.store) == bytes_of(bench.log)
        master.transport.write(ha.encode_table("topics.json", b"good"))
        await asyncio.sleep(0.1)
        assert set(bench.slave.untaken) == {"offsets.json"}


@pytest.mark.parametrize("where", ["address", "verdict"])
@virtual
async def test_a_defect_anywhere_is_a_reason_and_not_the_end(where: str) -> None:
    bench = Bench(log_of())
    good = getattr(bench, where)

    def fail() -> Any:
        raise RuntimeError("a defect")

    setattr(bench, where, fail)
    async with bench:
        await asyncio.sleep(5)
        assert (bench.slave.state, "a defect" in bench.slave.trouble) == (SlaveState.SEARCHING, True)
        setattr(bench, where, good)
        (await bench.connected()).send(0, bytes_of(bench.log))
        await bench.until(SlaveState.FOLLOWING)


@virtual
async def test_a_log_that_cannot_be_set_aside_is_a_reason() -> None:
    bench = Bench(log_of())

    async def fail() -> list[str]:
        raise OSError("the disk is full")

    bench.aside = fail
    bench.verdict = lambda: Verdict(Relation.OUTDATED, 0, Extent(5000, 9000), RUN, FILE)
    async with bench:
        await asyncio.sleep(5)
        assert bench.slave.state is SlaveState.SEARCHING
        assert "the disk is full" in bench.slave.trouble


@virtual
async def test_no_master_and_one_that_does_not_answer_are_reasons() -> None:
    bench = Bench(log_of())
    bench.address = lambda: None

    def silent() -> Verdict:
        raise CannotCompare("the master at x cannot be asked: timeout")

    async with bench:
        await asyncio.sleep(1)
        assert "no master is registered" in bench.slave.trouble
        bench.address, bench.verdict = lambda: ADDRESS, silent
        await asyncio.sleep(3)
        assert "cannot be asked" in bench.slave.trouble
        bench.verdict = bench.copy_of_log
        bench.listener.close()
        await asyncio.sleep(3)
        assert "cannot be reached" in bench.slave.trouble
        assert bench.slave.state is SlaveState.SEARCHING


@virtual
async def test_a_full_disk_is_a_state_of_its_own_and_copying_goes_on_when_there_is_space(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(log_of())
    bench.sends_at_once = lambda: (
        bench.store.replica.end if not bench.store.replica.is_empty else 0,
        bytes_of(bench.log, bench.store.replica.end if not bench.store.replica.is_empty else 0),
    )
    bench.disk.capacity = 2 * FILE + 3000
    with caplog.at_level(logging.ERROR):
        async with bench:
            await bench.until(SlaveState.WAITING)
            await asyncio.sleep(60)
            assert bench.slave.state is SlaveState.WAITING
            assert "full" in bench.slave.trouble
            assert len(bench.connections) <= 2, "it reads nothing while it cannot write"
            bench.disk.capacity = 1 << 40
            await bench.until(SlaveState.FOLLOWING)
            await asyncio.sleep(2)
            assert bytes_of(bench.store) == bytes_of(bench.log)
            assert queues_of(bench.store) == queues_of(bench.log)
    assert caplog.text.count("waits:") == 1


@virtual
async def test_queues_that_cannot_be_written_are_a_reason_and_are_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Bench(log_of()) as bench:
        master = await bench.connected()
        dispatch = bench.store.replica.dispatch
        monkeypatch.setattr(bench.store.replica, "dispatch", _fail)
        master.send(0, bytes_of(bench.log))
        await asyncio.sleep(2)
        assert "cannot be put into queues" in bench.slave.trouble
        assert bench.store.replica.end == bench.log.log.end, "copying does not wait for it"
        monkeypatch.setattr(bench.store.replica, "dispatch", dispatch)
        await asyncio.sleep(2)
        assert (bench.slave.state, bench.slave.trouble) == (SlaveState.FOLLOWING, "")
        assert queues_of(bench.store) == queues_of(bench.log)


def _fail(size: int = 0) -> bool:
    raise OSError("the disk is full")


@virtual
async def test_row_4_what_was_copied_before_the_master_died_reaches_the_queues_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """apache/rocketmq#467, #405: the tail that was not dispatched when the master died stayed unreadable."""
    async with Bench(log_of()) as bench:
        master = await bench.connected()
        dispatch = bench.store.replica.dispatch
        monkeypatch.setattr(bench.store.replica, "dispatch", lambda size=0: False)
        master.send(0, bytes_of(bench.log))
        await asyncio.sleep(0.1)
        assert queues_of(bench.store) == {}
        bench.listener.close()
        master.transport.close()
        monkeypatch.setattr(bench.store.replica, "dispatch", lambda size=0: dispatch(300))
        await asyncio.sleep(3)
        assert bench.slave.state is SlaveState.SEARCHING
        assert queues_of(bench.store) == queues_of(bench.log)


@virtual
async def test_reading_waits_while_too_much_is_not_dispatched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_module, "BACKLOG_BYTES", 2000)
    async with Bench(log_of()) as bench:
        master = await bench.connected()
        dispatch = bench.store.replica.dispatch
        monkeypatch.setattr(bench.store.replica, "dispatch", _fail)
        data = bytes_of(bench.log)
        for at in range(0, len(data), 500):
            master.send(at, data[at : at + 500])
            await asyncio.sleep(0.01)
        copied = bench.store.replica.end
        assert copied < len(data)
        await asyncio.sleep(60)
        assert bench.store.replica.end == copied
        assert not master.is_lost, "a master that is not read is not silent"
        monkeypatch.setattr(bench.store.replica, "dispatch", dispatch)
        await asyncio.sleep(5)
        assert bench.store.replica.end == len(data)
        assert queues_of(bench.store) == queues_of(bench.log)
