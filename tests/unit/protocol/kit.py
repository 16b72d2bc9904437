"""Shared by protocol tests: captured frames as commands, and hypothesis settings without deadlines."""

from functools import cache

from tests.compat.wire import Captured, captured
from tests.properties import examples

from turbopump.protocol.command import Command, decode
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import Frame, cut

relaxed = examples(60)


@cache
def readable() -> tuple[tuple[Captured, Frame, Command], ...]:
    """Returns every valid captured frame with its command."""
    found = []
    for row in captured():
        frames: list[Frame] = []
        try:
            if cut(row.data, frames) == len(row.data) and len(frames) == 1:
                found.append((row, frames[0], decode(frames[0])))
        except BrokenFrame:
            continue
    return tuple(found)
