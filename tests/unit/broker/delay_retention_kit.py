"""What the tests of delay retention share with others."""

import asyncio

from tests.unit.broker.desk import Desk

from turbopump.protocol.codes import ResponseCode


async def fill(desk: Desk, files: int = 2) -> None:
    """Plain messages, until the log has so many more files."""
    end = desk.store.log.end + files * 16_384
    while desk.store.log.end < end:
        assert (await desk.send("Plain", b"x" * 1000)).code == ResponseCode.SUCCESS
    await asyncio.sleep(1)  # synced


async def delete_files(desk: Desk, until: int) -> int:
    """Deletes what can be deleted, since the disk is too full; where the log begins then."""
    desk.disk.used_ratio = 0.88
    while desk.store.log.min_offset < until and await desk.store.retention.round():
        pass
    desk.disk.used_ratio = 0.5
    return desk.store.log.min_offset
