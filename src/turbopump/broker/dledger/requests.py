"""Answers requests about a DLedger group: of Apache's followers (43), of tools (907, 9715, 9716)."""

import asyncio
from collections.abc import Callable

from turbopump.broker.config import BrokerIdentity
from turbopump.broker.dledger.member import GroupMember
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.storage import Storage
from turbopump.protocol.bodies import (
    HAConnectionInfo,
    HARuntimeInfo,
    RaftPeer,
    RaftStatus,
    SlaveStatus,
)
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.errors import InvalidParameter, SystemFailure
from turbopump.protocol.headers.replicas import RaftTransferRequest
from turbopump.raft import Role
from turbopump.raft.messages import RaftCode
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.replication.slave import SlaveState

LEADERSHIP_ENDED = "this broker does not lead any longer; ask another member who does"


class RaftHandler:
    """Answers what a member knows of its group, and moves the leadership on request."""

    def __init__(
        self,
        member: GroupMember,
        store: Storage,
        offsets: CommittedOffsets,
        identity: BrokerIdentity,
        leader_address: Callable[[], str | None],
    ) -> None:
        """`leader_address` returns where clients reach the leader, if that is known."""
        self._member = member
        self._store = store
        self._offsets = offsets
        self._identity = identity
        self._leader_address = leader_address

    def routes(self) -> Routes:
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: Route(None, self.offsets),
            RequestCode.GET_BROKER_HA_STATUS: Route(None, self.ha_status),
            RequestCode.RAFT_STATUS: Route(None, self.status),
            RequestCode.RAFT_TRANSFER: Route(RaftTransferRequest, self.transfer),
        }

    def offsets(self, request: Request[None]) -> Answer:
        """Answers a follower with all committed offsets, in quotes: a 5.5 slave cannot read bare numbers."""
        return Answer(body=b"".join(self._offsets.slices(is_saved=False)))

    def ha_status(self, request: Request[None]) -> Answer:
        """Answers 907 with the followers of a leader as far as it knows them; a follower knows none."""
        is_leader = self._member.server.role is Role.LEADER
        rows = [
            HAConnectionInfo(
                addr=slave.address,
                slaveAckOffset=slave.received,
                diff=slave.behindBytes,
                inSync=slave.isInSync,
            )
            for slave in self.slaves()
        ]
        status = HARuntimeInfo(
            master=is_leader,
            masterCommitLogMaxOffset=self._store.log.end,
            inSyncSlaveNums=sum(row.inSync for row in rows),
            haConnectionInfo=rows,
        )
        return Answer(body=status.encode())

    def status(self, request: Request[None]) -> Answer:
        """Answers 9715: role, term and log of this member, and what it knows of the others."""
        return Answer(body=self.raft_status().encode())

    def raft_status(self) -> RaftStatus:
        found, log = self._member.server.status(), self._store.log
        return RaftStatus(
            beginIndex=found.begin_index,
            brokerId=self._identity.broker_id,
            brokerName=self._identity.broker_name,
            committed=log.committed,
            committedIndex=found.committed_index,
            dispatched=log.dispatched,
            elections=self._member.elections,
            end=log.end,
            endIndex=found.end_index,
            group=found.group,
            joined=found.joined,
            leader=found.leader or "",
            leaderAddress=self._leader_address() or "",
            member=found.member,
            peers=[
                RaftPeer(
                    address=peer.address,
                    isOurs=peer.is_ours,
                    isReachable=peer.is_reachable,
                    matchIndex=peer.match_index,
                    member=peer.member,
                )
                for peer in found.peers
            ],
            pendingAppends=found.pending_appends,
            role=found.role.value,
            syncedIndex=found.synced_index,
            term=found.term,
            trouble=self.trouble or "",
        )

    async def transfer(self, request: Request[RaftTransferRequest]) -> Answer:
        """Answers 9716 when the named member leads. Refuses on a follower, and what cannot be done."""
        member, group = request.header.member, self._member.group
        if member not in group.addresses:
            known = ", ".join(group.addresses)
            raise InvalidParameter(f"member must be one of {known}, got {member!r}")
        if self._member.server.role is not Role.LEADER:
            leader = self._member.server.leader
            raise SystemFailure(
                f"{group.own_id} does not lead: ask {leader}" if leader else "the group has no leader now"
            )
        if member == group.own_id:
            return Answer()
        try:
            answer = await self._member.server.transfer(member)
        except asyncio.CancelledError:  # the role of this broker has ended, and its handlers with it
            request.answer(Answer(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=LEADERSHIP_ENDED))
            raise
        if answer.code is not RaftCode.SUCCESS:
            raise SystemFailure(f"{member} did not take over: {answer.code.name}")
        return Answer()

    # for tools and metrics

    def slaves(self) -> list[SlaveStatus]:
        """Returns how far the followers of a leader are; nothing on a follower."""
        if self._member.server.role is not Role.LEADER:
            return []
        return [
            SlaveStatus(
                address=peer.address,
                brokerId=self._member.broker_id_of(peer.member),
                received=self._member.offset_behind(peer.match_index),
                synced=-1,
                behindBytes=self._store.log.end - self._member.offset_behind(peer.match_index),
                behindMs=0,
                isInSync=peer.match_index is not None
                and peer.match_index >= self._member.server.committed_index,
            )
            for peer in self._member.server.status().peers
        ]

    def figures(self) -> dict[str, str]:
        """Returns what the runtime table (28) shows of the group. Apache's has none of it."""
        found = self._member.server.status()
        figures = {
            "raftGroup": found.group,
            "raftMember": found.member,
            "raftRole": found.role.value,
            "raftTerm": str(found.term),
            "raftLeader": found.leader or "",
            "raftCommittedIndex": str(found.committed_index),
            "raftEndIndex": str(found.end_index),
        }
        return figures | ({"raftTrouble": self.trouble} if self.trouble else {})

    @property
    def trouble(self) -> str | None:
        """Why this member does not do its work; None while an operator need not act."""
        return self._member.trouble

    @property
    def state(self) -> SlaveState | None:
        """Whether a follower has a leader; None on a leader."""
        if self._member.server.role is Role.LEADER:
            return None
        return SlaveState.FOLLOWING if self._member.server.leader else SlaveState.SEARCHING
