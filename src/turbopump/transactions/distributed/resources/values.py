"""The names and votes of branches, and how databases write the names. Pure.

PostgreSQL   '29808_<base64 of the gid>_<base64 of the branch>'      as psycopg writes an xid, one text
MariaDB      X'<hex of the gid>',X'<hex of the branch>',29808        gtrid, bqual and formatID
"""

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass
from enum import Enum

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.distributed.gids import FORMAT_ID, MAX_BRANCH_NAME, Xid

MAX_GID_BYTES = 64  # of a gtrid in XA


class BranchVote(Enum):
    """How a participant answers CanCommit. A No is raised, as Declined or as the error of the database."""

    YES = "yes"
    READ_ONLY = "read-only"
    """It has written nothing and has ended: it need not be committed."""


@dataclass(frozen=True, slots=True)
class PreparedBranch:
    """A prepared branch that a database lists."""

    xid: Xid
    since_ms: int | None
    """When it was prepared, in milliseconds since 1970; None: the database does not say."""


def checked_xid(xid: Xid) -> Xid:
    """Returns the xid if every database takes it. Raises InvalidArgument."""
    for what, word, length in (("gid", xid.gid, MAX_GID_BYTES), ("resource", xid.branch, MAX_BRANCH_NAME)):
        if not 0 < len(word) <= length or not word.isascii() or not word.isprintable():
            raise InvalidArgument(f"{what} must be 1 to {length} printable ASCII characters, got {word!r}")
    return xid


def postgresql_literal(xid: Xid) -> str:
    """Returns the name of a branch as an SQL literal: base64 needs no quoting."""
    words = (b64encode(word.encode()).decode() for word in (xid.gid, xid.branch))
    return f"'{FORMAT_ID}_{'_'.join(words)}'"


def read_postgresql(text: str) -> Xid | None:
    """Reads a gid of `pg_prepared_xacts`; None: it is not ours."""
    words = text.split("_")
    if len(words) != 3 or words[0] != str(FORMAT_ID):
        return None
    try:
        gid, branch = (b64decode(word, validate=True).decode("ascii") for word in words[1:])
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Xid(gid, branch)


def mariadb_literal(xid: Xid) -> str:
    """Returns the name of a branch as XA statements take it: hex literals need no quoting."""
    return f"X'{xid.gid.encode().hex()}',X'{xid.branch.encode().hex()}',{FORMAT_ID}"


def read_mariadb(format_id: int, gtrid_length: int, bqual_length: int, data: bytes | str) -> Xid | None:
    """Reads a row of XA RECOVER; None: it is not ours."""
    if format_id != FORMAT_ID:
        return None
    text = data if isinstance(data, str) else data.decode("latin-1")
    if not text.isascii() or len(text) != gtrid_length + bqual_length:
        return None
    return Xid(text[:gtrid_length], text[gtrid_length:])
