"""Intervals of a member, as its configuration has them. Defaults: DLedger's, as Apache's broker sets them."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class DLedgerTimings:
    """How often members tell that they live, and how long they wait for one another.

    All members of a group should have the same: a leader that beats every two seconds is none to a follower
    that waits for 600 ms. Members of Apache's have the defaults, and no settings for them.
    """

    heartbeat_interval_ms: int = 2000
    max_missed_heartbeats: int = 3
    min_vote_wait_ms: int = 300
    max_vote_wait_ms: int = 1000
    vote_round_ms: int = 2000
    """How long a candidate waits for votes of members that do not answer."""
    shorter_log_wait_ms: int = 1000
    """How much longer a candidate waits when too many members have more in their logs."""
    not_follower_wait_ms: int = 500
    """How long a leader waits for a member that does not follow yet, or cannot be reached."""
    commit_push_ms: int = 1000
    """How long a follower hears nothing before it is told the commit index alone."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} must be positive, got {getattr(self, field.name)}")
        if self.min_vote_wait_ms > self.max_vote_wait_ms:
            raise ValueError(
                f"min_vote_wait_ms must be at most {self.max_vote_wait_ms}, got {self.min_vote_wait_ms}"
            )


APACHE_TIMINGS = DLedgerTimings()
