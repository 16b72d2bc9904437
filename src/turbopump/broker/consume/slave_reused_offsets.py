"""Detects void offsets at a slave, and keeps which offsets the slave gave to which consumers.

A slave assigns no offset, but it serves consumers that know offsets of an earlier master, or from before its
master's crash. It learns from its master where the log has lost messages. What it gave itself, out of a log
that is a copy, stays valid, and its master learns of it (`replicas/given_offsets.py`). Of any other offset
behind such a place it cannot know whether the master gave it: the consumer goes back to what its group has
committed. That ends `JUDGED_S` after the slave has learned of a loss, since no consumer comes later with
an offset from before. A consumer beyond the end of the slave's queue waits until the messages are here.

A slave that was found to hold another log than its master's (`stopped`) doubts every offset that it has not
given itself, for as long as that lasts: consumers may have it from its master, whose messages are others.
"""

from collections.abc import Callable, Sequence

from turbopump.broker.consume.reused_offsets import (
    FIRST_GENERATION,
    JUDGED_S,
    MAX_HOSTS,
    Crash,
    Key,
    Peer,
    ReusedOffsets,
    identity,
)
from turbopump.store.queues import ConsumeQueues

SUSPECT = "waits for an offset that may be void"  # key of a connection's attributes

Given = tuple[str, str, str, int, int]
"""Consumer (`identity`), group, topic, queue, and the offset that it was given."""


class SlaveReusedOffsets(ReusedOffsets):
    """Detects void offsets at a slave, which learns from its master where the log has lost messages.

    `monotonic` returns seconds; `crashes` are those that the files of this slave name.
    """

    def __init__(
        self, queues: ConsumeQueues, crashes: Sequence[Crash], monotonic: Callable[[], float]
    ) -> None:
        super().__init__(queues, None)
        self._monotonic = monotonic
        self._crashes: frozenset[Crash] = frozenset()
        self._differs = False
        self._judged_until = 0.0
        self._losses = 0  # how often a loss became known
        self._replaced = 0  # how often this slave began an empty log
        self._given: dict[tuple[str, str, str, int], int] = {}  # the furthest offset given to each consumer
        self._unbrought: dict[tuple[str, str, str, int], None] = {}
        self.on_given: Callable[[], None] = lambda: None
        """Called when the master has to learn of an offset that was given."""
        self.learn(crashes)

    def learn(self, crashes: Sequence[Crash]) -> None:
        """Takes the crashes that the master's table of offsets names, before the log that came after them.

        What this slave has given stays valid: its log is a copy of the master's.
        """
        if set(crashes) - self._crashes:
            self._losses += 1
            self._set_by_tool.clear()
            self._judged_until = self._monotonic() + JUDGED_S
        self._crashes = frozenset(crashes)
        self._update()

    def log_differs(self, differs: bool) -> None:
        """Notes whether this log holds other records than its master's."""
        self._differs = differs
        self._update()

    def _update(self) -> None:
        lost_from = [0] if self._differs else [end for end, _ in self._crashes]
        self._recovered_end = min(lost_from, default=None)
        self.is_active = self._recovered_end is not None

    def log_replaced(self) -> None:
        """Forgets all offsets that were given: the log that had these messages was set aside."""
        self._losses += 1
        self._replaced += 1
        self._set_by_tool.clear()
        self._hosts.clear()
        self._given.clear()
        self._unbrought.clear()

    def handed(self, peer: Peer, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Records an offset that this slave gave, unless its queue does not reach so far."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or offset > queue.max_offset or not self.is_active:
            return
        super().handed(peer, group, topic, queue_id, offset)
        place = identity(peer), group, topic, queue_id
        if offset > self._given.get(place, 0):
            self._given.pop(place, None)  # the oldest entry is the first
            self._given[place] = offset
            if len(self._given) > MAX_HOSTS:
                del self._given[next(iter(self._given))]
            self._unbrought[place] = None
            self.on_given()

    def bring_all(self) -> None:
        """Has everything brought again: the master may be another process."""
        self._unbrought = dict.fromkeys(self._given)

    def take_given(self, count: int) -> list[Given]:
        """Removes and returns up to `count` offsets that the master has to learn of: it may doubt them."""
        taken: list[Given] = []
        while self._unbrought and len(taken) < count:
            place = next(iter(self._unbrought))
            del self._unbrought[place]
            _, _, topic, queue_id = place
            offset, end = self._given.get(place), self.end(topic, queue_id)
            if offset is not None and end is not None and offset > end:
                taken.append((*place, offset))
        return taken

    def not_taken(self, given: Sequence[Given]) -> None:
        """Puts back what the master could not be told."""
        for consumer, group, topic, queue_id, _ in given:
            self._unbrought[consumer, group, topic, queue_id] = None

    def _is_judged(self, peer: Peer, key: Key, offset: int, is_commit: bool) -> bool:
        """Returns whether an offset counts as void.

        It does while the log differs, soon after a loss, and for a consumer that has waited since.
        """
        suspects = peer.attributes.setdefault(SUSPECT, set())
        assert isinstance(suspects, set)
        if self._differs or self._monotonic() < self._judged_until:
            suspects.add(key)
        if key not in suspects:
            return False
        _, topic, queue_id, _ = key
        queue = self._queues.find(topic, queue_id)
        if is_commit:
            return True
        if queue is None or offset > queue.max_offset:
            return False  # there is nothing to give; judged again when there is
        suspects.discard(key)
        return True

    def _key(self, group: str, topic: str, queue_id: int) -> Key:
        return group, topic, queue_id, FIRST_GENERATION - self._replaced

    def _free_key(self, group: str, topic: str, queue_id: int) -> Key:
        # A consumer that was free to start anywhere may since have got its offset from a master.
        return group, topic, queue_id, FIRST_GENERATION - self._losses
