"""Builds the part for access control: the first link of the `before` chain, and its requests.

Built before all others, whose handlers ask `Context.permit`. Without access control it has no link, so that
the router has no extra call per message.
"""

from collections.abc import Callable
from dataclasses import dataclass

from turbopump.broker.part import Context, Part
from turbopump.compiled import twins
from turbopump.guard.control import AccessControl, ControlPlace
from turbopump.guard.peers import PeerAccess
from turbopump.guard.users import USERS_FILE, UserTable

__all__ = ["USERS_FILE", "AccessPart", "build"]


@dataclass(kw_only=True)
class AccessPart(Part):
    """The part for access control, with the users that copies of this broker's log get."""

    users: UserTable | None = None
    """Users and policies of 5.x; None: access control is off, or by accounts of 4.x."""
    peers: PeerAccess | None = None
    """The gate of the ports between brokers; None: access control is off."""

    def takes(self) -> dict[str, Callable[[bytes], None]]:
        """Returns what takes the users of the master, by the name of their table."""
        return {} if self.users is None else {USERS_FILE: self.users.take}


async def build(context: Context) -> AccessPart:
    config = context.config()
    if not config.access.is_on:
        return AccessPart()
    place = ControlPlace(
        cluster=config.identity.cluster_name,
        directory=config.store.config_dir,
        broker_name=context.broker_name,
        address=context.address,
        is_encrypted=context.is_encrypted,
        has_peers=context.is_slave or context.member is not None,
    )
    compiled = twins()
    read_send = None if compiled is None else compiled.signed_send
    control = AccessControl(config.access, place, context.disk, context.workers.run, context.clock, read_send)
    await context.workers.run(control.open)
    context.member_gate.now = control.peers
    context.permit = control.link.permit
    context.charge = control.link.charge if config.access.quotas else None
    context.may_decide = control.link.may_decide
    context.may_receive = control.link.may_receive
    return AccessPart(
        routes=control.routes(),
        before=(control.link,),
        around=control.around,
        tasks=control.tasks,
        close=[control.close],
        users=control.users,
        peers=control.peers,
    )
