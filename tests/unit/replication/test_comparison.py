"""What a slave's log is to its master's: every verdict, by a master of ours and by any other."""

from __future__ import annotations

import zlib
from typing import Any, cast

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.store.lab import draft, fill, new_disk, open_store, records
from tests.unit.store.replica_kit import bytes_of, copy, slave_on

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.headers.replicas import ReplicaCompareRequest, ReplicaCompareResponse
from turbopump.remoting.client import Client
from turbopump.replication.comparison import (
    STRETCH,
    CannotCompare,
    Extent,
    LogComparison,
    Relation,
    Verdict,
    judge,
)
from turbopump.store.store import Store

RUN = 7


class PlayedClient:
    """Answers as a master over a store would, ours or Apache's."""

    def __init__(self, store: Store, is_ours: bool) -> None:
        self.store = store
        self.is_ours = is_ours
        self.failure: BaseException | None = None
        self.answer: Command | None = None
        self.asked: list[int] = []

    async def call(self, address: str, request: Command, timeout_s: float) -> Command:
        self.asked.append(request.code)
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            return self.answer
        replica = self.store.replica
        if request.code == RequestCode.REPLICA_COMPARE:
            if not self.is_ours:
                return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            header = ReplicaCompareRequest.from_ext(request.ext)
            low = max(header.begin, replica.min_offset)
            high = max(low, min(header.end, replica.end))
            checksum = zlib.crc32(replica.read(low, high)) if low < high else 0
            found = ReplicaCompareResponse(
                RUN, replica.min_offset, replica.end, replica.file_size, low, high, checksum
            )
            return Command(0, ext=found.to_ext())
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            figures = {"commitLogMinOffset": str(replica.min_offset), "commitLogMaxOffset": str(replica.end)}
            return Command(0, body=msgspec.json.encode({"table": figures}))
        found_record = replica.record(int((request.ext or {})["offset"]))
        return Command(0 if found_record is not None else 1, body=found_record or b"")


async def verdict(mine: Store, master: Store, is_ours: bool) -> Verdict:
    client = PlayedClient(master, is_ours)
    return await LogComparison(cast(Client, client), mine.replica).compare("10.0.0.1:10911")


def log(count: int, start: int = 0) -> Store:
    store = open_store(new_disk())
    fill(store, count, start=start)
    return store


def copied(master: Store, until: int | None = None) -> Store:
    slave = slave_on()
    copy(master, slave, until=until)
    return slave


OURS = pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "apache"])


@pytest.mark.parametrize(
    ("mine", "master", "is_same", "expected"),
    [
        (None, (0, 0), False, Relation.EMPTY),
        (None, (100, 900), True, Relation.EMPTY),
        ((0, 900), (0, 900), True, Relation.COPY),
        ((0, 500), (0, 900), True, Relation.COPY),
        ((0, 500), (0, 900), False, Relation.DIFFERENT),
        ((0, 901), (0, 900), True, Relation.AHEAD),
        ((0, 901), (0, 900), False, Relation.AHEAD),
        ((0, 901), (0, 0), False, Relation.AHEAD),
        ((0, 500), (600, 900), True, Relation.OUTDATED),
        ((0, 500), (500, 900), True, Relation.OUTDATED),
        ((500, 500), (500, 900), True, Relation.COPY),
        ((600, 700), (0, 900), True, Relation.COPY),
    ],
)
def test_every_relation(
    mine: tuple[int, int] | None, master: tuple[int, int], is_same: bool, expected: Relation
) -> None:
    found = judge(None if mine is None else Extent(*mine), Extent(*master), is_same)
    assert found is expected


@OURS
@virtual
async def test_an_empty_slave_begins_at_the_masters_first_offset(is_ours: bool) -> None:
    master = log(100)
    master.commit_log.mark_synced(master.log.end)
    master.commit_log.delete_first()
    found = await verdict(slave_on(), master, is_ours)
    assert (found.relation, found.start, found.may_copy) == (Relation.EMPTY, 4096, True)
    assert (found.run, found.file_size) == ((RUN, 4096) if is_ours else (None, None))


@OURS
@virtual
async def test_a_copy_goes_on_at_its_end_wherever_that_is(is_ours: bool) -> None:
    master = log(100)
    ends = [one.physical_offset + one.size for one in records(master)]
    for until in (ends[0], ends[17], ends[50], ends[-1], ends[30] + 60):
        found = await verdict(copied(master, until), master, is_ours)
        assert (found.relation, found.start) == (Relation.COPY, until)


@OURS
@virtual
async def test_a_slave_that_is_ahead_may_not_copy(is_ours: bool) -> None:
    found = await verdict(copied(log(100)), log(50), is_ours)
    assert (found.relation, found.may_copy) == (Relation.AHEAD, False)


@OURS
@virtual
async def test_a_slave_with_other_records_may_not_copy(is_ours: bool) -> None:
    found = await verdict(copied(log(50, start=500)), log(100), is_ours)
    assert (found.relation, found.may_copy) == (Relation.DIFFERENT, False)


@OURS
@virtual
async def test_one_record_more_than_the_common_past_is_found(is_ours: bool) -> None:
    """A master that died with one unreplicated message, and another was stored in its place."""
    old, new = log(30), log(29)
    new.log.append([draft(new.queues.queue("T", 1), b"999999" + bytes(94), key="T-29")])
    fill(new, 20, start=40)
    assert new.log.end > old.log.end
    found = await verdict(copied(old), new, is_ours)
    assert found.relation is Relation.DIFFERENT


@OURS
@virtual
async def test_a_slave_that_is_older_than_everything_the_master_has_starts_over(is_ours: bool) -> None:
    master = log(100)
    slave = copied(master, 1000)
    master.commit_log.mark_synced(master.log.end)
    master.commit_log.delete_first()
    found = await verdict(slave, master, is_ours)
    assert (found.relation, found.start, found.may_copy) == (Relation.OUTDATED, 4096, False)


@virtual
async def test_a_difference_anywhere_in_the_last_stretch_is_found_by_its_checksum() -> None:
    settings = {"commit_log_file_size": 4 << 20}
    master, slave = open_store(new_disk(), **settings), slave_on(**settings)
    for number in range(40):
        master.log.append([draft(master.queues.queue("T", 0), bytes([number]) * 50_000)])
    copy(master, slave)
    end = slave.replica.end
    assert (await verdict(slave, master, True)).relation is Relation.COPY
    for at in (end - 1, end - STRETCH, end - STRETCH // 2):
        slave.commit_log.buffer[at] ^= 1
        assert (await verdict(slave, master, True)).relation is Relation.DIFFERENT
        slave.commit_log.buffer[at] ^= 1


@pytest.mark.parametrize(
    "failure",
    [TimeoutError("no answer"), ConnectionRefusedError("nothing listens there")],
)
@virtual
async def test_a_master_that_does_not_answer_cannot_be_compared(failure: Exception) -> None:
    client = PlayedClient(log(1), is_ours=True)
    client.failure = failure
    with pytest.raises(CannotCompare, match="cannot be asked"):
        await LogComparison(cast(Client, client), slave_on().replica).compare("10.0.0.1:10911")


@pytest.mark.parametrize(
    "answer",
    [
        Command(0, ext={}),
        Command(0, ext={"run": "x"}),
        Command(1, remark="a failure"),
        Command(0, ext={"minOffset": "-"}, body=b"{}"),
    ],
)
@virtual
async def test_an_answer_that_cannot_be_understood_is_no_verdict(answer: Any) -> None:
    client = PlayedClient(log(1), is_ours=True)
    client.answer = answer
    with pytest.raises(CannotCompare):
        await LogComparison(cast(Client, client), slave_on().replica).compare("10.0.0.1:10911")


@virtual
async def test_an_apache_master_with_other_figures_is_no_verdict() -> None:
    client = PlayedClient(log(1), is_ours=False)

    async def call(address: str, request: Command, timeout_s: float) -> Command:
        if request.code == RequestCode.REPLICA_COMPARE:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return Command(0, body=b'{"table":{}}')

    client.call = call  # type: ignore[method-assign]
    with pytest.raises(CannotCompare):
        await LogComparison(cast(Client, client), slave_on().replica).compare("10.0.0.1:10911")


def test_the_bytes_that_are_compared_are_those_of_the_log() -> None:
    master = log(20)
    assert bytes_of(copied(master)) == bytes_of(master)
