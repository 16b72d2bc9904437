"""Names of global transactions and of their branches in databases.

    tp1.1c291ca3.6f1d2b0c94e87a53d2f0b1a4        the gid: version, group, chance; 37 ASCII characters
    formatID 0x7470, gtrid = gid, bqual = branch as an XA resource names it

The mark of the group is in the gid, so that whoever finds a prepared branch in a database knows who may
end it.
"""

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from turbopump.protocol.global_transactions import LAST_RESOURCE_PREFIX
from turbopump.runtime.chance import Chance

FORMAT_ID: Final = 0x7470  # "tp"
MAX_BRANCH_NAME: Final = 32
"""Characters of a resource's name; databases take 64 bytes."""
DECIDED_BY_BOOK: Final = "tp1."
DECIDED_BY_LAST_RESOURCE: Final = LAST_RESOURCE_PREFIX


@dataclass(frozen=True, slots=True)
class Xid:
    """The name of one branch in a database."""

    gid: str
    branch: str
    """The name of the resource."""


def new_gid(group: str, chance: Chance, last_resource: bool = False) -> str:
    """Returns a gid that was never used. `last_resource`: the group has one, whose commit may decide."""
    version = DECIDED_BY_LAST_RESOURCE if last_resource else DECIDED_BY_BOOK
    return f"{version}{mark_of(group)}.{chance.getrandbits(96):024x}"


def mark_of(group: str) -> str:
    """Returns the eight characters by which a gid names its group."""
    return f"{crc32(group.encode()):08x}"


def is_of_group(gid: str, group: str) -> bool:
    """Tells whether a gid was made by `new_gid` for this group."""
    version, mark, rest = gid[:4], gid[4:13], gid[13:]
    known = version in (DECIDED_BY_BOOK, DECIDED_BY_LAST_RESOURCE)
    return known and mark == f"{mark_of(group)}." and len(rest) == 24


def may_last_resource_decide(gid: str) -> bool:
    """Tells whether a last resource must be asked before the book: its commit may be the decision."""
    return gid.startswith(DECIDED_BY_LAST_RESOURCE)
