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
