"""The gate of the ports between brokers: who may copy the log, and who may speak in a DLedger group.

In: requests on the DLedger port, and peers of the replication port with what they have shown. Out: nothing,
or a refusal. It takes the right to change the cluster, which has to be shown by a signature or by a verified
certificate. Brokers of Apache's can show neither there: they are admitted by their address, and only where
the configuration names it (`authTrustedPeers`).
"""

from collections.abc import Iterable

from turbopump.auth.access import Source
from turbopump.auth.peer_proof import SignedGreeting
from turbopump.auth.policies import is_within, networks_of
from turbopump.guard.link import AccessLink, source_of
from turbopump.protocol.command import Command
from turbopump.protocol.errors import Refused
from turbopump.remoting.connection import Connection

HOW = (
    "a slave must sign (innerClientAuthenticationCredentials), show a certificate, or have its address in "
    "authTrustedPeers"
)


class PeerAccess:
    """Admits other brokers: a link of the DLedger port's router, and the check of the replication port."""

    wants_signature = True

    def __init__(self, link: AccessLink, trusted: Iterable[str]) -> None:
        """`link` knows the servers' own credentials too; peers at the addresses `trusted` show nothing."""
        self._link = link
        self._trusted = networks_of(trusted)

    # requests on the DLedger port

    def check(self, command: Command, connection: Connection) -> None:
        """Raises Refused unless the sender has a named address, or may change the cluster."""
        if not self._is_trusted(source_of(connection).address):
            self._link.check(command, connection)

    def permits_plain_sends(self, connection: Connection) -> bool:
        return False

    # peers of the replication port

    def admits(self, address: str, certificate: str) -> bool:
        """Returns whether a peer is a slave by its address or its verified certificate alone."""
        return self._is_trusted(address) or self._link.admits_holder(Source(address, certificate))

    def refusal(self, address: str, certificate: str, signed: SignedGreeting | None) -> str | None:
        """Returns why another peer, which has spoken now, may not have the log; None: it may."""
        try:
            self._link.check_slave(Source(address, certificate), signed)
        except Refused as refused:
            return f"{refused.remark} ({HOW})"
        return None

    def _is_trusted(self, address: str) -> bool:
        return bool(self._trusted) and is_within(address, self._trusted)
