"""Requests to the ledger of decisions (9701 to 9707), Turbopump's own; `protocol/ledger.py` explains it."""

from turbopump.protocol.headers.base import I32, I64, Header


class LedgerOpenRequest(Header):
    """Begins a run and fences earlier ones: what they have not decided never will be.

    `home`: the broker that keeps the book; another broker only stores where it is.
    """

    id: str
    run: str
    home: str


class LedgerSendRequest(Header):
    """Stores half messages: the body is a batch; REAL_TOPIC and REAL_QID of each name its destination."""

    id: str
    batch: I64
    run: str
    token: str
    home: str


class LedgerSendResponse(Header):
    count: I32
    durability: str = "memory"


class LedgerReadRequest(Header):
    """Reads a `Book`; the body lists the batches whose entries are wanted."""

    id: str


class LedgerDecideRequest(Header):
    """Decides a batch: the body is a `LedgerEntry`. The answer holds the valid one: this or an earlier."""

    id: str
    batch: I64
    run: str


class LedgerEndRequest(Header):
    """Settles what is decided up to this batch.

    `settled`, sent to the home: all other brokers have done so; when nothing is left here either, the winners
    may be forgotten.
    """

    id: str
    batch: I64
    settled: bool = False


class LedgerListRequest(Header):
    """Lists at most `count` books whose ids come after `after`, by name: a list of `BookSummary`."""

    after: str = ""
    count: I32 = 1000


class LedgerForgetRequest(Header):
    """Deletes everything this broker knows of an id, also which batches were decided."""

    id: str


class LedgerEndResponse(Header):
    """Numbers of messages committed and rolled back by this call, and of those up to the batch still open."""

    committed: I64
    rolledBack: I64
    left: I64
