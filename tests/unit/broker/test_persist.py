import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from turbopump.broker.persist import PAUSE_S, RETRY_S, PersistedTable
from turbopump.protocol.errors import SystemFailure
from turbopump.testing.loop import run_virtual


class Shelf:
    """A table with one number, and a disk that takes a while and can refuse."""

    def __init__(self) -> None:
        self.value = 0
        self.written: list[bytes] = []
        self.broken = False
        self.persisted = PersistedTable("numbers.json", self.dump, self.write, self)

    def dump(self) -> bytes:
        return str(self.value).encode()

    def write(self, name: str, data: bytes) -> None:
        assert name == "numbers.json"
        if self.broken:
            raise OSError(28, "No space left on device")
        self.written.append(data)

    async def run(self, work: Callable[..., Any], *args: object) -> Any:
        await asyncio.sleep(0.01)
        return work(*args)

    urgent = run

    def change(self) -> None:
        self.value += 1
        self.persisted.changed()


def scenario(test: Callable[[Shelf], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test_in_virtual_time() -> None:
        async def main() -> None:
            await test(Shelf())

        run_virtual(main())

    return test_in_virtual_time


@scenario
async def test_a_change_after_a_quiet_time_is_on_disk_when_it_is_settled(shelf: Shelf) -> None:
    shelf.change()
    await shelf.persisted.settled()
    assert shelf.written == [b"1"]


@scenario
async def test_changes_of_one_moment_share_a_write_and_all_wait_for_it(shelf: Shelf) -> None:
    for _ in range(100):
        shelf.change()
    await asyncio.gather(*(shelf.persisted.settled() for _ in range(100)))
    assert shelf.written == [b"100"]


@scenario
async def test_a_burst_is_not_waited_for_and_written_at_most_every_100_ms(shelf: Shelf) -> None:
    for _ in range(1000):
        shelf.change()
        await shelf.persisted.settled()
        await asyncio.sleep(0.001)
    await asyncio.sleep(2 * PAUSE_S)
    assert shelf.written[-1] == b"1000"
    assert 9 <= len(shelf.written) <= 13


@scenario
async def test_what_changed_while_a_write_was_under_way_is_written_next(shelf: Shelf) -> None:
    shelf.change()
    await asyncio.sleep(0.005)
    shelf.change()
    await asyncio.sleep(2 * PAUSE_S)
    assert shelf.written == [b"1", b"2"]


@scenario
async def test_a_disk_that_refuses_is_told_to_who_waits_and_tried_again(shelf: Shelf) -> None:
    shelf.broken = True
    shelf.change()
    with pytest.raises(SystemFailure, match=r"cannot write numbers.json: .*No space left"):
        await shelf.persisted.settled()
    shelf.broken = False
    await asyncio.sleep(2 * RETRY_S)
    assert shelf.written == [b"1"]


@scenario
async def test_closing_writes_what_is_left_and_nothing_twice(shelf: Shelf) -> None:
    shelf.change()
    await shelf.persisted.settled()
    await shelf.persisted.close()
    assert shelf.written == [b"1"]
    shelf.change()
    await shelf.persisted.close()
    assert shelf.written == [b"1", b"2"]
    assert not shelf.persisted.is_dirty
