"""`AccessControl`: what a server has when access control is on, put together from its configuration.

In: the configuration, where files are, disk and clock. Out: the link for the router, the handlers of
requests about users or accounts, and background work. Brokers and name servers build the same. What must
not start does not: `open` raises before anything is served.
"""

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turbopump.auth.access import Access
from turbopump.auth.server_access import ServerAccess
from turbopump.guard.account_requests import AccountHandler
from turbopump.guard.account_table import AccountTable
from turbopump.guard.audit import AuditLog, Run
from turbopump.guard.changes import ChangeAudit
from turbopump.guard.config import AccessConfig
from turbopump.guard.explain_requests import ExplainHandler
from turbopump.guard.failures import FailedSignatures
from turbopump.guard.link import AccessLink, Exemptions
from turbopump.guard.peers import PeerAccess
from turbopump.guard.quotas import UserQuotas
from turbopump.guard.signed_sends import Read
from turbopump.guard.user_requests import UserHandler
from turbopump.guard.users import UserTable
from turbopump.protocol.command import Command
from turbopump.remoting.router import Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk

log = logging.getLogger(__name__)

AUDIT_FILE = "access-audit.jsonl"


@dataclass(frozen=True, slots=True)
class ControlPlace:
    """Which server this is: its cluster, the directory of its files, name and address for answers."""

    cluster: str
    directory: str
    """Empty: users are in memory only, and audit lines need authAuditFile."""
    broker_name: str = ""
    address: str = ""
    is_open: Callable[[Command], bool] | None = None
    """Whether this server answers a request to everybody; None: no request is open."""
    is_encrypted: bool = False
    """Whether all connections are encrypted."""
    has_peers: bool = False
    """Whether this broker copies the log of others: a slave, or a member of a group."""


class AccessControl:
    """Access control of one server: its link, requests and background work."""

    def __init__(
        self,
        config: AccessConfig,
        place: ControlPlace,
        disk: Disk,
        run: Run,
        clock: Clock,
        read_send: Read | None = None,
    ) -> None:
        """`read_send` reads a signed plain send; None: each send is checked by itself."""
        assert config.is_on, "access control is off"
        self._config = config
        self._place = place
        path = config.audit_file or (f"{place.directory}/{AUDIT_FILE}" if place.directory else "")
        self._audit = AuditLog(path, disk, run, clock, config.audits_grants)
        self.users: UserTable | None = None
        """Users and policies of 5.x; None: accounts of 4.x decide."""
        self._accounts: AccountTable | None = None
        if config.accounts:
            self._accounts = AccountTable(config.accounts_dir, disk, run, clock)
        else:
            self.users = UserTable(config, place.directory, disk, run)
        exempt = Exemptions(config.unchecked, config.unauthorized, config.dry_run)
        failures, quotas = FailedSignatures(), UserQuotas(dict(config.quotas))
        self.link = AccessLink(
            self._access,
            place.cluster,
            self._audit,
            failures,
            quotas,
            clock,
            replace(exempt, is_open=place.is_open),
            read_send,
        )
        servers = ServerAccess(self._access, config.inner_credentials)
        of_peers = AccessLink(
            lambda: servers,
            place.cluster,
            self._audit,
            failures,
            quotas,
            clock,
            exempt,
        )
        self.peers = PeerAccess(of_peers, config.trusted_peers)
        """The gate of the ports between brokers."""

    def open(self) -> None:
        """Loads users or accounts, and logs what weakens access control. Blocks.

        Raises ExtraMissing, OSError, or AccessFileFault for a file that cannot be used.
        """
        log.info("Access control is on: %s", self._kind())
        for warning in (*self._table().open(), *self._warnings()):
            log.warning("Access control: %s", warning)
            self._audit.warned(warning)

    def routes(self) -> Routes:
        """Returns the requests about users and policies, or those about accounts."""
        return {**self._changes(), **ExplainHandler(self._access, self._config, self._place.cluster).routes()}

    def _changes(self) -> Routes:
        if self._accounts is not None:
            place = self._place
            identity = (place.broker_name, place.address, place.cluster)
            return AccountHandler(self._accounts, self.link, self._audit, identity).routes()
        assert self.users is not None
        return UserHandler(self.users, self.link, self._audit).routes()

    def around(self, routes: Routes) -> Routes:
        """Returns the handlers of a server, which leave audit lines of what they change."""
        return ChangeAudit(self.link, self._audit, self._place.cluster).around(routes)

    @property
    def tasks(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """The work that runs in the background while requests are served."""
        return (self._audit.run,) if self._accounts is None else (self._audit.run, self._accounts.watch)

    async def close(self) -> None:
        if self.users is not None:
            await self.users.close()
        await self._audit.close()

    def _table(self) -> UserTable | AccountTable:
        if self._accounts is not None:
            return self._accounts
        assert self.users is not None
        return self.users

    def _access(self) -> Access:
        return self._table().access

    def _kind(self) -> str:
        config = self._config
        if config.accounts:
            return f"accounts of {config.accounts_dir}"
        if config.authentication and config.authorization:
            return "users and policies"
        missing = "authorizationEnabled" if config.authentication else "authenticationEnabled"
        return f"users and policies; {missing} is switched on as well, one without the other protects nothing"

    def _warnings(self) -> list[str]:
        config = self._config
        found = []
        for key, codes in (
            ("authenticationWhitelist", config.unchecked),
            ("authorizationWhitelist", config.unauthorized),
        ):
            if codes:
                found.append(f"{key} lets requests pass: {', '.join(map(str, sorted(codes)))}")
        if config.dry_run:
            found.append("a dry run (authDryRun): nothing is refused, the audit log says what would be")
        if config.trusted_peers:
            peers = ", ".join(config.trusted_peers)
            found.append(f"authTrustedPeers: {peers} may copy all messages and users without a signature")
        if self._place.has_peers and config.inner_credentials is None:
            found.append(
                "what this broker asks of its master or its group is not signed: set "
                "innerClientAuthenticationCredentials, or they refuse it unless it shows a certificate"
            )
        if not self._place.is_encrypted:
            found.append("connections are not encrypted: who can read them can send a signed request again")
        return found
