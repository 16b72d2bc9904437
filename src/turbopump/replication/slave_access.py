"""Who may have the log: what the replication port asks about each peer before it is a slave.

In: the address of a peer, the user of its certificate, and how it has signed its greeting. Out: whether it
may have the log. Users and addresses are not known here; without access control every peer is a slave.
"""

from typing import Protocol

from turbopump.auth.peer_proof import SignedGreeting


class SlaveAccess(Protocol):
    """Interface of the check that every peer of the replication port passes."""

    @property
    def wants_signature(self) -> bool:
        """Whether slaves of ours have to sign their greetings."""

    def admits(self, address: str, certificate: str) -> bool:
        """Returns whether a peer is a slave by its address or its verified certificate alone."""

    def refusal(self, address: str, certificate: str, signed: SignedGreeting | None) -> str | None:
        """Returns why another peer, which has spoken now, may not have the log; None: it may.

        `signed`: its signed greeting; None: it did not sign.
        """


class OpenToAll:
    """The check of a master without access control: every peer is a slave."""

    wants_signature = False

    def admits(self, address: str, certificate: str) -> bool:
        return True

    def refusal(self, address: str, certificate: str, signed: SignedGreeting | None) -> str | None:
        return None
