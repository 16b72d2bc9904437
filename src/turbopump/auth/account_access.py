"""Access control by the accounts of 1.0, by the same table of needs as 2.0.

PUB is Pub; SUB is Sub and Get, on groups also Update, without which consumers could not commit. All other
needs are for administrators, so that what 4.x servers leave to everybody with a key is closed here. A white
address stands for the permissions of topics and groups, and for reading; what changes a server or its
accounts takes the signature, or the certificate, of an administrator. The checks and their texts come in the
order of 4.x; the code of a refusal is 16, which all clients know.
"""

from collections.abc import Iterator, Sequence

from turbopump.auth.access import (
    BY_ADDRESS,
    BY_CERTIFICATE,
    MAX_REMEMBERED_NAME,
    Identity,
    Source,
)
from turbopump.auth.accounts import Account, Accounts, Perm
from turbopump.auth.peer_proof import SignedGreeting
from turbopump.auth.policies import Explanation
from turbopump.auth.resources import Action, Need, ResourceType
from turbopump.auth.signature import ACCESS_KEY, is_signature_of, is_signed_by
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.errors import NoPermission
from turbopump.protocol.names import TRACE_TOPIC

MAX_REMEMBERED = 16_384  # addresses, and whether they are white, and needs that are met: about 3 MB each

_OF_SUB = {
    ResourceType.TOPIC: frozenset({Action.SUB, Action.GET}),
    ResourceType.GROUP: frozenset({Action.SUB, Action.GET, Action.UPDATE}),
}
_OF_LISTS = {kind: actions | {Action.PUB} for kind, actions in _OF_SUB.items()}
_CHECKED_FOR_ADMINS = frozenset({Action.PUB, Action.SUB})
OF_ADMINS = frozenset({*range(50, 55), int(Code.AUTH_EXPLAIN)})
"""Requests about accounts: no white address is enough for them."""
OF_BROKERS = frozenset(
    {Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION}
)
"""What brokers ask of name servers by themselves. Those of 4.x never sign it: a white address is enough."""


class AccountAccess:
    """Access control by accounts. `accounts` may be set at any time and counts from the next request on."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts

    @property
    def accounts(self) -> Accounts:
        return self._accounts

    @accounts.setter
    def accounts(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._white: dict[str, bool] = {}
        self._allowed: set[tuple[str, Need]] = set()
        self._identities = {key: Identity(key, one.is_unlimited) for key, one in accounts.by_key.items()}
        self._signers = {
            key: ((one.secret_key,), one.white_address if one.white_address.text else None, identity)
            for (key, one), identity in zip(accounts.by_key.items(), self._identities.values(), strict=True)
        }

    def identify(self, command: Command, source: Source) -> Identity:
        """Returns who sent a request: by a white address, the signature or the certificate.

        Raises NoPermission. A white address counts for this request only.
        """
        ext = command.ext
        key = ext.get(ACCESS_KEY) if ext else None
        if self._accounts.white and self._is_white(source.address):
            return self._at_white_address(command, key, source) or Identity(source.address, by=BY_ADDRESS)
        if not key:
            return self._by_certificate(source)
        account = self._accounts.by_key.get(key)
        if account is None:
            raise NoPermission(f"No acl config for {key}")
        if account.white_address.matches(source.address):
            return self._at_white_address(command, key, source) or Identity(key, by=BY_ADDRESS)
        if not is_signed_by(command, (account.secret_key,)):
            raise NoPermission(f"Check signature failed for accessKey={key}")
        return self._identities[key]

    def _at_white_address(self, command: Command, key: str | None, source: Source) -> Identity | None:
        """Returns the administrator who shows that he is one, where nothing has to be shown; None: none does.

        At a white address the lists of an administrator do not count either.
        """
        account = self._accounts.by_key.get(key or source.certificate)
        if account is None or not account.is_admin:
            return None
        if not key:
            return Identity(account.access_key, is_super=True, by=BY_CERTIFICATE)
        return Identity(key, is_super=True) if is_signed_by(command, (account.secret_key,)) else None

    def signer_of(self, name: str, signature: bytes, content: bytes, source: Source) -> Identity | None:
        """Returns the account whose secret signed this content; None: `identify` decides, by address too."""
        signer = self._signers.get(name)
        if signer is None:
            return None
        secrets, white_address, identity = signer
        if white_address is not None and white_address.matches(source.address):
            return None
        if self._accounts.white and self._is_white(source.address):
            return None
        return identity if is_signature_of(content, secrets, signature) else None

    def greeter(self, greeting: SignedGreeting) -> Identity | None:
        """Returns the account that signed the greeting of a slave; None: none did."""
        account = self._accounts.by_key.get(greeting.user)
        if account is None or not greeting.is_by((account.secret_key,)):
            return None
        return self._identities[greeting.user]

    def has_secret(self, name: str) -> bool:
        """Returns whether there is a secret of this name that somebody could guess."""
        return name in self._accounts.by_key

    def current(self, identity: Identity, source: Source) -> Identity:
        """Returns an identity of before with its rights of now; raises NoPermission if it has none."""
        account = self._accounts.by_key.get(identity.name)
        if identity.by != BY_ADDRESS:
            if account is None:
                raise NoPermission(f"No acl config for {identity.name}")
            return Identity(identity.name, account.is_unlimited, identity.by)
        is_white = (
            self._is_white(source.address)
            if account is None
            else account.white_address.matches(source.address)
        )
        if not is_white:
            raise NoPermission(f"{source.address} is no white address any more")
        return identity

    def _by_certificate(self, source: Source) -> Identity:
        if not source.certificate:
            raise NoPermission("No accessKey is configured")
        account = self._accounts.by_key.get(source.certificate)
        if account is None:
            raise NoPermission(f"No acl config for {source.certificate}")
        return Identity(account.access_key, account.is_unlimited, BY_CERTIFICATE)

    def _is_white(self, address: str) -> bool:
        found = self._white.get(address)
        if found is None:
            if len(self._white) >= MAX_REMEMBERED:
                self._white.clear()
            found = self._accounts.is_white(address)
            if len(address) <= MAX_REMEMBERED_NAME:
                self._white[address] = found
        return found

    def authorize(
        self, identity: Identity, needs: Sequence[Need], source: Source, code: int | None = None
    ) -> None:
        """Raises NoPermission for the first need that an account does not meet."""
        if identity.is_super:
            return
        if identity.by == BY_ADDRESS:
            _check_white(needs, code)
            return
        for need in needs:
            if (identity.name, need) not in self._allowed:
                self._check(identity.name, need, code)

    def _check(self, name: str, need: Need, code: int | None) -> None:
        """Raises NoPermission for a need that is not met; remembers one that is."""
        account = self._accounts.by_key.get(name)
        if account is None:  # deleted since it was identified
            raise NoPermission(f"No acl config for {name}")
        if not _is_met(account, need):
            raise NoPermission(_refusal(account, need, code))
        if len(need.resource.name) <= MAX_REMEMBERED_NAME:
            if len(self._allowed) >= MAX_REMEMBERED:
                self._allowed.clear()
            self._allowed.add((name, need))

    def explain(self, name: str, need: Need, source: Source) -> Explanation:
        """Returns whether and why an account may do something from an address."""
        address, is_for_admins = source.address, _is_for_admins(need)
        if not is_for_admins and self._accounts.is_white(address):
            where = "globalWhiteRemoteAddresses"
            return Explanation(True, f"{address} may {need}: it is among {where}", where)
        account = self._accounts.by_key.get(name)
        if account is None:
            return Explanation(False, f"{name} may not {need}: there is no such account")
        if not is_for_admins and account.white_address.matches(address):
            where = "whiteRemoteAddress"
            return Explanation(True, f"{name} may {need} from {address}: its {where}", where)
        is_allowed = account.is_unlimited or _is_met(account, need)
        text = f"{name} {'may' if is_allowed else 'may not'} {need}: {_reason(account, need)}"
        return Explanation(is_allowed, text, _decided_by(account, need), tuple(_looked_at(account, need)))


def _check_white(needs: Sequence[Need], code: int | None) -> None:
    """Raises NoPermission for what a white address alone does not permit."""
    if code in OF_ADMINS or (code not in OF_BROKERS and any(map(_is_for_admins, needs))):
        raise NoPermission(f"Need admin permission for {_request(code)}, but a white address is not")


def _is_for_admins(need: Need) -> bool:
    """Returns whether a need is one to change the server itself."""
    return need.resource.type is ResourceType.CLUSTER and Action.GET not in need.any_of


def _is_met(account: Account, need: Need) -> bool:
    kind = need.resource.type
    any_of = frozenset(need.any_of)
    if account.is_admin and not any_of & _CHECKED_FOR_ADMINS:
        return True
    if kind not in _OF_SUB:
        return account.is_admin
    if _is_trace(account, need):
        return True
    return bool(any_of & _granted(_perm(account, need), kind))


def _perm(account: Account, need: Need) -> Perm:
    name = need.resource.name
    return account.on_group(name) if need.resource.type is ResourceType.GROUP else account.on_topic(name)


def _granted(perm: Perm, kind: ResourceType) -> frozenset[Action]:
    """Returns the actions of 2.0 that a permission of 1.0 stands for."""
    return perm | _OF_SUB[kind] if Action.SUB in perm else perm


def _refusal(account: Account, need: Need, code: int | None) -> str:
    kind = need.resource.type
    if set(need.any_of) & _OF_LISTS.get(kind, frozenset()):
        return f"No default permission for {kind.name.lower()}:{need.resource.name}"
    return f"Need admin permission for {_request(code)}, but accessKey={account.access_key} is not"


def _request(code: int | None) -> str:
    return "this request" if code is None else f"request code={code}"


def _reason(account: Account, need: Need) -> str:
    if account.is_unlimited:
        return "an administrator without lists may do everything"
    if not set(need.any_of) & _OF_LISTS.get(need.resource.type, frozenset()):
        return "that is for administrators"
    if _is_trace(account, need):
        return "every account may send traces"
    return f"{_decided_by(account, need)} says {_text(_perm(account, need))}"


def _decided_by(account: Account, need: Need) -> str:
    """Returns the name of the field of an account that decides."""
    kind, name = need.resource.type, need.resource.name
    if account.is_unlimited or not set(need.any_of) & _OF_LISTS.get(kind, frozenset()):
        return "admin"
    listed = account.groups if kind is ResourceType.GROUP else account.topics
    return f"{kind.name.lower()}Perms" if name in listed else f"default{kind.name.capitalize()}Perm"


def _looked_at(account: Account, need: Need) -> Iterator[str]:
    """Yields what the fields of an account say about a need, in the order in which they decide."""
    kind, name = need.resource.type, need.resource.name
    yield f"admin: {str(account.is_admin).lower()}"
    if kind not in _OF_LISTS:
        return
    is_group = kind is ResourceType.GROUP
    listed = (account.groups if is_group else account.topics).get(name)
    default = account.default_group if is_group else account.default_topic
    yield f"{kind.name.lower()}Perms: {f'does not have {name}' if listed is None else _text(listed)}"
    yield f"default{kind.name.capitalize()}Perm: {_text(default)}"


def _text(perm: Perm) -> str:
    return "|".join(sorted(action.name for action in perm)) or "DENY"


def _is_trace(account: Account, need: Need) -> bool:
    """Returns whether a need is that of a trace, which every account may send unless its list says more."""
    resource = need.resource
    is_topic = resource.name == TRACE_TOPIC and resource.type is ResourceType.TOPIC
    return is_topic and Action.PUB in need.any_of and TRACE_TOPIC not in account.topics
