"""The gate of the DLedger port, which stays open while the roles of a broker, and their parts, come and go.

In: requests of other members. Out: what the access control of the role that was built last says to them.
"""

from turbopump.protocol.command import Command
from turbopump.protocol.errors import ServiceNotAvailable
from turbopump.remoting.connection import Connection
from turbopump.remoting.links import Link


class MemberGate:
    """A link of the `before` chain of the DLedger port. Before the first role is built, nothing passes."""

    def __init__(self) -> None:
        self.now: Link | None = None
        """The gate of the role that was built last."""

    def check(self, command: Command, connection: Connection) -> None:
        if self.now is None:
            raise ServiceNotAvailable("service not available now: this member does not know its users yet")
        self.now.check(command, connection)

    def permits_plain_sends(self, connection: Connection) -> bool:
        return False
