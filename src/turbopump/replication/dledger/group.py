"""Name and members of a group, from the settings `dLegerGroup`, `dLegerSelfId` and `dLegerPeers`."""

from collections.abc import Mapping
from dataclasses import dataclass

from turbopump.protocol.addresses import has_host_and_port
from turbopump.raft import NodeConfig
from turbopump.replication.dledger.timings import APACHE_TIMINGS, DLedgerTimings

MAX_MEMBERS = 31  # every member is asked in every election; Apache's groups have three or five


@dataclass(frozen=True, slots=True)
class DLedgerGroup:
    """A group as one of its members knows it: `addresses` has host:port of each member by its id."""

    name: str
    own_id: str
    addresses: Mapping[str, str]

    @classmethod
    def parse(cls, name: str, own_id: str, peers: str) -> "DLedgerGroup":
        """Reads `n0-host:port;n1-host:port;…`. Raises ValueError that says what to change."""
        if not name:
            raise ValueError("dLegerGroup must be the name of the group, got nothing")
        addresses: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in peers.split(";"))):
            member, dash, address = part.partition("-")
            if not dash or not member or not has_host_and_port(address):
                raise ValueError(f"dLegerPeers must be n0-host:port;n1-host:port;…, got {part!r}")
            if member in addresses:
                raise ValueError(f"dLegerPeers must name every member once, got {member!r} twice")
            if address in addresses.values():
                raise ValueError(f"dLegerPeers must give every member its own address, got {address} twice")
            addresses[member] = address
        if len(addresses) > MAX_MEMBERS:
            raise ValueError(f"dLegerPeers must name at most {MAX_MEMBERS} members, got {len(addresses)}")
        if own_id not in addresses:
            raise ValueError(
                f"dLegerSelfId must be one of {', '.join(addresses) or 'dLegerPeers'}, got {own_id!r}"
            )
        return cls(name, own_id, addresses)

    @property
    def peers(self) -> tuple[str, ...]:
        """The ids of the other members."""
        return tuple(member for member in self.addresses if member != self.own_id)

    @property
    def own_address(self) -> str:
        """Where this member listens."""
        return self.addresses[self.own_id]

    def node_config(
        self, timings: DLedgerTimings = APACHE_TIMINGS, preferred_leaders: str = ""
    ) -> NodeConfig:
        """Returns the settings of this member's node.

        `preferred_leaders` is `preferredLeaderId`: ids of members, separated by `;`. Raises ValueError.
        """
        return NodeConfig(
            self.own_id,
            tuple(self.addresses),
            heartbeat_interval_ms=timings.heartbeat_interval_ms,
            max_missed_heartbeats=timings.max_missed_heartbeats,
            min_vote_wait_ms=timings.min_vote_wait_ms,
            max_vote_wait_ms=timings.max_vote_wait_ms,
            vote_round_ms=timings.vote_round_ms,
            shorter_log_wait_ms=timings.shorter_log_wait_ms,
            not_follower_wait_ms=timings.not_follower_wait_ms,
            commit_push_ms=timings.commit_push_ms,
            preferred_leaders=self._members_of(preferred_leaders),
        )

    def _members_of(self, preferred_leaders: str) -> tuple[str, ...]:
        members = tuple(dict.fromkeys(filter(None, (part.strip() for part in preferred_leaders.split(";")))))
        for member in members:
            if member not in self.addresses:
                raise ValueError(f"preferredLeaderId must be of {', '.join(self.addresses)}, got {member!r}")
        return members


def slave_id(member: str) -> int:
    """Returns the broker id of a member that does not lead: n0 is 1, n1 is 2. Raises ValueError.

    Apache's rule: the number behind the first character of the member's id, and one more.
    """
    digits = member[1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise ValueError(f"dLegerSelfId must be a letter and a number, like n0, got {member!r}")
    return int(digits) + 1
