"""Links: checks that requests pass before their handlers, and permission for plain sends in bulk.

The router runs them. What a link checks (identity, permission, quota) belongs to other packages.
"""

from typing import Protocol, runtime_checkable

from turbopump.protocol.command import Command
from turbopump.protocol.frame import Frame
from turbopump.remoting.connection import Connection, Serve, Shortcut

NOTHING_USED = (0, b"")


class Link(Protocol):
    """Interface of a check that all requests pass before their handlers: identity, permission, quota."""

    def check(self, command: Command, connection: Connection) -> None:
        """Raises Refused to reject a request: the refusal is its answer. Returns to let the request pass."""

    def permits_plain_sends(self, connection: Connection) -> bool:
        """Returns whether the plain sends of one read event may be stored without a `check` of each.

        Asked once per read event, before anything of it is served together. False sends every request of the
        event through `check`.
        """


@runtime_checkable
class InspectingLink(Link, Protocol):
    """Interface of a link that looks at each plain send of a read event before they are served together."""

    def permitted_prefix(self, connection: Connection, data: bytes) -> int:
        """Returns how many bytes at the front of a read event are whole sends that have passed this link.

        What follows them goes through `check`, one request at a time.
        """

    def served(self, connection: Connection, used: int) -> None:
        """Called with how many of these bytes were served together: the rest goes through `check` as well."""


class BulkHandler(Protocol):
    """Interface: serves the plain requests of a read event together, gives the others to `Router.one`."""

    @property
    def shortcut(self) -> Shortcut | None:
        """Function that serves plain requests from the first bytes of a read event; None without one."""

    def serve(self, connection: Connection, frames: list[Frame]) -> None: ...


class GuardedBulk:
    """Bulk handler that asks the links, once per read event, which plain sends may be served together.

    A link that inspects sends is asked about the bytes that the shortcut would take; frames are then checked
    one by one.
    """

    def __init__(self, links: tuple[Link, ...], handler: BulkHandler, one_by_one: Serve) -> None:
        self._inspecting = tuple(link for link in links if isinstance(link, InspectingLink))
        self._links = tuple(link for link in links if link not in self._inspecting)
        self._together = handler.serve
        self._shortcut = handler.shortcut
        self._one_by_one = one_by_one
        # The read event that `shortcut` asked about last. What it leaves comes to `serve` in the same step of
        # the loop; frames that are deferred come later, and are asked about again.
        self._asked: tuple[Connection, int, bool] | None = None

    def shortcut(self, connection: Connection, data: bytes) -> tuple[int, bytes]:
        permitted = self._permitted(connection)
        self._asked = connection, connection.reads, permitted
        if not permitted or self._shortcut is None:
            return NOTHING_USED
        for link in self._inspecting:
            data = data[: link.permitted_prefix(connection, data)]
        taken = self._shortcut(connection, data) if data else NOTHING_USED
        for link in self._inspecting:
            link.served(connection, taken[0])
        return taken

    def serve(self, connection: Connection, frames: list[Frame]) -> None:
        asked, self._asked = self._asked, None
        if asked is not None and asked[0] is connection and asked[1] == connection.reads:
            permitted = asked[2]
        else:
            permitted = self._permitted(connection)
        together = permitted and not self._inspecting
        (self._together if together else self._one_by_one)(connection, frames)

    def _permitted(self, connection: Connection) -> bool:
        for link in self._links:  # noqa: SIM110 - a generator costs 0.4 us of each read event
            if not link.permits_plain_sends(connection):
                return False
        return True
