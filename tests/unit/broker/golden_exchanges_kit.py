"""What the tests of golden exchanges share with others."""

from turbopump.protocol.command import Command, decode
from turbopump.protocol.frame import Frame, cut


def command_of(text: str) -> Command:
    frames: list[Frame] = []
    cut(bytes.fromhex(text), frames)
    return decode(frames[0])
