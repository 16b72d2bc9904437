"""The gate: a link of the routers' `before` chain that every request passes, on brokers and name servers.

In: a request and its connection. Out: nothing, or a refusal before any handler sees it. Who somebody is and
what he may do is decided in `auth`; here it is asked, and what follows is counted: failed signatures,
quotas, audit lines. The order is fixed: back-off, identity, quota, permission. Nothing is kept about a
connection, so that a change of a user counts from the next request on.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from turbopump.auth.access import BY_SIGNATURE, Access, Identity, Source
from turbopump.auth.needs import needs_of, needs_of_stored
from turbopump.auth.peer_proof import SignedGreeting
from turbopump.auth.resources import Action, Need
from turbopump.auth.resources import cluster as cluster_need
from turbopump.auth.signature import ACCESS_KEY
from turbopump.guard.audit import AuditLog
from turbopump.guard.config import ABOUT_ACCESS
from turbopump.guard.failures import FREE_FAILURES, FailedSignatures, SignedNames
from turbopump.guard.quotas import UserQuotas
from turbopump.guard.reply_receivers import ReplyReceivers
from turbopump.guard.signed_sends import CODES, Read, SignedSends
from turbopump.protocol import properties
from turbopump.protocol.bodies import HeartbeatData
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import BrokenBody, NoPermission, Refused
from turbopump.protocol.record import Record
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Request
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

LOG_INTERVAL_S = 10.0
REFUSED_LINES = 5
SOURCE, SHOWN = "access source", "signed names"
"""Attributes of a connection."""
OF_REPLICATION = Command(0)
"""Stands in audit lines for a greeting on the replication port, which has no requests."""


class Permit(Protocol):
    """Interface for handlers of requests that name a message by its place in the log.

    They alone know which topic such a request is about.
    """

    def __call__(self, request: Request[Any], record: Record) -> None:
        """Raises Refused if the sender of a request may not use the message that its handler found."""


def permit_all(request: Request[Any], record: Record) -> None:
    """Permits everything: what handlers get without access control."""


class MayDecide(Protocol):
    """Interface for transaction checks: whether a connected producer may be asked about a half message."""

    def __call__(self, connection: Connection, half: Record) -> bool: ...


def any_may_decide(connection: Connection, half: Record) -> bool:
    """Returns True: without access control every producer of the group is asked."""
    return True


class MayReceive(Protocol):
    """Interface for replies to requests: whether the connection of a client may receive one."""

    def __call__(self, connection: Connection, client_id: str, correlation_id: str, /) -> bool: ...


def any_may_receive(connection: Connection, client_id: str, correlation_id: str) -> bool:
    """Returns True: without access control the newest connection of a client receives its replies."""
    return True


class Charge(Protocol):
    """Interface for handlers that send messages: counts them against the quota of who asked."""

    def __call__(self, request: Request[Any], size: int, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Exemptions:
    """What a gate lets pass without all of its checks."""

    unchecked: frozenset[int] = frozenset()
    """Codes that need no identity."""
    unauthorized: frozenset[int] = frozenset()
    """Codes that need no permission."""
    is_dry_run: bool = False
    """Whether nothing is refused but requests about access control itself; what would be refused is noted."""
    is_open: Callable[[Command], bool] | None = None
    """Whether a request needs no identity; None: by its code alone."""


class AccessLink:
    """Refuses every request whose sender is not known or may not do it."""

    def __init__(
        self,
        access: Callable[[], Access],
        cluster: str,
        audit: AuditLog,
        failures: FailedSignatures,
        quotas: UserQuotas,
        clock: Clock,
        exempt: Exemptions,
        read_send: Read | None = None,
    ) -> None:
        """`access` returns the users or accounts as they are now; `read_send` reads a signed plain send."""
        self._access = access
        self._cluster = cluster
        self._audit = audit
        self._failures = failures
        self._quotas = quotas
        self._clock = clock
        self._unchecked, self._unauthorized = exempt.unchecked, exempt.unauthorized
        self._is_open, self._is_dry_run = exempt.is_open, exempt.is_dry_run
        # Sends that need no check, or an audit line each, are not served together.
        together = not audit.grants and CODES.isdisjoint(exempt.unchecked | exempt.unauthorized)
        self._sends = (
            SignedSends(read_send, access, cluster, failures, quotas) if read_send and together else None
        )
        self._slave_needs = (cluster_need(cluster, Action.UPDATE),)
        self._members: dict[Connection, Identity] = {}
        """Senders of the last heartbeats, by connection. What they may do now is asked when it matters."""
        self._receivers = ReplyReceivers()
        self._client_ids: dict[Connection, str] = {}
        """Client ids of producers in the last heartbeats, by connection."""
        self._refused = RateLimitedLog(log, LOG_INTERVAL_S, logging.WARNING, REFUSED_LINES)

    def check(self, command: Command, connection: Connection) -> None:
        """Raises Refused unless the sender is known, may do this, and is within his quota."""
        if command.code in self._unchecked or (self._is_open is not None and self._is_open(command)):
            if command.code == RequestCode.HEART_BEAT:
                self._remember_if_known(command, connection)
            return
        try:
            source = source_of(connection)
            identity = self._identify(command, source, shown_of(connection))
            # Before the permission, so that refused requests cost as much as others.
            self._quotas.take(identity, len(command.body), connection, self._clock.monotonic())
            if command.code not in self._unauthorized:
                self._authorize(command, identity, source)
            if command.code == RequestCode.HEART_BEAT:
                self._remember(identity, command, connection)
            elif command.code in CODES:
                self._remember_request(identity, command)
        except Refused as refused:
            self._refuse(command, connection, refused)

    def admits_holder(self, source: Source) -> bool:
        """Returns whether a peer of the replication port may have the log by its certificate alone."""
        if not source.certificate:
            return False
        access = self._access()
        try:
            access.authorize(access.identify(OF_REPLICATION, source), self._slave_needs, source)
        except Refused:
            return False
        return True

    def check_slave(self, source: Source, signed: SignedGreeting | None) -> None:
        """Raises Refused unless a peer of the replication port may have the log: all messages, all users.

        `signed`: its signed greeting; None: what it shows is its certificate, if it has one.
        """
        try:
            if signed is None:
                identity = self._identify(OF_REPLICATION, source, SignedNames())
            else:
                identity = self._identify_as(
                    OF_REPLICATION,
                    signed.user,
                    source,
                    SignedNames(),
                    lambda: _greeter(self._access(), signed),
                )
            self._decide(OF_REPLICATION, identity, self._slave_needs, source)
        except Refused as refused:
            if not self._is_dry_run:
                raise
            text = "Dry run: the slave %s would be refused: %.300s"
            self._refused.log(self._clock.monotonic(), text, source.address, refused.remark)

    def permits_plain_sends(self, connection: Connection) -> bool:
        """Returns False: each send names its user and its topic, so each is checked."""
        return False

    def permitted_prefix(self, connection: Connection, data: bytes) -> int:
        """Returns how many bytes at the front of a read event are signed sends that may be stored."""
        if self._sends is None:
            return 0
        shown = shown_of(connection)
        return self._sends.prefix(connection, data, source_of(connection), shown, self._clock.monotonic())

    def served(self, connection: Connection, used: int) -> None:
        """Takes back from the quotas what passed together and goes through `check` all the same."""
        if self._sends is not None:
            self._sends.served(used)

    def permit(self, request: Request[Any], record: Record) -> None:
        """Raises Refused if the sender of a request has no right to the message that its handler found."""
        command = request.command
        if command.code in self._unchecked or command.code in self._unauthorized:
            return
        source = source_of(request.connection)
        real_topic = properties.find(record.properties, properties.REAL_TOPIC)
        needs = needs_of_stored(command.code, record.topic, real_topic, self._cluster)
        try:
            identity = self._identify(command, source, shown_of(request.connection))
            self._decide(command, identity, needs, source)
        except Refused as refused:
            self._refuse(command, request.connection, refused)

    def may_decide(self, connection: Connection, half: Record) -> bool:
        """Returns whether the sender of a connection's heartbeats may end the transaction of a half message.

        Anybody may say that they belong to a group of producers, and a check shows them the message.
        """
        if self._is_dry_run or RequestCode.END_TRANSACTION in self._unchecked | self._unauthorized:
            return True
        identity = self._sender_of(connection)
        if identity is None:
            return False
        real_topic = properties.find(half.properties, properties.REAL_TOPIC)
        needs = needs_of_stored(RequestCode.END_TRANSACTION, half.topic, real_topic, self._cluster)
        try:
            self._access().authorize(identity, needs, source_of(connection))
        except Refused:
            return False
        return True

    def may_receive(self, connection: Connection, client_id: str, correlation_id: str) -> bool:
        """Returns whether the sender of a connection's heartbeats may receive a reply to a client.

        Anybody may say that they are a producer with this id, and a reply shows them what was answered.
        """
        if self._is_dry_run or RequestCode.HEART_BEAT in self._unchecked:
            return True
        identity = self._sender_of(connection)
        return identity is not None and self._receivers.may_receive(client_id, correlation_id, identity.name)

    def _sender_of(self, connection: Connection) -> Identity | None:
        """Returns who sent a connection's heartbeats, with the rights of now; None: a user of before."""
        identity = self._members.get(connection)
        if identity is None:
            return None
        try:
            return self._access().current(identity, source_of(connection))
        except NoPermission:
            return None

    def _remember(self, identity: Identity, beat: Command, connection: Connection) -> None:
        if connection not in self._members:
            connection.on_closed.append(self._forget)
        self._members[connection] = identity
        data = HeartbeatData.decode(beat.body)
        if not data.producerDataSet:
            return
        client_id, now = data.clientID or "", self._clock.monotonic()
        known = self._client_ids.setdefault(connection, client_id)
        if known != client_id:
            self._receivers.closed(known, connection, now)
            self._client_ids[connection] = client_id
        if not self._receivers.beat(client_id, identity.name, connection, now):
            text = "User %.100r uses the client id %.100r of another user, whose replies it does not get: %s"
            self._refused.log(now, text, identity.name, client_id, connection)

    def _remember_if_known(self, beat: Command, connection: Connection) -> None:
        """Remembers who sent a heartbeat that needs no identity; warns when its producers stay unknown."""
        identity = self._known_sender(beat, connection)
        try:
            if identity is not None:
                self._remember(identity, beat, connection)
            elif HeartbeatData.decode(beat.body).producerDataSet:
                text = "Producers at %s are not asked about transactions: nobody has signed their heartbeat"
                self._refused.log(self._clock.monotonic(), text, connection)
        except BrokenBody:  # its handler says so
            return

    def _known_sender(self, command: Command, connection: Connection) -> Identity | None:
        """Returns the sender of a request that needs no identity; None: it is not known."""
        source, shown, now = source_of(connection), shown_of(connection), self._clock.monotonic()
        name = (command.ext or {}).get(ACCESS_KEY, "")
        try:
            self._failures.check(source.address, name, shown, now)
            return self._access().identify(command, source)
        except Refused:
            if self._access().has_secret(name):
                self._count_failure(name, source, shown, now)
            return None

    def charge(self, request: Request[Any], size: int) -> None:
        """Counts what was read for a request that has passed against the quota of its sender."""
        name = (request.command.ext or {}).get(ACCESS_KEY) or source_of(request.connection).certificate
        self._quotas.charge(name, size)

    def _remember_request(self, identity: Identity, send: Command) -> None:
        text = (send.ext or {}).get("i" if send.code == RequestCode.SEND_MESSAGE_V2 else "properties", "")
        if properties.REPLY_TO_CLIENT in text:
            self._receivers.asked(properties.find(text, properties.CORRELATION_ID) or "", identity.name)

    def _forget(self, connection: Connection) -> None:
        self._members.pop(connection, None)
        client_id = self._client_ids.pop(connection, None)
        if client_id is not None:
            self._receivers.closed(client_id, connection, self._clock.monotonic())

    def name_of(self, request: Request[Any]) -> Identity | None:
        """Returns who sent a request that has passed, for handlers that serve super users only."""
        if request.command.code in self._unchecked:
            return None
        connection = request.connection
        return self._identify(request.command, source_of(connection), shown_of(connection))

    def _refuse(self, command: Command, connection: Connection, refused: Refused) -> None:
        """Raises the refusal; in a dry run only logs it, but for requests about access control itself."""
        if not self._is_dry_run or command.code in ABOUT_ACCESS:
            raise refused
        text = "Dry run: request %d of %s would be refused: %.300s"
        self._refused.log(self._clock.monotonic(), text, command.code, connection, refused.remark)

    def _identify(self, command: Command, source: Source, shown: SignedNames) -> Identity:
        name = (command.ext or {}).get(ACCESS_KEY, "")
        return self._identify_as(
            command, name, source, shown, lambda: self._access().identify(command, source)
        )

    def _identify_as(
        self,
        command: Command,
        name: str,
        source: Source,
        shown: SignedNames,
        identify: Callable[[], Identity],
    ) -> Identity:
        """Returns who sent something under a name, by `identify`; counts and notes it when that fails.

        `shown`: what the connection has shown before.
        """
        now = self._clock.monotonic()
        try:
            self._failures.check(source.address, name, shown, now)
        except NoPermission as refused:
            self._note(command, name, source, refused, is_known=False)
            raise
        try:
            identity = identify()
        except Refused as refused:
            if self._access().has_secret(name):  # without a known name, no secret was guessed
                self._count_failure(name, source, shown, now)
            self._note(command, name, source, refused, is_known=False)
            raise
        if identity.by == BY_SIGNATURE:
            self._failures.succeeded(source.address, name, shown)
        return identity

    def _count_failure(self, name: str, source: Source, shown: SignedNames, now: float) -> None:
        count = self._failures.failed(source.address, name, shown, now)
        if count == FREE_FAILURES + 1:
            text = "Requests of user %.100r from %s failed %d times: further ones have to wait"
            self._refused.log(now, text, name, source.address, count)

    def _authorize(self, command: Command, identity: Identity, source: Source) -> None:
        try:
            needs = needs_of(command, self._cluster)
        except Refused as refused:
            self._note(command, identity.name, source, refused)
            raise
        self._decide(command, identity, needs, source)

    def _decide(self, command: Command, identity: Identity, needs: Sequence[Need], source: Source) -> None:
        try:
            self._access().authorize(identity, needs, source, command.code)
        except Refused as refused:
            self._note(command, identity.name, source, refused, needs)
            raise
        if self._audit.grants:
            self._audit.granted(identity.name, source.address, command.code, _text(needs), identity.by)

    def _note(
        self,
        command: Command,
        name: str,
        source: Source,
        refused: Refused,
        needs: Sequence[Need] = (),
        is_known: bool = True,
    ) -> None:
        passes = self._is_dry_run and command.code not in ABOUT_ACCESS
        note = self._audit.would_refuse if passes else self._audit.refused
        note(name, source.address, command.code, refused.remark, _text(needs), is_known)


def source_of(connection: Connection) -> Source:
    """Returns where requests of a connection come from: the peer's address, a user's verified certificate.

    Neither changes while a connection lives, so it is kept there: 0.4 of 4.6 µs for the check of a send.
    """
    source = connection.attributes.get(SOURCE)
    if isinstance(source, Source):
        return source
    made = Source(connection.peer[0], connection.certificate)
    connection.attributes[SOURCE] = made
    return made


def shown_of(connection: Connection) -> SignedNames:
    """Returns what requests of a connection have shown so far: names, signed rightly or not."""
    shown = connection.attributes.get(SHOWN)
    if isinstance(shown, SignedNames):
        return shown
    made = SignedNames()
    connection.attributes[SHOWN] = made
    return made


def _greeter(access: Access, signed: SignedGreeting) -> Identity:
    identity = access.greeter(signed)
    if identity is None:
        raise NoPermission(
            f"the greeting of User:{signed.user} has a wrong signature, or there is no such user"
        )
    return identity


def _text(needs: Sequence[Need]) -> str:
    return "; ".join(map(str, needs))
