"""The master's side of the HA port, against played slaves."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit import virtual
from tests.unit.replication.ha_peers import MasterBench, PlayedLog

from turbopump.replication.master import MAX_SLAVES, MasterRules
from turbopump.replication.slave_connection import BUFFER_BYTES, OWN_PART, SlaveConnection
from turbopump.testing.loop import run_virtual

FILE = 1000


async def turns() -> None:
    await asyncio.sleep(0.2)


@virtual
async def test_an_apache_slave_gets_everything_from_its_offset_on_in_parts_within_files() -> None:
    bench = MasterBench(PlayedLog(file_size=FILE), MasterRules(part_bytes=300))
    await bench.start()
    bench.append(bytes(range(250)) * 10)
    slave = await bench.slave()
    slave.report(750)
    await turns()
    assert slave.data == bench.log.data[750:]
    assert slave.parts[0] == (750, 250)
    assert all(size <= 300 and offset % FILE + size <= FILE for offset, size in slave.parts)
    bench.append(b"more")
    await turns()
    assert slave.data == bench.log.data[750:]


@virtual
async def test_slaves_of_ours_get_larger_parts_than_the_setting_says() -> None:
    bench = MasterBench(PlayedLog(2 * OWN_PART), MasterRules(part_bytes=300))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(0)
    await turns()
    assert slave.parts == [(0, OWN_PART), (OWN_PART, OWN_PART)]


@virtual
async def test_an_empty_apache_slave_gets_the_last_file() -> None:
    bench = MasterBench(PlayedLog(2500, file_size=FILE))
    await bench.start()
    slave = await bench.slave()
    slave.report(0)
    await turns()
    assert slave.parts[0] == (2000, 500)


@virtual
async def test_a_slave_of_ours_begins_where_its_greeting_says() -> None:
    bench = MasterBench(PlayedLog(2500, file_size=FILE))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(0)
    slave.report(0, 0)
    await turns()
    assert len(slave.data) == 2500
    assert bench.copies.furthest == 0
    slave.report(2500, 2000)
    await turns()
    assert (bench.copies.count(2500, 2).in_memory, bench.copies.count(2500, 2).on_disk) == (2, 0)
    assert bench.copies.count(2000, 2).on_disk == 1


@virtual
async def test_a_slave_that_has_not_reported_does_not_count() -> None:
    bench = MasterBench(PlayedLog(100))
    await bench.start()
    await bench.slave()
    greeted = await bench.slave(takes_tables=True)
    greeted.greet(100)
    await turns()
    assert bench.copies.slaves == {}
    assert bench.copies.within(100, 1 << 30) == 0


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([(2000, 0)], "beyond this master's end"),
        ([(100, 100), (1 << 62, 0)], "beyond this master's end"),
        ([(100, 200)], "on disk"),
        ([(-5, 0)], "negative"),
        ([(100, -5)], "negative"),
    ],
)
@virtual
async def test_a_slave_that_reports_what_cannot_be_is_disconnected_and_counts_for_nothing(
    reports: list[tuple[int, int]], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = MasterBench(PlayedLog(1000))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(100)
    with caplog.at_level(logging.WARNING):
        for report in reports:
            slave.report(*report)
            await turns()
    assert slave.is_lost
    assert words in caplog.text
    assert bench.copies.slaves == {}
    assert not bench.master.connections


@virtual
async def test_a_slave_that_reports_more_than_it_was_sent_is_disconnected() -> None:
    bench = MasterBench(PlayedLog(1000))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.transport.pause_reading()
    slave.greet(0)
    await turns()
    bench.log.grow(bytes(10 * BUFFER_BYTES))
    slave.report(9 * BUFFER_BYTES, 0)
    await turns()
    assert slave.is_lost or not bench.copies.slaves
    assert bench.copies.slaves == {}


@virtual
async def test_an_apache_slave_that_is_ahead_never_acknowledges_anything() -> None:
    """Row 23: SEND_OK without a copy. Apache takes the report of a slave that is ahead as one."""
    bench = MasterBench(PlayedLog(1000))
    await bench.start()
    answers = []
    for _ in range(3):
        slave = await bench.slave()
        bench.copies.wait(1000, 2, 1e9, answers.append)
        slave.report(5000)
        await turns()
        slave.report(5000)
        await turns()
        assert slave.is_lost
        assert slave.data == b""
    assert answers == []


@virtual
async def test_an_apache_slave_counts_after_it_was_admitted_and_not_before() -> None:
    asked: list[int] = []
    decision: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def admit(connection: SlaveConnection, end: int) -> str | None:
        asked.append(end)
        return await decision

    bench = MasterBench(PlayedLog(1000), admit=admit)
    await bench.start()
    slave = await bench.slave()
    slave.report(500)
    await turns()
    slave.report(500)
    await turns()
    assert (asked, bench.copies.slaves, slave.data) == ([500], {}, b"")
    decision.set_result(None)
    await turns()
    assert bench.copies.furthest == 500
    assert len(slave.data) == 500


@virtual
async def test_an_apache_slave_that_is_no_copy_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def admit(connection: SlaveConnection, end: int) -> str | None:
        return "its last record is not that of this log"

    bench = MasterBench(PlayedLog(1000), admit=admit)
    await bench.start()
    slave = await bench.slave()
    slave.report(500)
    await turns()
    assert slave.is_lost
    assert bench.copies.slaves == {}
    assert "its last record is not that" in caplog.text


@virtual
async def test_a_slave_that_compared_with_another_process_has_to_compare_again() -> None:
    bench = MasterBench(PlayedLog(1000))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(500, run=1)
    slave.report(500, 0)
    await turns()
    assert slave.is_lost
    assert slave.data == b""


@pytest.mark.parametrize("start", [50, 1001])
@virtual
async def test_a_start_that_the_log_does_not_have_is_refused(start: int) -> None:
    bench = MasterBench(PlayedLog(1000, begin=100))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(start)
    await turns()
    assert slave.is_lost


@virtual
async def test_a_slave_whose_files_were_deleted_before_it_had_them_is_refused() -> None:
    bench = MasterBench(PlayedLog(4 * BUFFER_BYTES))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.transport.pause_reading()
    slave.greet(0)
    await turns()
    bench.log.min_offset = 4 * BUFFER_BYTES
    slave.transport.resume_reading()
    await turns()
    assert slave.is_lost
    assert len(slave.data) < 4 * BUFFER_BYTES


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8))
def test_garbage_never_counts_and_never_stops_the_master(pieces: list[bytes]) -> None:
    async def story() -> None:
        bench = MasterBench(PlayedLog(1000))
        await bench.start()
        slave = await bench.slave()
        for piece in pieces:
            slave.transport.write(piece)
            await turns()
        assert all(copy.received <= 1000 for copy in bench.copies.slaves.values())
        other = await bench.slave()
        other.report(400)
        await turns()
        assert len(other.data) == 600

    run_virtual(story())


@virtual
async def test_one_slave_too_many_is_refused_and_a_place_that_is_free_is_given() -> None:
    bench = MasterBench(PlayedLog(1000))
    await bench.start()
    slaves = [await bench.slave() for _ in range(MAX_SLAVES)]
    await turns()
    late = await bench.slave()
    await turns()
    assert late.is_lost
    assert not any(slave.is_lost for slave in slaves)
    slaves[0].transport.close()
    await turns()
    again = await bench.slave()
    again.report(500)
    await turns()
    assert len(again.data) == 500


# slow slaves


@virtual
async def test_a_slave_that_does_not_read_makes_the_master_hold_no_more_than_its_buffer() -> None:
    bench = MasterBench(PlayedLog(64 << 20, file_size=1 << 30))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.transport.pause_reading()
    slave.greet(0)
    slave.report(0, 0)
    await turns()
    for _ in range(100):
        bench.append(bytes(1 << 20))
    await turns()
    (connection,) = bench.master.connections
    assert connection._transport is not None
    assert connection._transport.get_write_buffer_size() <= BUFFER_BYTES + OWN_PART + 100
    slave.transport.resume_reading()
    await asyncio.sleep(5)
    assert len(slave.data) == bench.log.end


@virtual
async def test_of_tables_for_a_slow_slave_the_newest_contents_are_kept() -> None:
    bench = MasterBench(PlayedLog(64 << 20, file_size=1 << 30))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.transport.pause_reading()
    slave.greet(0)
    await turns()
    for number in range(1000):
        bench.master.push_table("topics.json", b"%d" % number + bytes(100_000))
        bench.master.push_table("groups.json", b"%d" % number)
    (connection,) = bench.master.connections
    assert connection._transport is not None
    assert connection._transport.get_write_buffer_size() <= BUFFER_BYTES + 2 * OWN_PART
    slave.transport.resume_reading()
    await asyncio.sleep(5)
    assert len(slave.data) == bench.log.end
    by_name = {name: contents for name, contents, _ in slave.tables}
    assert by_name["topics.json"][:3] == b"999"
    assert by_name["groups.json"] == b"999"
    assert len(slave.tables) < 10


@virtual
async def test_a_table_of_progress_comes_behind_the_part_of_the_log_that_it_counts() -> None:
    bench = MasterBench(PlayedLog(8 << 20, file_size=1 << 30), tables=(("delays", b"old", 8 << 20),))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(0)
    slave.transport.pause_reading()
    await turns()
    for number in range(5):
        bench.append(bytes(1 << 20))
        bench.master.push_table("delays", b"%d" % number, bench.log.end)
    slave.transport.resume_reading()
    await asyncio.sleep(5)
    after = {contents: before for _, contents, before in slave.tables}
    assert after[b"old"] >= 8 << 20
    assert after[b"4"] >= 13 << 20
    for number in range(4):
        assert after.get(b"%d" % number, 1 << 40) >= (9 + number) << 20


@virtual
async def test_tables_that_waited_for_the_same_part_of_the_log_come_once_each() -> None:
    end = 8 << 20
    tables = (("delays", b"delays", end), ("transactions", b"transactions", end))
    bench = MasterBench(PlayedLog(end, file_size=1 << 30), tables=tables)
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(0)
    slave.transport.pause_reading()
    await turns()
    bench.master.push_table("delays", b"newer delays", end)
    slave.transport.resume_reading()
    await asyncio.sleep(5)
    assert sorted(contents for _, contents, _ in slave.tables) == [
        b"delays",
        b"newer delays",
        b"transactions",
    ]


@virtual
async def test_a_busy_log_does_not_starve_a_table_of_progress() -> None:
    """A slave that is always a little behind still gets an older table when it has reached its part."""
    bench = MasterBench(PlayedLog(4 << 20, file_size=1 << 30))
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(0)
    slave.transport.pause_reading()
    await turns()
    for number in range(40):
        bench.append(bytes(1 << 20))
        bench.master.push_table("delays", b"%d" % number, bench.log.end)
        slave.transport.resume_reading()
        await asyncio.sleep(0)
        slave.transport.pause_reading()
    slave.transport.resume_reading()
    await asyncio.sleep(0.5)
    assert slave.tables


@virtual
async def test_a_slow_slave_does_not_delay_another() -> None:
    bench = MasterBench(PlayedLog(16 << 20, file_size=1 << 30))
    await bench.start()
    slow, fast = await bench.slave(takes_tables=True), await bench.slave(takes_tables=True)
    slow.transport.pause_reading()
    slow.greet(0, broker_id=1)
    fast.greet(0, broker_id=2)
    await turns()
    assert len(fast.data) == 16 << 20


@virtual
async def test_old_parts_are_read_in_a_thread_before_they_are_sent() -> None:
    bench = MasterBench(PlayedLog(2500, file_size=FILE))
    bench.log.cold = {0, 1000}
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(0)
    await asyncio.sleep(1)
    assert (len(slave.data), bench.log.fetches) == (2500, 2)


@virtual
async def test_a_log_that_cannot_be_read_ends_the_connection_with_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = MasterBench(PlayedLog(2500, file_size=FILE))
    bench.log.cold, bench.log.fails = {0}, True
    await bench.start()
    slave = await bench.slave(takes_tables=True)
    slave.greet(0)
    await asyncio.sleep(1)
    assert slave.is_lost
    assert "cannot be read" in caplog.text


# time


@virtual
async def test_a_quiet_connection_gets_heartbeats_with_the_next_offset() -> None:
    bench = MasterBench(PlayedLog(100))
    await bench.start()
    slave = await bench.slave()
    slave.report(100)
    for _ in range(4):
        await asyncio.sleep(5)
        slave.report(100)
    assert [part for part in slave.parts if part == (100, 0)]
    assert 2 <= len(slave.parts) <= 4


@virtual
async def test_a_silent_slave_is_closed_after_the_housekeeping_time() -> None:
    bench = MasterBench(PlayedLog(100))
    await bench.start()
    slave, mute = await bench.slave(), await bench.slave()
    slave.report(100)
    await asyncio.sleep(19)
    assert not slave.is_lost
    await asyncio.sleep(3)
    assert slave.is_lost
    assert mute.is_lost
    assert bench.copies.slaves == {}


@virtual
async def test_slaves_that_come_and_go_leave_one_task_behind_at_most() -> None:
    bench = MasterBench(PlayedLog(100))
    await bench.start()
    for _ in range(20):
        slave = await bench.slave()
        await asyncio.sleep(0.1)
        slave.transport.close()
        await asyncio.sleep(0.1)
    assert len(bench.master._tasks) <= 1
    await asyncio.sleep(2)
    assert len(bench.master._tasks) == 0


@virtual
async def test_a_slave_that_comes_again_replaces_its_older_connection() -> None:
    bench = MasterBench(PlayedLog(100))
    await bench.start()
    older = await bench.slave(takes_tables=True)
    older.greet(100)
    older.report(100, 100)
    await turns()
    assert bench.copies.count(100, 2).in_memory == 2
    newer = await bench.slave(takes_tables=True)
    newer.greet(100)
    newer.report(100, 100)
    await turns()
    assert older.is_lost
    assert bench.copies.count(100, 2).in_memory == 2


@virtual
async def test_a_stop_answers_all_who_wait_and_closes_all_connections() -> None:
    bench = MasterBench(PlayedLog(100))
    await bench.start()
    slave = await bench.slave()
    slave.report(100)
    await turns()
    answers: list[object] = []
    bench.copies.wait(200, 2, 1e9, answers.append)
    await bench.master.stop()
    await turns()
    assert slave.is_lost
    assert len(answers) == 1
    with pytest.raises(OSError, match="no listener"):
        await bench.slave()
