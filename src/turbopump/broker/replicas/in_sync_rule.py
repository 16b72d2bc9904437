"""A link of the `before` chain for a SYNC_MASTER: sends are refused while too few brokers are in sync.

In: each request, and how many brokers are in sync. Out: a refusal before anything is stored, with Apache's
code and text (`minInSyncReplicas`). A sender that waits for no copy (WAIT=false) is served, as in Apache.
What ends a transaction passes too: the messages that it decides about were sent before. How many copies a
send waits for is in `acknowledgement.py`.
"""

import logging

from turbopump.broker.replicas.acknowledgement import ReplicaAcknowledgement
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.errors import SystemFailure
from turbopump.remoting.connection import Connection

log = logging.getLogger(__name__)

SENDS = frozenset(
    (
        *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK),
        *(Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.LEDGER_SEND),
    )
)
"""Requests that store a message of a client."""


class InSyncRule:
    """Refuses sends, except those with WAIT=false, while fewer brokers than minInSyncReplicas are in sync."""

    def __init__(self, acknowledgement: ReplicaAcknowledgement) -> None:
        self._acknowledgement = acknowledgement
        self._refuses = False

    def check(self, command: Command, connection: Connection) -> None:
        if command.code in SENDS and not self._is_met() and not _waits_for_nothing(command):
            raise SystemFailure(
                f"in-sync replicas not enough: {self._acknowledgement.in_sync} in sync, "
                f"minInSyncReplicas={self._acknowledgement.min_in_sync}; nothing was stored"
            )

    def permits_plain_sends(self, connection: Connection) -> bool:
        return self._is_met()

    def _is_met(self) -> bool:
        acknowledgement = self._acknowledgement
        needed = acknowledgement.min_in_sync
        refuses = needed > 1 and acknowledgement.in_sync < needed
        if refuses != self._refuses:
            self._refuses = refuses
            if refuses:
                words = "Sends are refused: %d brokers are in sync, minInSyncReplicas=%d. Start the slaves"
                log.warning(words, acknowledgement.in_sync, needed)
            else:
                log.info("Sends are accepted again: %d brokers are in sync", acknowledgement.in_sync)
        return not refuses


def _waits_for_nothing(command: Command) -> bool:
    fields = command.ext or {}
    packed = fields.get("i") or fields.get("properties") or ""
    return properties.find(packed, properties.WAIT) == "false"
