"""Makes the commands of a node's requests; reads the entries of a push from the log."""

import logging
from collections.abc import Callable, Sequence

from turbopump.protocol.command import Command, request
from turbopump.protocol.dledger.entry import DLedgerEntry
from turbopump.protocol.errors import BrokenRecord
from turbopump.raft import Node, Role
from turbopump.raft.messages import OutgoingRequest, PushOrder
from turbopump.replication.dledger import wire
from turbopump.replication.dledger.group import DLedgerGroup
from turbopump.store.dledger.entry_log import EntryLog

log_line = logging.getLogger(__name__)


class RequestEncoder:
    """Encodes requests of the present node; None while there is no node."""

    def __init__(self, group: DLedgerGroup, log: EntryLog, node: Callable[[], Node | None]) -> None:
        self._node = node
        self._group = group
        self._log = log

    def command(self, peer: str, outgoing: OutgoingRequest) -> Command | None:
        """Returns the command of a request; None if the node would not send it any longer."""
        node = self._node()
        if node is None:
            return None
        # Entries at the indexes of an earlier leadership may have been replaced since.
        if isinstance(outgoing, PushOrder) and (node.role is not Role.LEADER or outgoing.term != node.term):
            return None
        envelope = wire.Envelope(self._group.name, self._group.own_id, peer)
        body = wire.outgoing(envelope, outgoing, self._entries)
        return None if body is None else request(wire.CODES[type(outgoing)], body=body.encode())

    def _entries(self, order: PushOrder) -> Sequence[DLedgerEntry] | None:
        count = order.last_index - order.first_index + 1
        try:
            entries = self._log.entries(order.first_index, count, self._log.end)
        except BrokenRecord as error:
            log_line.error("Cannot push entry %d: %s", order.first_index, error)
            return None
        return entries if len(entries) == count else None
