"""`Storage`: the parts of the store that broker modules use. `server.py` opens it; see `store/store.py`.

A module that needs one part takes that part; a module that needs several takes `Storage`.
"""

from typing import Protocol

from turbopump.broker.log import LocalLog
from turbopump.store.compiled_appends import CompiledAppends
from turbopump.store.config import StoreConfig
from turbopump.store.delays import DelayLevels
from turbopump.store.flags import Flags
from turbopump.store.flush import Flusher
from turbopump.store.index import Index
from turbopump.store.light_queues import LightQueues
from turbopump.store.queries import KeyQueries
from turbopump.store.queues import ConsumeQueues
from turbopump.store.reading import QueueReader
from turbopump.store.replica_log import ReplicaLog
from turbopump.store.retention import Retention
from turbopump.store.times import MessageTimes
from turbopump.store.upkeep import Upkeep


class Storage(Protocol):
    """Interface of the opened store, as its parts: log, queues, reader, index, flusher and others."""

    @property
    def log(self) -> LocalLog: ...
    @property
    def compiled(self) -> CompiledAppends: ...
    @property
    def queues(self) -> ConsumeQueues: ...
    @property
    def lights(self) -> LightQueues | None: ...
    @property
    def reader(self) -> QueueReader: ...
    @property
    def queries(self) -> KeyQueries: ...
    @property
    def times(self) -> MessageTimes: ...
    @property
    def flusher(self) -> Flusher: ...
    @property
    def flags(self) -> Flags: ...
    @property
    def retention(self) -> Retention: ...
    @property
    def upkeep(self) -> Upkeep: ...
    @property
    def delays(self) -> DelayLevels: ...
    @property
    def replica(self) -> ReplicaLog: ...
    @property
    def index(self) -> Index | None: ...
    @property
    def config(self) -> StoreConfig: ...
    @property
    def recovered_end(self) -> int | None:
        """Physical end of the log that was recovered after a crash; None after an orderly stop."""
