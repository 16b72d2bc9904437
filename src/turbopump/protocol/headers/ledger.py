"""Requests to the ledger of decisions (9701 to 9707), Turbopump's own; `protocol/ledger.py` explains it."""

from turbopump.protocol.headers.base import I32, I64, Header


class LedgerOpenRequest(Header):
    """Request 9701: begin a run and fence earlier ones: what they have not decided never will be.

    `home`: the broker that keeps the book; another broker only stores where it is.
    """

    id: str
    run: str
    home: str


class LedgerSendRequest(Header):
    """Request 9702: store half messages; the body is a batch, REAL_TOPIC and REAL_QID name destinations."""

    id: str
    batch: I64
    run: str
    token: str
    home: str


class LedgerSendResponse(Header):
    count: I32
    durability: str = "memory"
    replicas: I32 = 1


class LedgerReadRequest(Header):
    """Request 9703: read the `Book` of an id; the body lists the batches whose entries are wanted."""

    id: str


class LedgerDecideRequest(Header):
    """Request 9704: decide a batch by the `LedgerEntry` in the body; the answer has the valid entry.

    The valid one is this, or an earlier decision of the batch.
    """

    id: str
    batch: I64
    run: str


class LedgerEndRequest(Header):
    """Request 9705: settle what is decided up to this batch: commit or roll back its half messages.

    `settled`, sent to the home: all other brokers have done so; when nothing is left here either, the winners
    may be forgotten.
    """

    id: str
    batch: I64
    settled: bool = False


class LedgerListRequest(Header):
    """Request 9706: list at most `count` books (`BookSummary`) whose ids come after `after`, by name."""

    after: str = ""
    count: I32 = 1000


class LedgerForgetRequest(Header):
    """Request 9707: delete everything this broker knows of an id, also which batches were decided."""

    id: str


class LedgerEndResponse(Header):
    """Response to 9705: messages committed and rolled back by this call, and left open up to the batch."""

    committed: I64
    rolledBack: I64
    left: I64
