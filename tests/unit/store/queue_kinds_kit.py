"""What the tests of queue kinds share with others."""

from tests.unit.store.lab import draft

from turbopump.protocol import batch, inner
from turbopump.store.append import Draft
from turbopump.store.store import Store

TOPICS = b'{"topicConfigTable":{"B":{"topicName":"B","attributes":{"queue.type":"BatchCQ"}}}}'


def batch_of(store: Store, *bodies: bytes, queue_id: int = 0) -> Draft:
    queue = store.queues.queue("B", queue_id)
    found = draft(queue, batch.join([(0, body, b"") for body in bodies]), key=bodies[0].decode())
    found.properties += f"INNER_NUM\x01{len(bodies)}\x02INNER_BASE\x01{queue.next_offset}\x02".encode()
    found.sys_flag, found.count = inner.FLAGS, len(bodies)
    return found


def fill_batches(store: Store) -> None:
    """17 messages in 8 records: batches of 1, 2 and 3, and singles between them."""
    for number in range(6):
        store.log.append([batch_of(store, *(b"%d%d" % (number, n) for n in range(number % 3 + 1)))])
        if number % 2:
            store.log.append([draft(store.queues.queue("B", 0), b"alone%d" % number, key=f"A{number}")])
