"""The table of message kinds that wait: a new kind is asked on every way by which a message can be sent."""

import pytest
from tests.unit.broker.desk import letters
from tests.unit.broker.sends import Bench, frame

from turbopump.broker.produce.kinds import IncomingMessage, Placement, WaitingKinds
from turbopump.broker.storage import Storage
from turbopump.compiled import twins
from turbopump.protocol import batch
from turbopump.protocol.frame import pack
from turbopump.store.append import Appended, Draft

HOLD = "HOLD"


class HeldMessages:
    """A kind for tests: messages with the property HOLD wait in a topic of their own."""

    topic = "HELD_TOPIC"
    properties = frozenset({HOLD})

    def __init__(self, store: Storage) -> None:
        self._store = store
        self.told: list[tuple[str, int]] = []

    def claim(self, message: IncomingMessage) -> Placement | None:
        if HOLD not in message.pairs:
            return None
        return Placement(self._store.queues.queue(self.topic, 0), fields={"held": "yes"})

    def claim_committed(
        self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool
    ) -> Placement | None:
        return None

    def stored(self, draft: Draft, appended: Appended) -> None:
        self.told.append((draft.queue.topic, appended[1]))

    def batch_refusal(self, pairs: dict[str, str]) -> str | None:
        return "a held message must be sent alone" if HOLD in pairs else None


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_new_kind_claims_its_messages_whether_sends_are_served_together_or_not(is_compiled: bool) -> None:
    kinds: list[HeldMessages] = []

    def more(store: Storage) -> list[HeldMessages]:
        kinds.append(HeldMessages(store))
        return kinds

    bench = Bench(twins() if is_compiled else None, more_kinds=more)
    plain, held = letters("T"), letters("T", pairs={HOLD: "5"})
    for opaque, ext in enumerate((plain, held, plain, held)):
        bench.receive(pack(*frame(310, ext, b"body", opaque)))
    assert kinds[0].told == [("HELD_TOPIC", 0), ("HELD_TOPIC", 1)]
    assert bench.store.queues.queue("T", 0).next_offset == 2
    assert bench.connection.written.count(b'"held":"yes"') == 2


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_batch_with_a_message_of_a_new_kind_is_refused_whole(is_compiled: bool) -> None:
    bench = Bench(twins() if is_compiled else None, more_kinds=lambda store: [HeldMessages(store)])
    body = batch.join([(0, b"one", b"TAGS\x01a\x02"), (0, b"two", b"HOLD\x015\x02")])
    bench.receive(pack(*frame(320, letters("T", m="true"), body, 1)))
    assert b"a held message must be sent alone" in bench.connection.written
    assert bench.store.queues.queue("T", 0).next_offset == 0


def test_the_first_kind_that_claims_a_message_gets_it() -> None:
    bench = Bench()
    first, second = HeldMessages(bench.store), HeldMessages(bench.store)
    second.topic = "OTHER_TOPIC"
    kinds = WaitingKinds([second]).before([first])
    placement = kinds.claim(IncomingMessage({HOLD: "5"}, "T", 0, "ID"))
    assert placement is not None
    assert placement.queue.topic == "HELD_TOPIC"
    assert kinds.claim(IncomingMessage({}, "T", 0, "ID")) is None
    assert kinds.properties == {HOLD}
