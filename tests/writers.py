"""A message writer over a store, for tests that build parts of a broker by hand."""

from turbopump.broker.acknowledgement import choose
from turbopump.broker.metrics.traffic import Traffic
from turbopump.broker.produce.writer import MessageWriter
from turbopump.runtime.clock import Clock
from turbopump.store.store import Store


def writer_of(store: Store, clock: Clock, role: str = "ASYNC_MASTER") -> MessageWriter:
    """Appends to `store` and acknowledges by its configuration."""
    acknowledgement = choose(store.config, role, store.flusher)
    return MessageWriter(store.log, store.compiled, acknowledgement, Traffic(clock, lambda: 0), clock)
