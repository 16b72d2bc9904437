"""The state of a member as a value, for tools and metrics."""

from dataclasses import dataclass

from turbopump.raft import Role


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """What a member knows about another one."""

    member: str
    address: str
    is_reachable: bool | None
    """None: not asked for anything yet."""
    is_ours: bool
    """Whether it takes several entries in one push."""
    match_index: int | None
    """What a leader knows to be held by this follower; None: this member does not lead."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """Role, term and log of a member; indexes are -1 where there is no entry."""

    group: str
    member: str
    role: Role
    term: int
    leader: str | None
    joined: bool
    """False: it came with an empty disk and does not vote yet."""
    begin_index: int
    end_index: int
    synced_index: int
    committed_index: int
    pending_appends: int
    peers: tuple[PeerStatus, ...]
