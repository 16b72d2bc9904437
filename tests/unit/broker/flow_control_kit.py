"""What the tests of flow control share with others."""

import asyncio

from turbopump.testing.loop import VirtualLoop


def hold_up(seconds: float) -> None:
    """As a page that has to come from a slow disk does: nobody else gets a turn."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.call_soon(loop.jump, seconds)
