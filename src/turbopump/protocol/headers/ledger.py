"""Requests to the ledger of decisions (9701 to 9707), ours alone; `protocol/ledger.py` says what it is."""

from turbopump.protocol.headers.base import I32, I64, Header


class LedgerOpenRequest(Header):
    """A run begins: what earlier ones have not decided never will be. `home`: the broker that keeps the book;
    another one notes where it is.
    """

    id: str
    run: str
    home: str


class LedgerSendRequest(Header):
    """The body holds half messages in the format of a batch; REAL_TOPIC and REAL_QID of each say where it
    belongs.
    """

    id: str
    batch: I64
    run: str
    token: str
    home: str


class LedgerSendResponse(Header):
    count: I32
    durability: str = "memory"


class LedgerReadRequest(Header):
    """The body lists the batches whose entries are wanted. The answer's body is a `Book`."""

    id: str


class LedgerDecideRequest(Header):
    """The body is an `Entry`. The answer's body is the one that counts: this one, or one that was there."""

    id: str
    batch: I64
    run: str


class LedgerEndRequest(Header):
    """Settle now what is decided up to this batch. `settled`, to the home: all others have
    done so, and when nothing is left here either, the winners may be forgotten.
    """

    id: str
    batch: I64
    settled: bool = False


class LedgerListRequest(Header):
    """At most `count` books whose ids come after `after`, by name. The answer's body is a list of
    `BookSummary`.
    """

    after: str = ""
    count: I32 = 1000


class LedgerForgetRequest(Header):
    """All that this broker knows of an id goes, also which batches were decided."""

    id: str


class LedgerEndResponse(Header):
    """How many were committed and rolled back by this call, and how many up to the batch are still open."""

    committed: I64
    rolledBack: I64
    left: I64
