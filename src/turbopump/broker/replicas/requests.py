"""Answers requests about copies: of slaves (43, 9711), of tools (907, 9712). Promotes a slave (9713)."""

import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from turbopump.broker.config import BrokerIdentity, MasterRole
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.storage import Storage
from turbopump.protocol.bodies import (
    HAClientRuntimeInfo,
    HAConnectionInfo,
    HARuntimeInfo,
    ReplicaStatus,
    SlaveStatus,
)
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import InvalidParameter, SystemFailure
from turbopump.protocol.headers.replicas import (
    ReplicaCompareRequest,
    ReplicaCompareResponse,
    ReplicaPromoteRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.replication.comparison import MAX_STRETCH
from turbopump.replication.master import Master
from turbopump.replication.progress import CopyProgress
from turbopump.replication.slave import Slave, SlaveState

log = logging.getLogger(__name__)

Promote = Callable[[MasterRole], None]
"""Has the process start this broker again as a master, after the present request was answered."""


@dataclass(frozen=True, slots=True)
class SlaveSide:
    """The objects that only a slave has."""

    slave: Slave
    progress: CopyProgress
    promote: Promote | None
    """None: the process that runs this broker cannot start it again."""


class ReplicaHandler:
    """Answers slaves and tools about the copies of a log, and promotes this slave to a master on request."""

    def __init__(
        self,
        store: Storage,
        offsets: CommittedOffsets,
        identity: BrokerIdentity,
        run: int,
        max_gap: Callable[[], int],
        side: Master | SlaveSide,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._identity = identity
        self._run = run
        self._max_gap = max_gap
        self._side = side

    def routes(self) -> Routes:
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: Route(None, self.offsets),
            RequestCode.GET_BROKER_HA_STATUS: Route(None, self.ha_status),
            RequestCode.REPLICA_COMPARE: Route(ReplicaCompareRequest, self.compare),
            RequestCode.REPLICA_STATUS: Route(None, self.status),
            RequestCode.REPLICA_PROMOTE: Route(ReplicaPromoteRequest, self.promote),
        }

    def offsets(self, request: Request[None]) -> Answer:
        """Answers a slave with all committed offsets, in quotes: a 5.5 slave cannot read bare numbers."""
        return Answer(body=b"".join(self._offsets.slices(is_saved=False)))

    def compare(self, request: Request[ReplicaCompareRequest]) -> Answer:
        """Answers the extent of the log, and a checksum of the part of [begin, end) that it has."""
        header, replica = request.header, self._store.replica
        if not 0 <= header.begin <= header.end or header.end - header.begin > MAX_STRETCH:
            raise InvalidParameter(f"begin and end must be at most {MAX_STRETCH} bytes apart")
        low = max(header.begin, replica.min_offset)
        high = max(low, min(header.end, replica.end))
        checksum = zlib.crc32(replica.read(low, high)) if low < high else 0
        side = self._side
        wants_signature = isinstance(side, Master) and side.access.wants_signature
        answer = ReplicaCompareResponse(
            self._run,
            replica.min_offset,
            replica.end,
            replica.file_size,
            low,
            high,
            checksum,
            True if wants_signature else None,
        )
        return Answer(answer)

    def ha_status(self, request: Request[None]) -> Answer:
        """Answers 907: on a master its slaves, on a slave its connection to the master."""
        end = self._store.replica.end
        if isinstance(self._side, SlaveSide):
            slave = self._side.slave
            row = HAClientRuntimeInfo(
                masterAddr="" if slave.master is None else slave.master.ha,
                maxOffset=end,
                lastReadTimestamp=slave.heard_ms,
                lastWriteTimestamp=slave.reported_ms,
                transferredByteInSecond=slave.bytes_per_second,
                masterFlushOffset=0,
            )
            return Answer(body=HARuntimeInfo(master=False, haClientRuntimeInfo=row).encode())
        rows = [
            HAConnectionInfo(
                addr=row.address,
                slaveAckOffset=row.received,
                diff=row.behindBytes,
                inSync=row.isInSync,
                transferredByteInSecond=row.bytesPerSecond,
                transferFromWhere=max(slave.next_offset, 0),
            )
            for slave, row in zip(self._side.connections, self.slaves(), strict=True)
        ]
        status = HARuntimeInfo(
            master=True,
            masterCommitLogMaxOffset=end,
            inSyncSlaveNums=sum(row.inSync for row in rows),
            haConnectionInfo=rows,
        )
        return Answer(body=status.encode())

    def status(self, request: Request[None]) -> Answer:
        """Answers 9712: what this broker knows of its copy, or of the copies of its log."""
        replica = self._store.replica
        status = ReplicaStatus(
            brokerName=self._identity.broker_name,
            brokerId=self._identity.broker_id,
            role=self._identity.role,
            run=self._run,
            begin=replica.min_offset,
            end=replica.end,
            synced=replica.synced,
            dispatched=replica.dispatched,
        )
        if isinstance(self._side, SlaveSide):
            slave, progress = self._side.slave, self._side.progress.state
            status.state, status.trouble = slave.state.value, slave.trouble
            status.missing = self._missing(self._side)
            status.master = "" if slave.master is None else slave.master.broker
            status.masterEnd = progress.wanted_end
            status.heardMs = slave.heard_ms or progress.heard_ms
        else:
            status.slaves = self.slaves()
        return Answer(body=status.encode())

    def _missing(self, side: SlaveSide) -> str:
        """Returns what a slave lacks of its master, in words; empty when nothing is missing."""
        missing = side.progress.state.missing(self._store.replica.end)
        untaken = [f"the table {name}: {why}" for name, why in side.slave.untaken.items()]
        return "; ".join(one for one in (missing, *untaken) if one)

    def slaves(self) -> list[SlaveStatus]:
        """Returns how far the connected slaves of a master are."""
        if isinstance(self._side, SlaveSide):
            return []
        master, end, gap = self._side, self._store.replica.end, self._max_gap()
        found = []
        for slave in master.connections:
            received = max(slave.acknowledged, 0)
            copy = master.copies.slaves.get(slave)
            found.append(
                SlaveStatus(
                    address=slave.address,
                    brokerId=-1 if slave.broker_id is None else slave.broker_id,
                    received=received,
                    synced=-1 if copy is None else copy.synced,
                    behindBytes=end - received,
                    behindMs=round(1000 * master.behind_s(received)),
                    isInSync=copy is not None and end - received < gap,
                    bytesPerSecond=slave.bytes_per_second,
                )
            )
        return found

    def figures(self) -> dict[str, str]:
        """Returns what the runtime table (28) shows of replication. Apache's has none of it."""
        figures: dict[str, str] = {"replicaRole": self._identity.role}
        if isinstance(self._side, SlaveSide):
            slave = self._side.slave
            figures |= {
                "replicaState": slave.state.value,
                "replicaMaster": "" if slave.master is None else slave.master.broker,
                "replicaHeardTimestamp": str(slave.heard_ms),
            }
            if slave.trouble:
                figures["replicaTrouble"] = slave.trouble
            if missing := self._missing(self._side):
                figures["replicaMissing"] = missing
            return figures
        slaves = self.slaves()
        return figures | {
            "replicaSlaves": str(len(slaves)),
            "replicaSlavesInSync": str(sum(slave.isInSync for slave in slaves)),
            "replicaBehindBytes": str(max((slave.behindBytes for slave in slaves), default=0)),
            "replicaBehindMillis": str(max((slave.behindMs for slave in slaves), default=0)),
        }

    @property
    def trouble(self) -> str | None:
        """Why this slave is no copy of its master; None on a master, and while an operator need not act."""
        if isinstance(self._side, SlaveSide) and self._side.slave.state is SlaveState.STOPPED:
            return f"replication stopped: {self._side.slave.trouble}"
        return None

    @property
    def state(self) -> SlaveState | None:
        """What a slave is doing; None on a master."""
        return self._side.slave.state if isinstance(self._side, SlaveSide) else None

    def promote(self, request: Request[ReplicaPromoteRequest]) -> Answer:
        """Answers 9713: starts this slave again as a master; refuses if incomplete or its master lives.

        The process does it, after the answer. `force` overrides both refusals. The name servers are not asked
        here: `turbopump promote` does that before.
        """
        side, header = self._side, request.header
        roles = get_args(MasterRole)
        if header.role not in roles:
            raise InvalidParameter(f"role must be {' or '.join(roles)}, got {header.role!r}")
        if isinstance(side, Master):
            raise SystemFailure(f"this broker is a master already ({self._identity.role})")
        if side.promote is None:
            raise SystemFailure(
                "this process cannot start its broker again: set brokerRole and brokerId=0 in broker.conf"
            )
        missing = self._missing(side)
        if missing and not header.force:
            raise SystemFailure(f"this slave is incomplete: {missing}")
        if side.slave.state in (SlaveState.COPYING, SlaveState.FOLLOWING) and not header.force:
            raise SystemFailure(
                "its master lives: stop that first, or two brokers take messages for one name"
            )
        log.warning("Promotion to %s asked for by %s", header.role, request.connection)
        side.promote(next(role for role in roles if role == header.role))
        return Answer()
