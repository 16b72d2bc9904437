"""Bounds of the network layer: what one peer, and all peers together, may use, each with its reason."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from turbopump.protocol.frame import MAX_FRAME

MIB = 1 << 20
MAX_CONNECTIONS = 16_384
DESCRIPTOR_RESERVE = 1000  # for the files of a store, and for dialling


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the connections of one server or client, in bytes, seconds and counts."""

    max_frame: int = MAX_FRAME
    """Apache's own bound; a longer frame closes the connection."""

    unfinished_bytes: int = 128 * MIB
    """Unfinished frames of all connections together; beyond it the connection that holds most is closed."""

    unfinished_s: float = 60.0
    """A frame must end this soon after it began, or its connection is closed; more bytes do not extend it."""

    requests_in_flight: int = 1024
    """Running coroutine handlers of one connection; at the bound we stop reading from it."""

    request_bytes_in_flight: int = 64 * MIB
    """Bodies that those handlers hold, also per connection."""

    calls_in_flight: int = 65_535
    """Requests of ours that one peer has not answered; Apache's clients have the same bound."""

    output_high: int = 1 * MIB
    """A peer that leaves this much of our answers unread is not read from any more ..."""

    output_low: int = 256 * 1024
    """... until it has read down to here."""

    output_hard: int = 64 * MIB
    """Beyond this, answers that come anyway (parked pulls) close the connection. Several times the largest
    frame."""

    unread_bytes: int = 256 * MIB
    """Answers that all peers together leave unread; beyond it the one that has not read for longest is
    closed. One answer more is held for a moment; peers that leave less than `output_high` are counted at a
    sweep."""

    max_connections: int = MAX_CONNECTIONS
    """Connections of one server; the next one is closed as soon as it is accepted. See connections_within."""

    idle_s: float = 120.0
    """A connection on which nothing was read or written for this long is closed, as by Apache's peers; also
    if it holds part of a frame."""

    sweep_s: float = 5.0
    """The interval between looks for idle connections, old unfinished frames and small answers left unread:
    they may last this much longer."""

    log_interval_s: float = 10.0
    """A line that peers can cause at will is written once per this many seconds, with a count."""


def connections_within(descriptors: int, servers: int = 1) -> int:
    """Returns the connection limit for each of `servers` in a process with `descriptors` file descriptors.

    Without this bound, connections take the last descriptor and the next file of the store cannot be opened.
    """
    for_connections = max(descriptors - DESCRIPTOR_RESERVE, descriptors // 2)
    return min(MAX_CONNECTIONS, for_connections // servers)


H = TypeVar("H", bound=Hashable)


class UnfinishedFrames(Generic[H]):
    """Counts the bytes of unfinished frames that the connections of one server or client hold."""

    __slots__ = ("_held", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._held: dict[H, int] = {}

    def add(self, holder: H, more: int) -> None:
        self._held[holder] = self._held.get(holder, 0) + more
        self.bytes += more

    def release(self, holder: H) -> None:
        self.bytes -= self._held.pop(holder, 0)

    def largest(self) -> H:
        """Returns the holder of the most bytes. Searches all: only for when there are too many bytes."""
        return max(self._held, key=self._held.__getitem__)
