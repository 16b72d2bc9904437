"""What the requests of clients meet while a member of a DLedger group changes its role."""

from dataclasses import replace

from turbopump.broker.config import BrokerIdentity
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.command import Command
from turbopump.protocol.errors import ServiceNotAvailable
from turbopump.remoting.connection import Connection

ROLE_CHANGE_WAIT_S = 0.5  # for requests that run when the role changes
ROLE_CHANGING = "service not available now: this broker changes its role; try again"


class RoleChangeGate:
    """A link of the `before` chain that refuses every request, while a broker changes its role."""

    def check(self, command: Command, connection: Connection) -> None:
        raise ServiceNotAvailable(ROLE_CHANGING)

    def permits_plain_sends(self, connection: Connection) -> bool:
        return False


def identity_in_role(identity: BrokerIdentity, term: int | None, slave_id: int) -> BrokerIdentity:
    """Returns the identity of a member that leads in `term`, or follows (None) with a slave's id."""
    if term is None:
        return replace(identity, role="SLAVE", broker_id=slave_id)
    return replace(identity, role="SYNC_MASTER", broker_id=MASTER_ID)
