"""Settings of a node, and what it finds on its disk. Defaults: DLedger's, as Apache's broker sets them."""

from dataclasses import dataclass

from turbopump.raft.messages import NO_INDEX, MemberId


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a node finds on its disk when it is started."""

    term: int = 0
    voted_for: MemberId | None = None
    joined: bool = True
    """False: this disk never held the state of the node; votes and entries may have been lost with another.
    Such a node does not vote before it knows that nothing was lost, or has it again (`newcomer.py`)."""
    committed_index: int = NO_INDEX
    """The last commit that was noted; may be too low. One beyond the log is brought down to its end."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Who is in the group, and how long a node waits for what."""

    own_id: MemberId
    members: tuple[MemberId, ...]
    """All members, this one included."""
    heartbeat_interval_ms: int = 2000
    max_missed_heartbeats: int = 3
    min_vote_wait_ms: int = 300
    max_vote_wait_ms: int = 1000
    vote_round_ms: int = 2000
    """How long a candidate waits for votes, and up to `max_vote_wait_ms` longer, by chance."""
    shorter_log_wait_ms: int = 1000
    """How much longer a candidate waits after a round in which too many members had more in their logs."""
    not_follower_wait_ms: int = 500
    """How long a leader waits for a member that does not follow yet, or cannot be reached."""
    not_ready_wait_ms: int = 10
    """How soon a leader or a candidate asks a member again that only now learned of the term."""
    push_timeout_ms: int = 1000
    """How long a leader waits for the answer to a push before it repeats it."""
    gap_wait_ms: int = 1000
    """How long a follower waits for the entries before those that it received."""
    commit_push_ms: int = 1000
    """How long a follower hears nothing before a leader pushes the commit index alone."""
    transfer_interval_ms: int = 1000
    """How often a leader that is not preferred looks for a preferred one that could lead."""
    transfer_timeout_ms: int = 3000
    """How long a leader, and the member that takes over, wait for the outcome of a transfer."""
    max_transfer_lag: int = 1000
    """How many entries a member may lack to be given the leadership."""
    preferred_leaders: tuple[MemberId, ...] = ()
    max_outstanding_pushes: int = 1000
    max_outstanding_bytes: int = 32 * 1024 * 1024
    """Bytes pushed to one follower and not answered; one entry is pushed however large it is."""
    max_outstanding_batches: int = 2
    """Pushes that are not answered, for peers that take several entries in one: entries that are appended
    meanwhile share the next one."""
    max_batch_entries: int = 512
    max_batch_bytes: int = 1024 * 1024
    """Bounds of one push with several entries, for peers that take them."""
    far_behind_bytes: int = 300 * 1024 * 1024
    """A follower that lacks more is far behind; it gets at most `far_behind_bytes_per_s`."""
    far_behind_bytes_per_s: int = 20 * 1024 * 1024
    max_early_pushes: int = 1000
    """Pushes that a follower keeps while entries before them are missing: as many as a leader sends."""
    max_early_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.own_id not in self.members:
            raise ValueError(f"own_id must be one of the members {self.members}, got {self.own_id!r}")
        if len(set(self.members)) != len(self.members):
            raise ValueError(f"members must be different, got {self.members}")
        if self.min_vote_wait_ms > self.max_vote_wait_ms:
            raise ValueError(
                f"min_vote_wait_ms must be at most {self.max_vote_wait_ms}, got {self.min_vote_wait_ms}"
            )
        if strangers := set(self.preferred_leaders) - set(self.members):
            raise ValueError(f"preferred_leaders must be members, got {sorted(strangers)}")

    @property
    def peers(self) -> tuple[MemberId, ...]:
        """The other members."""
        return tuple(member for member in self.members if member != self.own_id)

    @property
    def quorum(self) -> int:
        """How many members are a majority."""
        return len(self.members) // 2 + 1

    @property
    def leader_timeout_ms(self) -> int:
        """How long a follower without heartbeats, and a leader without answers, keep their role."""
        return self.heartbeat_interval_ms * self.max_missed_heartbeats
