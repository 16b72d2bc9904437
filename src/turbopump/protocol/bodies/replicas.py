"""What a broker of ours tells about its copy of the log, or the copies of its log (9712, 9714)."""

from turbopump.protocol.bodies.base import Body, always, empty_list
from turbopump.protocol.headers.base import I64


class SlaveStatus(Body):
    """A connected slave, as its master sees it."""

    address: str = always("")
    behindBytes: I64 = always(0)
    behindMs: I64 = always(0)
    """How long ago the master's log passed the offset that the slave has reached; 0: it has everything."""
    brokerId: I64 = always(-1)
    """-1: Apache's slaves do not say theirs."""
    bytesPerSecond: I64 = always(0)
    isInSync: bool = always(False)
    received: I64 = always(0)
    """Log offset up to which it has the log."""
    synced: I64 = always(-1)
    """Log offset up to which the log is on its disk; -1: it does not say."""


class ReplicaStatus(Body):
    """Role, extent of the log, and the other copies as far as this broker knows them."""

    begin: I64 = always(0)
    brokerId: I64 = always(0)
    brokerName: str = always("")
    dispatched: I64 = always(0)
    end: I64 = always(0)
    heardMs: I64 = always(0)
    """When a slave received something from its master last, in milliseconds since 1970; 0: never."""
    master: str = always("")
    masterEnd: I64 = always(-1)
    """Where the master's log ended when a slave compared itself last; -1: it never did."""
    missing: str = always("")
    """What the copy of a slave lacks of its master's log; empty: it is complete."""
    role: str = always("")
    run: I64 = always(0)
    slaves: list[SlaveStatus] = empty_list()
    state: str = always("")
    """State of a slave: searching, copying, following, waiting or stopped; empty for a master."""
    synced: I64 = always(0)
    trouble: str = always("")
    """Why a slave does not follow its master."""


class GivenOffset(Body):
    """An offset that a slave gave a consumer: the next one that it may pull or commit."""

    consumer: str = always("")
    """Client id of the consumer, or its host where it has not sent a heartbeat to the slave."""
    group: str = always("")
    offset: I64 = always(0)
    queueId: I64 = always(0)
    topic: str = always("")


class GivenOffsets(Body):
    """Body of 9714: what a slave has given to consumers, which its master then takes from them."""

    given: list[GivenOffset] = empty_list()


class RaftPeer(Body):
    """Another member of a DLedger group, as the asked one knows it."""

    address: str = always("")
    isOurs: bool = always(False)
    """Whether it is a broker of ours, and takes several entries in one push."""
    isReachable: bool | None = None
    """Not there: nothing was asked of it yet."""
    matchIndex: I64 | None = None
    """What a leader knows this follower to have; not there: the asked member does not lead."""
    member: str = always("")


class RaftStatus(Body):
    """Role, term and log of a member of a DLedger group; indexes are -1 where there is no entry."""

    beginIndex: I64 = always(-1)
    brokerId: I64 = always(0)
    brokerName: str = always("")
    committed: I64 = always(0)
    """Log offset behind the last committed entry."""
    committedIndex: I64 = always(-1)
    dispatched: I64 = always(0)
    elections: I64 = always(0)
    """How often this member has seen another leader since it was started."""
    end: I64 = always(0)
    endIndex: I64 = always(-1)
    group: str = always("")
    joined: bool = always(False)
    """False: it came with an empty disk and does not vote yet."""
    leader: str = always("")
    leaderAddress: str = always("")
    """Address of the leader for clients, if it is one of ours and known."""
    member: str = always("")
    peers: list[RaftPeer] = empty_list()
    pendingAppends: I64 = always(0)
    role: str = always("")
    syncedIndex: I64 = always(-1)
    term: I64 = always(-1)
    trouble: str = always("")
