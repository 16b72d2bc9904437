"""Reads the records of a pull response: checks that they are complete, and unpacks inner batches.

In: the bytes of a response. Out: `PulledMessages`, one position per message. Shared by exports and by Spark's
source, which choose among the messages by different rules.
"""

from dataclasses import dataclass

from turbopump.pipelines.inner_batches import has_inner_batches, unpack
from turbopump.pipelines.record_positions import Data, Mask, Numbers, RecordPositions, locate, starts_in
from turbopump.protocol.errors import BrokenRecord


@dataclass(frozen=True, slots=True)
class PulledMessages:
    """Messages of one pull response: the buffer, the position of each record in it, and each queue offset."""

    data: Data
    positions: RecordPositions
    offsets: Numbers

    def only(self, which: Mask) -> "PulledMessages":
        """Returns the messages that the mask selects."""
        return PulledMessages(self.data, self.positions.only(which), self.offsets[which])


def messages_in(body: bytes | memoryview, delta: int) -> PulledMessages:
    """Returns the messages of a response. Raises BrokenRecord unless it consists of complete records alone.

    `delta`: what must be added to the records' offsets to get those of the topic; 0 except for static topics.
    """
    data: Data = body
    positions = locate(data, starts_in(data))
    _check_complete(data, positions)
    if has_inner_batches(positions):
        data, starts = unpack(data, positions.starts)
        positions = locate(data, starts)
    return PulledMessages(data, positions, positions.number("queue_offset") + delta)


def _check_complete(data: Data, positions: RecordPositions) -> None:
    """Raises BrokenRecord unless complete records fill the response up to its last byte."""
    end = int(positions.starts[-1] + positions.sizes[-1]) if len(positions) else 0
    if not positions.is_whole.all():
        end = int(positions.starts[~positions.is_whole][0])
    if end != len(data):
        raise BrokenRecord(
            f"a pull response of {len(data)} bytes must hold records alone, got others at byte {end}"
        )
