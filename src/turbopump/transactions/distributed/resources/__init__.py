"""Databases as participants (RM) of XA: branches that are prepared, and then committed or rolled back.

`XaResource` is one database, made from the function by which a program connects to it; `XaBranch` is the work
in it for one global transaction. `SqliteLastResource` is the one database without a prepared state that may
take part: its commit is the decision. What is done when is decided elsewhere.
"""

from turbopump.transactions.distributed.resources.last import SqliteLastBranch, SqliteLastResource
from turbopump.transactions.distributed.resources.resource import XaBranch, XaResource
from turbopump.transactions.distributed.resources.values import BranchVote, PreparedBranch

__all__ = ["BranchVote", "PreparedBranch", "SqliteLastBranch", "SqliteLastResource", "XaBranch", "XaResource"]
