"""A message writer over a store, for tests that build parts of a broker by hand."""

from turbopump.broker.config import BrokerConfig, change
from turbopump.broker.metrics.traffic import Traffic
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.replicas.acknowledgement import acknowledgement_of
from turbopump.replication.copies import Copies
from turbopump.runtime.clock import Clock
from turbopump.store.store import Store


def writer_of(store: Store, clock: Clock, role: str = "ASYNC_MASTER") -> MessageWriter:
    """Appends to `store` and acknowledges by its configuration."""
    config = change(BrokerConfig(store=store.config), "brokerRole", role)
    acknowledgement = acknowledgement_of(config, store, Copies(), clock)
    return MessageWriter(store.log, store.compiled, acknowledgement, Traffic(clock, lambda: 0), clock)
