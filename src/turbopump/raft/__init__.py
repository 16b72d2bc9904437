"""Consensus of a DLedger group as a state machine: elections, terms and commits; events in, effects out."""

from turbopump.raft.config import NodeConfig, SavedState
from turbopump.raft.effects import (
    AppendEntries,
    AppendNoOp,
    Commit,
    Effect,
    Respond,
    Role,
    RoleChanged,
    Save,
    Send,
    Truncate,
)
from turbopump.raft.events import (
    Answered,
    Appended,
    Eligible,
    Event,
    PeerTakesBatches,
    PeerUnreachable,
    Received,
    Synced,
    Tick,
    Transfer,
)
from turbopump.raft.log_view import LogView
from turbopump.raft.node import Node
from turbopump.raft.pending_appends import AppendOutcome, AppendResult, PendingAppends

__all__ = [
    "Answered",
    "AppendEntries",
    "AppendNoOp",
    "AppendOutcome",
    "AppendResult",
    "Appended",
    "Commit",
    "Effect",
    "Eligible",
    "Event",
    "LogView",
    "Node",
    "NodeConfig",
    "PeerTakesBatches",
    "PeerUnreachable",
    "PendingAppends",
    "Received",
    "Respond",
    "Role",
    "RoleChanged",
    "Save",
    "SavedState",
    "Send",
    "Synced",
    "Tick",
    "Transfer",
    "Truncate",
]
