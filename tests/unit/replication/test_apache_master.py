"""Our slave with an Apache master: compared by requests 28 and 33; tables by 21, 43, 45, 201, 402."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.compat.ha import VERSIONS, requests
from tests.kit import virtual
from tests.unit.replication.kit import FILE_SIZE, Node, Pair, pair
from tests.unit.replication.played import PlayedLog, PlayedMaster
from tests.unit.replication.promotion_kit import bodies

from turbopump.protocol import dialect
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import decode
from turbopump.protocol.frame import Frame, cut
from turbopump.protocol.headers.offsets import QueryConsumerOffsetRequest

MASTER = "brokerRole=ASYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"
MASTER_IP = "10.0.0.6"
TABLES = (21, 43, 45, 201, 402)


@dataclass
class Scene:
    world: Pair
    source: Node
    """A broker of ours whose log the played master has."""
    master: PlayedMaster
    slave: Node

    async def copied(self) -> None:
        async with asyncio.timeout(60):
            while self.slave.store.replica.dispatched < self.master.log.end:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)

    async def offsets(self, queues: int) -> list[int]:
        """Returns the offsets of group CG on the slave."""
        found = []
        for queue in range(queues):
            header = QueryConsumerOffsetRequest(consumerGroup="CG", topic="Main", queueId=queue)
            answer = await self.world.call(self.slave, RequestCode.QUERY_CONSUMER_OFFSET, header)
            found.append(int((answer.ext or {}).get("offset", -1)))
        return found

    async def missing(self) -> str:
        """Returns what the slave says that its copy lacks."""
        await asyncio.sleep(1)
        answer = await self.world.call(self.slave, RequestCode.REPLICA_STATUS)
        return str(json.loads(answer.body)["missing"])

    async def grow(self, count: int = 5) -> None:
        """Has the source store more, and the master send it."""
        before = len(self.source.log)
        for number in range(count):
            await self.world.send(self.source, b"more%03d" % number + bytes(1000))
        self.master.append(self.source.log[before:])


@contextlib.asynccontextmanager
async def scene(
    sends: int = 20, body: int = 1000, first_heartbeat: bool = False, begin: int = 0
) -> AsyncIterator[Scene]:
    """`begin`: where the master's log begins, since older files were deleted."""
    async with pair() as world:
        source = world.node("brokerRole=ASYNC_MASTER\nbrokerName=source\n")
        await source.start()
        for number in range(sends):
            await world.send(source, b"%03d" % number + bytes(body))
        log = PlayedLog(source.log[begin:], begin)
        master = PlayedMaster(world, MASTER_IP, log, FILE_SIZE, first_heartbeat)
        master.tables = _captured_tables("4.9.7")
        slave = world.node(SLAVE)
        await master.start()
        try:
            yield Scene(world, source, master, slave)
        finally:
            await slave.stop()
            await master.stop()


@pytest.mark.parametrize("first_heartbeat", [True, False], ids=VERSIONS)
@virtual
async def test_an_empty_slave_copies_and_follows(first_heartbeat: bool) -> None:
    async with scene(first_heartbeat=first_heartbeat) as it:
        await it.slave.start()
        await it.copied()
        await it.grow()
        await it.copied()
        assert it.slave.log == it.source.log
        assert it.master.reports[0] == 0
        await asyncio.sleep(1)
        assert it.master.reports[-1] == it.master.log.end
        assert it.master.log.asked == []


@virtual
async def test_an_empty_slave_takes_the_last_file_of_an_apache_master_and_says_what_it_lacks() -> None:
    async with scene(sends=100, body=30_000) as it:
        await it.slave.start()
        await it.copied()
        begin = it.slave.store.replica.min_offset
        assert begin == it.master.log.end // FILE_SIZE * FILE_SIZE > 0
        assert it.slave.log == it.source.log[begin:]
        assert await it.missing() == f"it lacks the first {begin} bytes of its master's log"
        await it.slave.stop()
        await it.slave.start()
        await it.grow()
        await it.copied()
        assert await it.missing() == f"it lacks the first {begin} bytes of its master's log"


@virtual
async def test_a_slave_of_a_master_that_has_deleted_files_begins_behind_them() -> None:
    async with scene(sends=50, body=30_000, begin=FILE_SIZE) as it:
        await it.slave.start()
        await it.copied()
        assert it.slave.store.replica.min_offset == FILE_SIZE
        assert it.slave.log == it.source.log[FILE_SIZE:]
        assert await it.missing() == ""


@virtual
async def test_a_slave_that_comes_back_compares_its_last_record_and_goes_on() -> None:
    async with scene() as it:
        await it.slave.start()
        await it.copied()
        await it.slave.stop()
        end = it.master.log.end
        await it.grow()
        await it.slave.start()
        await it.copied()
        assert it.slave.log == it.source.log
        assert len(it.master.log.asked) == 1
        assert 0 < it.master.log.asked[0] < end
        assert end in it.master.reports


@virtual
async def test_a_slave_with_another_past_stops_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as it:
        await it.slave.start()
        await it.copied()
        await it.slave.stop()
        before = it.source.log
        it.master.log.data = before[:-3] + b"xyz" + bytes(50_000)
        reports = len(it.master.reports)
        await it.slave.start()
        await asyncio.sleep(60)
        assert it.slave.log == before
        assert len(it.master.reports) == reports
        lines = [record.message for record in caplog.records if "holds other records" in record.message]
        assert len(lines) == 1


@virtual
async def test_a_slave_that_is_ahead_of_an_apache_master_stops_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Known failure 23: the master lost its disk. It grows meanwhile; the line is not repeated."""
    async with scene() as it:
        await it.slave.start()
        await it.copied()
        await it.slave.stop()
        before = it.source.log
        it.master.log.data = b""
        await it.slave.start()
        for _ in range(10):
            it.master.append(bytes(100))
            await asyncio.sleep(6)
        assert it.slave.log == before
        lines = [record.message for record in caplog.records if "beyond the master's end" in record.message]
        assert len(lines) == 1
        assert "turbopump replica" in lines[0]


def _captured_tables(version: str) -> dict[int, bytes]:
    """Returns the last answer to each request for a table that an Apache slave got."""
    tables: dict[int, bytes] = {}
    for row in requests(version):
        frames: list[Frame] = []
        cut(row.answer, frames)
        if row.code in TABLES:
            tables[row.code] = decode(frames[0]).body
    return tables


@pytest.mark.parametrize("version", VERSIONS)
@virtual
async def test_the_tables_of_an_apache_master_are_taken(version: str) -> None:
    """As they were captured: keys of offsets without quotes, and 5.5's `pullOffsetTable`."""
    async with scene() as it:
        it.master.tables = _captured_tables(version)
        await it.slave.start()
        await it.copied()
        await asyncio.sleep(15)
        topics = await it.world.call(it.slave, RequestCode.GET_ALL_TOPIC_CONFIG)
        groups = await it.world.call(it.slave, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert dialect.loads(topics.body)["topicConfigTable"]["Main"]["readQueueNums"] == 4
        assert dialect.loads(groups.body)["subscriptionGroupTable"]["CG"]["retryMaxTimes"] == 16
        offsets = {"4.9.7": [47, 46, 47, 47], "5.5.0": [103, 103, 105, 103]}[version]
        assert await it.offsets(4) == offsets
        delays = dialect.loads(it.slave.disk.read("/store/config/delayOffset.json"))
        assert delays["offsetTable"] == {"3": {"4.9.7": 1, "5.5.0": 2}[version]}


MODES = b'{"messageRequestModeMap":{"Main":{"CG":{"consumerGroup":"CG","mode":"POP","topic":"Main"}}}}'


@virtual
async def test_request_modes_are_taken_kept_and_handed_on(caplog: pytest.LogCaptureFixture) -> None:
    """A slave of 5.x asks for them, too: an Apache broker that opens this store later must have them."""
    async with scene() as it:
        it.master.tables = _captured_tables("5.5.0") | {402: MODES}
        await it.slave.start()
        await it.copied()
        await asyncio.sleep(15)
        assert (
            "1 groups are set to POP, which is not supported: served in pull mode (CG on Main)" in caplog.text
        )
        await it.slave.stop()
        await it.slave.start(MASTER)
        answer = await it.world.call(it.slave, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert json.loads(answer.body)["messageRequestModeMap"]["Main"]["CG"]["mode"] == "POP"


DELAY_FILE = "/store/config/delayOffset.json"
DONE = b'{"offsetTable":{2:1}}'  # the first message of the second level was delivered


async def delivered_at_the_master(it: Scene) -> int:
    """Has the master deliver a delayed message whose copy is not sent; returns where its copy begins."""
    await it.slave.start()
    await it.world.send(it.source, b"late", properties="DELAY\x012\x02")
    before = len(it.source.log)
    it.master.append(it.source.log[it.master.log.end :])
    await it.copied()
    await asyncio.sleep(6)
    assert len(it.source.log) > before
    it.master.is_sending = False
    it.master.log.data = it.source.log
    it.master.tables = it.master.tables | {45: DONE}
    await asyncio.sleep(25)
    assert it.slave.store.log.end == before
    return before


async def promoted(it: Scene) -> None:
    """Ends the master, and makes the slave the master for a while."""
    await it.master.stop()
    await it.slave.stop()
    await it.slave.start(MASTER)
    await asyncio.sleep(5)


@virtual
async def test_a_delivery_that_an_apache_master_counts_and_never_sent_is_made_by_the_slave() -> None:
    async with scene() as it:
        await delivered_at_the_master(it)
        await promoted(it)
        assert bodies(it.slave).count(b"late") == 1


@virtual
async def test_a_delivery_of_an_apache_master_that_was_copied_is_not_made_again() -> None:
    async with scene() as it:
        copies_at = await delivered_at_the_master(it)
        it.master.is_sending = True
        it.master.append(b"")
        await it.copied()
        await asyncio.sleep(15)
        file = json.loads(it.slave.disk.read(DELAY_FILE))
        assert file["offsetTable"] == {"2": 1}
        assert file["logOffset"] == it.master.log.end > copies_at
        await promoted(it)
        assert bodies(it.slave).count(b"late") == 1


@virtual
async def test_offsets_ahead_of_the_copied_log_of_an_apache_master_come_back_to_its_end() -> None:
    async with scene() as it:
        it.master.tables |= {43: b'{"offsetTable":{"T@CG":{0:25}}}'}
        await it.slave.start()
        await it.copied()
        await asyncio.sleep(15)
        await it.master.stop()
        await it.slave.stop()
        await it.slave.start(MASTER)
        header = QueryConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0)
        answer = await it.world.call(it.slave, RequestCode.QUERY_CONSUMER_OFFSET, header)
        assert (answer.ext or {})["offset"] == "20"


@virtual
async def test_delay_offsets_that_cannot_be_read_leave_the_slave_incomplete() -> None:
    async with scene() as it:
        it.master.tables |= {45: b"[1, 2]"}
        await it.slave.start()
        await it.copied()
        await asyncio.sleep(15)
        assert "the table delayOffset.json: not a table of delay offsets" in await it.missing()


@virtual
async def test_a_master_that_knows_no_request_modes_is_not_complained_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as it:
        it.master.tables = _captured_tables("4.9.7")
        assert 402 not in it.master.tables
        await it.slave.start()
        await it.copied()
        await asyncio.sleep(15)
        assert "Cannot copy the tables" not in caplog.text
        assert await it.missing() == ""


@virtual
async def test_offsets_with_quoted_keys_are_taken_too() -> None:
    async with scene() as it:
        it.master.tables = _captured_tables("5.5.0") | {43: b'{"offsetTable":{"Main@CG":{"0":5,"1":6}}}'}
        await it.slave.start()
        await it.copied()
        await asyncio.sleep(15)
        assert await it.offsets(2) == [5, 6]


@virtual
async def test_a_table_that_cannot_be_read_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as it:
        it.master.tables = _captured_tables("4.9.7") | {21: b"{broken"}
        await it.slave.start()
        await it.copied()
        await asyncio.sleep(15)
        assert await it.offsets(1) == [47]
        assert "topics.json that cannot be read" in caplog.text


@pytest.mark.parametrize("end", ["the connection", "the slave", "its power"])
@virtual
async def test_a_slave_that_has_only_the_beginning_of_a_record_goes_on(end: str) -> None:
    """The first record is larger than a part, and what ends comes between two parts."""
    async with scene(sends=2, body=100_000) as it:
        whole = it.master.log.data
        it.master.log.data = whole[:40_000]
        await it.slave.start()
        async with asyncio.timeout(60):
            while it.slave.store.replica.end < 40_000:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)
        if end == "the connection":
            it.world.network.break_connections(it.slave.ip)
        else:
            await it.slave.stop()
            if end == "its power":
                it.slave.disk = it.slave.disk.crash()
        it.master.log.data = whole
        if end != "the connection":
            await it.slave.start()
        await it.copied()
        assert it.slave.log == it.source.log


@virtual
async def test_a_slave_whose_last_record_was_deleted_by_its_master_starts_over() -> None:
    """It ends where the master's first file begins: nothing of the master's can be compared."""
    async with scene(sends=40, body=30_000) as it:
        whole = it.master.log.data
        it.master.log.data = whole[: FILE_SIZE // 2]
        await it.slave.start()
        await asyncio.sleep(5)
        it.master.append(whole[FILE_SIZE // 2 : FILE_SIZE])
        await it.copied()
        await it.slave.stop()
        it.master.log.data, it.master.log.begin = whole[FILE_SIZE:], FILE_SIZE
        await it.slave.start()
        await it.copied()
        assert it.slave.log == it.source.log[FILE_SIZE:]


@virtual
async def test_a_master_that_is_too_busy_to_show_a_record_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as it:
        await it.slave.start()
        await it.copied()
        await it.slave.stop()
        it.master.log.busy = 3
        await it.grow()
        await it.slave.start()
        await it.copied()
        assert it.slave.log == it.source.log
        assert "holds other records" not in caplog.text


@virtual
async def test_an_empty_slave_follows_an_empty_master() -> None:
    """Without a file, an Apache master says that its log begins at -1."""
    async with scene() as it:
        whole, it.master.log.data = it.master.log.data, b""
        await it.slave.start()
        await asyncio.sleep(20)
        assert set(it.master.reports) == {0}
        it.master.append(whole)
        await it.copied()
        assert it.slave.log == whole
        assert await it.missing() == ""
