"""Signed plain sends of a read event, checked before they are served together.

In: the bytes of a read event. Out: how many of them, from the front, are whole sends whose sender is known
and may write to their topics: the same decisions as `AccessLink.check` makes for one request. At the first
send that is not plain, or about which there is any doubt, it stops: that one goes through `check`, where
refusals, failed signatures and audit lines are made.
"""

from collections.abc import Callable

from turbopump.auth.access import Access, Identity, Source
from turbopump.auth.rules import MAX_REMEMBERED_NAME, needs_of_send
from turbopump.compiled import SignedSend
from turbopump.guard.failures import FailedSignatures, SignedNames
from turbopump.guard.quotas import UserQuotas
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.frame import MAX_FRAME
from turbopump.remoting.connection import Connection

CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2})
"""Request codes of plain sends."""

REQUEST = properties.REPLY_TO_CLIENT.encode()
"""Property of a request that wants a reply: `check` remembers who sent it."""

Read = Callable[[bytes, int, int], SignedSend | None]


class SignedSends:
    """Checks the signed plain sends at the front of read events."""

    def __init__(
        self,
        read: Read,
        access: Callable[[], Access],
        cluster: str,
        failures: FailedSignatures,
        quotas: UserQuotas,
    ) -> None:
        """`read` is the compiled reader, see `compiled.Twins.signed_send`."""
        self._read = read
        self._access = access
        self._cluster = cluster
        self._failures = failures
        self._quotas = quotas
        self._counted: list[tuple[int, Identity, int]] = []
        """End, sender and size of the sends of this read event that count against a quota."""

    def prefix(
        self, connection: Connection, data: bytes, source: Source, shown: SignedNames, now: float
    ) -> int:
        """Returns the size of the sends at the front of `data` that have passed.

        `shown`: what the connection has shown so far.
        """
        access, cluster, failures, quotas = self._access(), self._cluster, self._failures, self._quotas
        # Asked once for all sends of the event, not for each: 0.1 of 3 us.
        have_failed, have_quotas, at, last = bool(failures), bool(quotas), 0, ""
        while (row := self._read(data, at, MAX_FRAME)) is not None:
            size, name, signature, topic, content, body_size = row
            if len(topic) > MAX_REMEMBERED_NAME or content.find(REQUEST, 0, len(content) - body_size) >= 0:
                break
            try:
                if have_failed:
                    failures.check(source.address, name, shown, now)
                identity = access.signer_of(name, signature, content, source)
                if identity is None:
                    break
                if name != last:
                    failures.succeeded(source.address, name, shown)
                    last = name
                access.authorize(identity, needs_of_send(topic, cluster), source)
                is_counted = have_quotas and quotas.take(identity, body_size, connection, now)
            except Refused:
                break
            at += size
            if is_counted:
                self._counted.append((at, identity, body_size))
        return at

    def served(self, used: int) -> None:
        """Gives the quotas back what is behind `used`: it is counted when it is checked by itself."""
        for end, identity, size in self._counted:
            if end > used:
                self._quotas.give_back(identity, size)
        self._counted.clear()
