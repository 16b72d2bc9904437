"""Who sent a request, and may they do what it needs: the interface of both kinds of access control.

In: a command, the address it came from, the needs of the request (`needs.py`). Out: an identity, or the
refusal to answer. `UserAccess` decides by the users and policies of 2.0, `AccountAccess` by the accounts of
1.0 (`account_access.py`). Nothing here counts attempts, limits rates or writes a log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from turbopump.auth.book import UserBook
from turbopump.auth.peer_proof import SignedGreeting
from turbopump.auth.policies import Explanation, decide, explained
from turbopump.auth.resources import Need
from turbopump.auth.signature import ACCESS_KEY, is_signature_of, is_signed_by
from turbopump.auth.users import MAX_SECRETS, User
from turbopump.protocol.command import Command
from turbopump.protocol.errors import NoPermission

MAX_REMEMBERED = 65_536  # allowed needs: about 20 MB
MAX_REMEMBERED_NAME = 255  # characters: longer names are refused by the handlers anyway

BY_SIGNATURE = "signature"
BY_CERTIFICATE = "certificate"
BY_ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a request came from. `certificate` is the name of a verified client certificate, "" without."""

    address: str
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a request, and how that is known: by a signature, a certificate or a white address."""

    name: str
    is_super: bool = False
    by: str = BY_SIGNATURE


_NO_SECRETS = ("",) * MAX_SECRETS
"""Secrets of an unknown user: what is computed with them is thrown away."""

_UNKNOWN_USER: tuple[tuple[str, ...], Identity | None] = ((), None)


class Access(Protocol):
    """Interface of access control: identifies the sender of a request and decides about its needs."""

    def identify(self, command: Command, source: Source) -> Identity:
        """Returns who sent a request; raises Refused, with Apache's texts, if that is not certain."""

    def signer_of(self, name: str, signature: bytes, content: bytes, source: Source) -> Identity | None:
        """Returns who signed the content of a plain send, as `identify` would; None: ask `identify`."""

    def greeter(self, greeting: SignedGreeting) -> Identity | None:
        """Returns who signed the greeting of a slave; None: the signature is wrong, or its user unknown."""

    def authorize(
        self, identity: Identity, needs: Sequence[Need], source: Source, code: int | None = None
    ) -> None:
        """Raises NoPermission for the first need that is not met; `code` is that of the request."""

    def has_secret(self, name: str) -> bool:
        """Returns whether there is a secret of this name that somebody could guess."""

    def current(self, identity: Identity, source: Source) -> Identity:
        """Returns an identity of before with its rights of now; raises NoPermission if it has none."""

    def explain(self, name: str, need: Need, source: Source) -> Explanation:
        """Returns whether and why a user may do something from an address."""


class UserAccess:
    """Access control by the users and policies of 2.0: what no entry allows is refused.

    `book` may be set at any time and counts from the next request on. Decisions are remembered for one book
    only, so nothing has to be forgotten when a user changes; signatures are never remembered.
    """

    def __init__(self, book: UserBook) -> None:
        self.book = book

    @property
    def book(self) -> UserBook:
        return self._book

    @book.setter
    def book(self, book: UserBook) -> None:
        self._book = book
        self._allowed: set[tuple[str, str, Need]] = set()
        self._signers = {
            name: (user.secrets, Identity(name, user.is_super))
            for name, user in book.users.items()
            if user.is_enabled
        }

    def identify(self, command: Command, source: Source) -> Identity:
        """Returns the user whose secret signed a request; without a key, the user of the certificate.

        Raises NoPermission. For an unknown or disabled user, which the refusal names, nothing is computed.
        """
        ext = command.ext
        name = ext.get(ACCESS_KEY) if ext else None
        if not name:
            return self._by_certificate(source)
        secrets, identity = self._signers.get(name, _UNKNOWN_USER)
        if identity is None:
            self._enabled(name)
        elif is_signed_by(command, secrets):
            return identity
        is_signed_by(command, _NO_SECRETS[len(secrets) :])
        raise NoPermission("check signature failed.")

    def has_secret(self, name: str) -> bool:
        """Returns whether there is a secret of this name that somebody could guess."""
        return name in self._signers

    def signer_of(self, name: str, signature: bytes, content: bytes, source: Source) -> Identity | None:
        """Returns the user whose secret signed this content; None: `identify` decides."""
        secrets, identity = self._signers.get(name, _UNKNOWN_USER)
        return identity if is_signature_of(content, secrets, signature) else None

    def greeter(self, greeting: SignedGreeting) -> Identity | None:
        """Returns the user who signed the greeting of a slave; None: nobody that is enabled."""
        secrets, identity = self._signers.get(greeting.user, _UNKNOWN_USER)
        return identity if greeting.is_by(secrets) else None

    def current(self, identity: Identity, source: Source) -> Identity:
        """Returns an identity of before with its rights of now; raises NoPermission if it has none."""
        user = self._enabled(identity.name)
        return Identity(user.name, user.is_super, identity.by)

    def _by_certificate(self, source: Source) -> Identity:
        if not source.certificate:
            raise NoPermission("username cannot be null.")
        user = self._enabled(source.certificate)
        return Identity(user.name, user.is_super, BY_CERTIFICATE)

    def _enabled(self, name: str) -> User:
        user = self._book.users.get(name)
        if user is None:
            raise NoPermission(f"User:{name} is not found.")
        if not user.is_enabled:
            raise NoPermission(f"User:{name} is disabled.")
        return user

    def authorize(
        self, identity: Identity, needs: Sequence[Need], source: Source, code: int | None = None
    ) -> None:
        """Raises NoPermission for the first need that the policies of a user do not meet."""
        if identity.is_super:
            return
        for need in needs:
            key = identity.name, source.address, need
            if key not in self._allowed:
                self._decide(identity.name, need, source)
                self._remember(key)

    def _decide(self, name: str, need: Need, source: Source) -> None:
        verdict = decide(self._book.policies_of(name), need, source.address)
        if not verdict.is_allowed:
            denied = f"has no permission to access {need.resource} from {source.address}"
            raise NoPermission(f"User:{name} {denied}, {verdict.reason}.")

    def _remember(self, key: tuple[str, str, Need]) -> None:
        if len(key[2].resource.name) > MAX_REMEMBERED_NAME:
            return
        if len(self._allowed) >= MAX_REMEMBERED:
            self._allowed.clear()
        self._allowed.add(key)

    def explain(self, name: str, need: Need, source: Source) -> Explanation:
        """Returns whether and why a user may do something from an address."""
        user = self._book.users.get(name)
        if user is None:
            return Explanation(False, f"User:{name} may not {need}: there is no such user")
        if not user.is_enabled:
            return Explanation(False, f"User:{name} may not {need}: the user is disabled")
        if user.is_super:
            return Explanation(True, f"User:{name} may {need}: super users may do everything", "super user")
        return explained(name, self._book.policies_of(name), need, source.address)
