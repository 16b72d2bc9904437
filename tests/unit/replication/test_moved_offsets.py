"""Committed offsets reach slaves a moment after the commit, not when their file is saved."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import TOPIC, Node, Pair, pair
from tests.unit.replication.operation_kit import followed

from turbopump.broker.config import OffsetRules
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.replicas.moved_offsets import FILE, GATHERED_S, ROWS_PER_TURN, MovedOffsets, rows_of
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.testing.loop import VirtualClock


class Pushed:
    """Takes what is pushed; `is_free` is whether slaves have been sent everything."""

    def __init__(self) -> None:
        self.is_free = True
        self.offsets = CommittedOffsets(OffsetRules(), VirtualClock())
        self.rows: list[list[tuple[str, str, int, int]]] = []
        self.moved = MovedOffsets(self.offsets, self.push, lambda name: self.is_free)
        self.moved.follow(True)

    def push(self, name: str, contents: bytes) -> None:
        assert name == FILE
        self.rows.append(rows_of(contents))


@virtual
async def test_commits_of_a_moment_are_sent_together_and_a_repeated_one_is_not_sent() -> None:
    pushed = Pushed()
    for offset in (1, 2, 3):
        pushed.offsets.commit("CG", TOPIC, 0, offset)
    pushed.offsets.commit("CG", TOPIC, 1, 7)
    await asyncio.sleep(GATHERED_S * 1.5)
    assert pushed.rows == [[("CG", TOPIC, 0, 3), ("CG", TOPIC, 1, 7)]]
    pushed.offsets.commit("CG", TOPIC, 0, 3)
    await asyncio.sleep(1)
    assert len(pushed.rows) == 1


@virtual
async def test_what_has_moved_while_a_table_was_saved_is_sent_again_behind_it() -> None:
    pushed = Pushed()
    pushed.offsets.commit("CG", TOPIC, 0, 1)
    pushed.moved.table_pushed()
    pushed.offsets.commit("CG", TOPIC, 0, 2)
    await asyncio.sleep(1)
    pushed.moved.table_pushed()  # read before that commit
    assert pushed.rows == [[("CG", TOPIC, 0, 1)], [("CG", TOPIC, 0, 2)], [("CG", TOPIC, 0, 2)]]
    pushed.moved.table_pushed()
    await asyncio.sleep(1)
    assert len(pushed.rows) == 3


@virtual
async def test_rows_that_wait_for_a_slow_slave_are_not_replaced_by_newer_ones() -> None:
    pushed = Pushed()
    pushed.is_free = False
    pushed.offsets.commit("CG", TOPIC, 0, 1)
    await asyncio.sleep(1)
    pushed.offsets.commit("CG", TOPIC, 1, 1)
    await asyncio.sleep(1)
    assert pushed.rows == []
    pushed.is_free = True
    await asyncio.sleep(GATHERED_S * 1.5)
    assert pushed.rows == [[("CG", TOPIC, 0, 1), ("CG", TOPIC, 1, 1)]]


@virtual
async def test_many_rows_are_sent_in_turns() -> None:
    pushed = Pushed()
    for queue_id in range(ROWS_PER_TURN + 1):
        pushed.offsets.commit("CG", TOPIC, queue_id, 1)
    await asyncio.sleep(1)
    assert [len(rows) for rows in pushed.rows] == [ROWS_PER_TURN, 1]


@virtual
async def test_without_a_slave_commits_are_not_noted() -> None:
    pushed = Pushed()
    pushed.offsets.commit("CG", TOPIC, 0, 1)
    pushed.moved.follow(False)
    assert pushed.offsets.on_move is None
    pushed.offsets.commit("CG", TOPIC, 0, 2)
    await asyncio.sleep(1)
    assert pushed.rows == []


@pytest.mark.parametrize("contents", [b"", b"{}", b'[["CG","T",0]]', b'[["CG","T","0",1]]'])
def test_rows_that_cannot_be_read_are_refused(contents: bytes) -> None:
    with pytest.raises(BrokenBody, match="moved offsets"):
        rows_of(contents)


# --- a pair ------------------------------------------------------------------------------------------------


async def commit(world: Pair, node: Node, offset: int, queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequest("CG", TOPIC, queue_id, offset)
    answer = await world.call(node, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert answer.code == ResponseCode.SUCCESS


async def offset_at(world: Pair, node: Node, queue_id: int = 0) -> int:
    header = QueryConsumerOffsetRequest("CG", TOPIC, queue_id, setZeroIfNotFound=False)
    answer = await world.call(node, RequestCode.QUERY_CONSUMER_OFFSET, header)
    return OffsetResponse.from_ext(answer.ext).offset if answer.code == ResponseCode.SUCCESS else -1


@virtual
async def test_every_commit_is_at_the_slave_a_fifth_of_a_second_later() -> None:
    async with pair() as world:
        master, slave = await followed(world)
        for offset in range(1, 20):
            await commit(world, master, offset)
            await asyncio.sleep(0.2)
            assert await offset_at(world, slave) == offset
        await commit(world, master, 5)  # back, by a tool
        await asyncio.sleep(0.2)
        assert await offset_at(world, slave) == 5


@virtual
async def test_a_table_that_is_saved_after_a_commit_does_not_take_it_back() -> None:
    async with pair() as world:
        master, slave = await followed(world, messages=1)
        for queue_id in range(2):
            for _ in range(20):
                await world.send(master, b"x", queue_id=queue_id)
        for offset in range(1, 20):
            await commit(world, master, offset)
            await asyncio.sleep(0.05)
            await commit(world, master, offset, queue_id=1)
            await asyncio.sleep(0.2)
            for _ in range(12):  # tables are saved, and sent, somewhere in this time
                assert (await offset_at(world, slave), await offset_at(world, slave, 1)) == (offset, offset)
                await asyncio.sleep(0.1)


@virtual
async def test_a_commit_at_the_master_ends_a_reset_that_its_slave_knows() -> None:
    offsets = CommittedOffsets(OffsetRules(), VirtualClock())
    offsets.reset("CG", TOPIC, 0, 2)
    offsets.adopt([("CG", TOPIC, 0, 5), ("CG", TOPIC, 1, 6)])
    assert not offsets.has_resets
    assert (offsets.query("CG", TOPIC, 0), offsets.query("CG", TOPIC, 1)) == (5, 6)
