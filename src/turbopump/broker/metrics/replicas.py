"""Metrics of replication. Apache's broker has none: its distance of slaves is in `haStatus` and its log."""

from typing import Protocol

from turbopump.broker.metrics.exposition import Family, Labels
from turbopump.protocol.bodies import SlaveStatus
from turbopump.replication.slave import SlaveState


class Replicas(Protocol):
    """Interface to read the state of replication: a slave's state, a master's slaves."""

    @property
    def state(self) -> SlaveState | None:
        """What this slave is doing, such as copying or following its master; None on a master."""

    def slaves(self) -> list[SlaveStatus]: ...


class ReplicaFigures:
    """Collects the metrics of replication: on a master each slave's distance, on a slave its state."""

    subject = "store"

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def families(self) -> list[Family]:
        state, slaves = self._replicas.state, self._replicas.slaves()
        states: list[tuple[Labels, float]] = [
            ({"state": one.value}, float(one is state)) for one in SlaveState if state is not None
        ]
        return [
            Family("turbopump_replica_state", "gauge", "1 for what this slave is doing", [*states]),
            Family("turbopump_slaves", "gauge", "Connected slaves", [({}, len(slaves))]),
            Family(
                "turbopump_slaves_in_sync",
                "gauge",
                "Slaves that count for a SYNC_MASTER",
                [({}, sum(slave.isInSync for slave in slaves))],
            ),
            Family(
                "turbopump_slave_distance_bytes",
                "gauge",
                "Bytes of the log that a slave lacks",
                [(_labels(slave), slave.behindBytes) for slave in slaves],
            ),
            Family(
                "turbopump_slave_distance_milliseconds",
                "gauge",
                "How long ago the log passed the offset that a slave has reached",
                [(_labels(slave), slave.behindMs) for slave in slaves],
            ),
        ]


def _labels(slave: SlaveStatus) -> Labels:
    return {"slave": slave.address, "slave_id": str(slave.brokerId)}
