"""Has a broker serve the role that its member has: it begins as a slave, and serves as master while it leads.

In: changes of the member's role. Out: calls that serve a role, one at a time, each begun when the one before
has ended. A role is served anew in every term: everything that it knows comes from the log and the files.
What is served is not known here.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable

from turbopump.broker.dledger.member import GroupMember
from turbopump.protocol.errors import Refused
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

RETRY_S = 1.0  # before a role that could not be served is tried again

Serve = Callable[[contextlib.AsyncExitStack, int | None], Awaitable[None]]
"""Serves as master in a term, or as slave (None), until the stack is closed."""


class RoleKeeper:
    """Serves the role of a group's member for as long as the broker runs."""

    def __init__(self, member: GroupMember, serve: Serve, clock: Clock) -> None:
        self._member = member
        self._serve = serve
        self._clock = clock
        self._served: int | None = None  # the term that is served as master; None: served as slave
        self._role = contextlib.AsyncExitStack()
        self._tasks = Tasks(log)

    async def start(self, host: str) -> None:
        """Serves as slave, joins the group, and follows its role from then on."""
        await self._serve_anew(None)
        try:
            await self._member.start(host)
        except BaseException:
            await self._role.aclose()
            raise
        self._tasks.start(self._keep(), name="serve the role of the DLedger member")

    async def stop(self, unregister: Callable[[], Awaitable[None]]) -> None:
        """Gives a leadership away, ends the role, then leaves the group, whatever fails."""
        await self._tasks.close()
        try:
            await self._member.hand_over()
            await unregister()
            await self._role.aclose()
        finally:
            self._member.follow()
            await self._member.stop()

    async def _keep(self) -> None:
        while True:
            await self._member.changed.wait()
            self._member.changed.clear()
            if (wanted := self._wanted()) != self._served:
                await self._change(wanted)

    def _wanted(self) -> int | None:
        """Returns the term to serve as master; None: to serve as slave."""
        member = self._member
        if not member.is_elected:
            return None
        if self._served == member.term:
            return self._served
        # Elected, but what was committed before may not be in its queues yet: a slave until then.
        return member.term if member.is_complete else None

    async def _change(self, wanted: int | None) -> None:
        try:
            if self._served is not None and wanted is not None:
                await self._serve_anew(None)  # the tables of an earlier term of its own
            await self._serve_anew(wanted)
        except Exception as error:
            role = "slave" if wanted is None else "master"
            if isinstance(error, Refused):  # the leadership moves or has ended, or the disk is full
                log.warning("Cannot serve as %s; trying again: %s", role, error)
            else:
                log.exception("Cannot serve as %s; trying again", role)
                self._member.failed("role", f"cannot serve as {role}: {type(error).__name__}: {error}")
            await self._role.aclose()
            self._served = -1  # neither
            await self._clock.sleep(RETRY_S)
            self._member.changed.set()

    async def _serve_anew(self, term: int | None) -> None:
        await self._role.aclose()
        if term is None:
            self._member.follow()
        elif not (self._member.is_elected and self._member.is_complete and self._member.term == term):
            self._served = -1
            self._member.changed.set()
            return
        async with contextlib.AsyncExitStack() as stack:
            await self._serve(stack, term)
            self._role = stack.pop_all()
        self._served = term
        self._member.recovered("role")
