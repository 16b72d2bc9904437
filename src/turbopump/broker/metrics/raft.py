"""Metrics of a member of a DLedger group. Apache's broker has none about its group."""

from collections.abc import Callable

from turbopump.broker.metrics.exposition import Family
from turbopump.protocol.bodies import RaftStatus
from turbopump.raft import Role


class RaftFigures:
    """Collects term, role and elections of this member, and on a leader how far each follower is."""

    subject = "store"

    def __init__(self, status: Callable[[], RaftStatus]) -> None:
        self._status = status

    async def families(self) -> list[Family]:
        status = self._status()
        return [
            Family("turbopump_raft_term", "gauge", "Term that this member knows", [({}, status.term)]),
            Family(
                "turbopump_raft_role",
                "gauge",
                "1 for the role of this member",
                [({"role": role.value}, float(role.value == status.role)) for role in Role],
            ),
            Family(
                "turbopump_raft_elections_total",
                "counter",
                "How often this member has seen another leader since its start",
                [({}, status.elections)],
            ),
            Family(
                "turbopump_raft_committed_index",
                "gauge",
                "Index of the last entry that this member knows to be committed",
                [({}, status.committedIndex)],
            ),
            Family(
                "turbopump_raft_commit_distance_entries",
                "gauge",
                "Entries of this member that are not committed yet, as far as it knows",
                [({}, status.endIndex - status.committedIndex)],
            ),
            Family(
                "turbopump_raft_pending_appends",
                "gauge",
                "Appends that a leader has not answered yet",
                [({}, status.pendingAppends)],
            ),
            Family(
                "turbopump_raft_trouble",
                "gauge",
                "1: this member cannot do its work, and does not stand for election",
                [({}, float(bool(status.trouble)))],
            ),
            self._followers(status),
        ]

    def _followers(self, status: RaftStatus) -> Family:
        """Returns how many entries of a leader each follower lacks; nothing on a follower."""
        peers = status.peers if status.role == Role.LEADER.value else []
        return Family(
            "turbopump_raft_follower_distance_entries",
            "gauge",
            "Entries of the leader that a follower lacks; all of them, while it is not known how far it is",
            [
                (
                    {"member": peer.member},
                    status.endIndex - (status.beginIndex - 1 if peer.matchIndex is None else peer.matchIndex),
                )
                for peer in peers
            ],
        )
