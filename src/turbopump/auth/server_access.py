"""Access of other servers: the credentials of this server's own configuration count beside its users.

Members of a group get their users through the log that they copy. One that was down while the secret of the
servers changed, or begins with an empty disk, would refuse those from which it has to copy. So on the ports
between brokers the configured pair is a super user, whatever the users say.
"""

from collections.abc import Callable, Sequence

from turbopump.auth.access import BY_CERTIFICATE, Access, Identity, Source
from turbopump.auth.peer_proof import SignedGreeting
from turbopump.auth.policies import Explanation
from turbopump.auth.resources import Need
from turbopump.auth.signature import ACCESS_KEY, Credentials, is_signature_of, is_signed_by
from turbopump.protocol.command import Command


class ServerAccess:
    """Decides as the users or accounts do, and knows one more super user: the servers themselves."""

    def __init__(self, users: Callable[[], Access], own: Credentials | None) -> None:
        """`users` returns the users or accounts as they are now; `own`: the servers' credentials, if any."""
        self._users = users
        self._name = "" if own is None else own.access_key
        self._secrets = () if own is None else (own.secret_key,)
        self._identity = Identity(self._name, is_super=True)

    def identify(self, command: Command, source: Source) -> Identity:
        name = command.ext.get(ACCESS_KEY) if command.ext else None
        if name and name == self._name and is_signed_by(command, self._secrets):
            return self._identity
        if not name and source.certificate and source.certificate == self._name:
            return Identity(self._name, is_super=True, by=BY_CERTIFICATE)
        return self._users().identify(command, source)

    def signer_of(self, name: str, signature: bytes, content: bytes, source: Source) -> Identity | None:
        if name == self._name and is_signature_of(content, self._secrets, signature):
            return self._identity
        return self._users().signer_of(name, signature, content, source)

    def greeter(self, greeting: SignedGreeting) -> Identity | None:
        if greeting.user == self._name and greeting.is_by(self._secrets):
            return self._identity
        return self._users().greeter(greeting)

    def authorize(
        self, identity: Identity, needs: Sequence[Need], source: Source, code: int | None = None
    ) -> None:
        self._users().authorize(identity, needs, source, code)

    def has_secret(self, name: str) -> bool:
        return bool(name) and (name == self._name or self._users().has_secret(name))

    def current(self, identity: Identity, source: Source) -> Identity:
        return identity if identity.name == self._name else self._users().current(identity, source)

    def explain(self, name: str, need: Need, source: Source) -> Explanation:
        return self._users().explain(name, need, source)
