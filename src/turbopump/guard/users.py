"""The users and policies of a server: their file, changes one after another, and copies for other brokers.

    users.json    {"users": [{"name": "alice", "secrets": ["v1:…"], "type": "Normal",
                              "status": "enable", "policies": […]}]}

In: changes of requests, or the contents of the master's file. Out: the `Access` that decides, and the
contents for slaves. Secrets are encrypted in the file (`cipher.py`), and contents travel as they are in the
file: a DLedger group keeps them in its log, where they must not be in clear. So all brokers of a group need
the same key.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turbopump.auth.access import Access, UserAccess
from turbopump.auth.book import MAX_USERS, UserBook
from turbopump.auth.book_values import from_plain, plain_user
from turbopump.auth.migration import migrated
from turbopump.auth.policies import Policies
from turbopump.auth.signature import Credentials
from turbopump.auth.users import User, UserType
from turbopump.guard.account_files import AccountFiles
from turbopump.guard.account_table import accounts_of
from turbopump.guard.audit import Run
from turbopump.guard.cipher import SecretCipher, WrongKey
from turbopump.guard.config import AccessConfig
from turbopump.guard.faults import AccessFileFault
from turbopump.guard.keys import key_of
from turbopump.guard.private_files import read_file, replace_private
from turbopump.protocol.errors import BrokenBody, Refused, SystemFailure
from turbopump.runtime.disk import Disk
from turbopump.runtime.secret_files import exposure
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

USERS_FILE = "users.json"
MAX_FILE_BYTES = 64 << 20  # of the greatest book that `auth` accepts
EXAMPLE_SECRETS = frozenset(("12345678", "rocketmq", "rocketmq2", "RocketMQ"))
"""Passwords of Apache's examples, which anybody tries first."""

Publish = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _StoredUser:
    """One user in the contents of the file. Unchanged secrets keep their encrypted text."""

    user: User = field(repr=False)
    policies: Policies
    encrypted: Mapping[str, str] = field(repr=False)
    text: msgspec.Raw


class UserTable:
    """Users and policies as they are now, and their file."""

    def __init__(self, config: AccessConfig, directory: str, disk: Disk, run: Run) -> None:
        self.publish: Publish | None = None
        """Gets the contents after each change, and returns when copies are safe; may raise SystemFailure."""
        self.book = UserBook()
        self.access: Access = UserAccess(self.book)
        self._config = config
        self._directory = directory
        self._disk = disk
        self._run = run
        self._cipher: SecretCipher | None = None
        self._stored: dict[str, _StoredUser] = {}
        """Users as the contents before had them: 1 ms for a change of a book of 1,000, instead of 60."""
        self._changing = asyncio.Lock()
        self._tasks = Tasks(log)

    @property
    def path(self) -> str:
        return f"{self._directory}/{USERS_FILE}" if self._directory else ""

    def open(self) -> list[str]:
        """Loads the users, makes those of the configuration; returns what to warn of. Blocks.

        Raises AccessFileFault, ExtraMissing or OSError.
        """
        warnings: list[str] = []
        if self._directory:
            key, warnings = key_of(self._config, self._directory, self._disk)
            self._cipher = SecretCipher(key)
            if found := exposure(self._disk, self.path):
                warnings.append(f"{self.path} {found}")
            self._load()
        before = self.book
        if self._config.migrates_accounts:
            warnings += self._migrate()
        warnings += self._with_configured()
        if self.book is not before and self._directory:
            replace_private(self._disk, self.path, self.contents())
        return warnings + self._weak()

    def contents(self) -> bytes:
        """Returns the users as their file has them: secrets encrypted."""
        return self._contents_of(self.book)

    def _contents_of(self, book: UserBook) -> bytes:
        self._stored = {
            name: self._stored_user(user, book.policies_of(name)) for name, user in book.users.items()
        }
        return msgspec.json.encode({"users": [row.text for row in self._stored.values()]})

    def _stored_user(self, user: User, policies: Policies) -> "_StoredUser":
        known = self._stored.get(user.name)
        if known is not None and known.user is user and known.policies is policies:
            return known
        encrypted = {} if known is None else known.encrypted
        encrypted = {
            secret: encrypted.get(secret) or self._encrypt(user.name, secret) for secret in user.secrets
        }
        plain = plain_user(user, policies) | {"secrets": list(encrypted.values())}
        return _StoredUser(user, policies, encrypted, msgspec.Raw(msgspec.json.encode(plain)))

    def take(self, contents: bytes) -> None:
        """Replaces the users by those of the master. Raises BrokenBody if they cannot be read here."""
        book = self._decoded(contents, "users of the master")
        self._install(book)
        self._tasks.start(self._keep(contents), name="write users")

    async def change(self, change: Callable[[UserBook], UserBook]) -> list[str]:
        """Changes the users, durably; returns what changed, in words. Raises Refused, changing nothing.

        When copies are not safe the change is made here, and SystemFailure says so.
        """
        async with self._changing:
            before = self.book
            after = change(before)
            changes = after.changes_since(before)
            if not changes:
                return []
            contents = self._contents_of(after) if self._directory else b""
            try:
                await self._save(contents)
            except OSError as error:
                raise SystemFailure(f"cannot write {self.path}: {error}") from None
            self._install(after)
            if self.publish is not None:
                await self.publish(contents)
            return changes

    async def close(self) -> None:
        await self._tasks.wait()

    # inside

    def _install(self, book: UserBook) -> None:
        self.book = book
        self.access = UserAccess(book)

    def _load(self) -> None:
        data = read_file(self._disk, self.path)
        if data is None:
            return
        if len(data) > MAX_FILE_BYTES:
            raise AccessFileFault(f"{self.path} must have at most {MAX_FILE_BYTES} bytes, got {len(data)}")
        try:
            self._install(self._decoded(data, self.path))
        except BrokenBody as error:
            raise AccessFileFault(str(error)) from None

    def _decoded(self, data: bytes, where: str) -> UserBook:
        """Returns the book in the contents of a file. Raises BrokenBody, which shows no secret."""
        known = {bytes(one.text): one for one in self._stored.values()}
        try:
            fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            texts = msgspec.json.decode(fields["users"], type=list[msgspec.Raw])
            new = [msgspec.json.decode(text) for text in texts if bytes(text) not in known]
            return self._book_of(texts, known, fields | {"users": new})
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError):
            raise BrokenBody(f"{where} cannot be read") from None
        except WrongKey as error:
            raise BrokenBody(
                f"{where}: {error}; set authKey or authSecretKeyFile to the key that wrote it"
            ) from None
        except BrokenBody as error:
            raise BrokenBody(f"{where}: {error}") from None

    def _book_of(
        self,
        texts: Sequence[msgspec.Raw],
        known: Mapping[bytes, "_StoredUser"],
        plain: dict[str, Any],
    ) -> UserBook:
        """Returns the book of such rows, and remembers them; `plain` has only those that are not known.

        A slave gets the whole book after each change: 280 ms for one of 1,000 users and 10,000 entries.
        """
        new = plain["users"]
        encrypted = [list(row["secrets"]) for row in new]
        for row in new:
            row["secrets"] = [self._decrypt(text, row["name"]) for text in row["secrets"]]
        read = from_plain(plain)
        fresh = iter(zip(new, encrypted, strict=True))
        stored: dict[str, _StoredUser] = {}
        for text in texts:
            one = known.get(bytes(text))
            if one is None:
                row, kept = next(fresh)
                user = read.users[row["name"]]
                own = dict(zip(user.secrets, kept, strict=True))
                one = _StoredUser(user, read.policies_of(user.name), own, msgspec.Raw(bytes(text)))
            if one.user.name in stored:
                raise BrokenBody(f"users must have different names, got {one.user.name!r} again")
            stored[one.user.name] = one
        if len(stored) > MAX_USERS:
            raise BrokenBody(f"users must be at most {MAX_USERS}, got {len(stored)}")
        self._stored = stored
        policies = {name: one.policies for name, one in stored.items() if one.policies}
        return UserBook({name: one.user for name, one in stored.items()}, policies)

    def _decrypt(self, text: str, name: str) -> str:
        assert self._cipher is not None, "users are in memory only"
        return self._cipher.decrypt(text, name)

    def _encrypt(self, name: str, secret: str) -> str:
        assert self._cipher is not None, "users are in memory only"
        return self._cipher.encrypt(secret, name)

    async def _save(self, contents: bytes) -> None:
        if self._directory:
            await self._run(replace_private, self._disk, self.path, contents)

    async def _keep(self, contents: bytes) -> None:
        async with self._changing:
            try:
                await self._save(contents)
            except OSError as error:
                log.error("Cannot write %s, which are the master's users: %s", self.path, error)

    # users of the configuration

    def _migrate(self) -> list[str]:
        """Makes users of the accounts that are none yet; returns what could not be kept.

        Raises AccessFileFault.
        """
        files = AccountFiles(self._config.accounts_dir, self._disk, "migrateAuthFromV1Enabled")
        accounts, _ = accounts_of(files.parse(files.read()))
        try:
            migration = migrated(accounts, self.book)
        except Refused as refused:
            raise AccessFileFault(f"migrateAuthFromV1Enabled: {refused.remark}") from None
        self._install(migration.book)
        if migration.created:
            log.info("Made users of the accounts %s", ", ".join(migration.created))
        return [f"not taken over from the accounts: {what}" for what in migration.dropped]

    def _with_configured(self) -> list[str]:
        """Makes the users of the configuration that do not exist; returns what to warn of."""
        warnings = []
        for key, credentials in (
            ("initAuthenticationUser", self._config.initial_user),
            ("innerClientAuthenticationCredentials", self._config.inner_credentials),
        ):
            if credentials is not None and (warning := self._make(key, credentials)):
                warnings.append(warning)
        if not any(user.is_super and user.is_enabled for user in self.book.users.values()):
            warnings.append("there is no super user that is enabled: set initAuthenticationUser")
        return warnings

    def _make(self, key: str, credentials: Credentials) -> str | None:
        name = credentials.access_key
        user = self.book.users.get(name)
        if user is None:
            made = User(name, (credentials.secret_key,), UserType.SUPER)
            self._install(UserBook(dict(self.book.users) | {name: made}, self.book.policies))
            log.info("Made the super user %s of %s", name, key)
            return None
        if credentials.secret_key in user.secrets:
            return None
        return f"{key} has another secret than user {name} has: it is not used"

    def _weak(self) -> list[str]:
        names = [
            user.name for user in self.book.users.values() if not EXAMPLE_SECRETS.isdisjoint(user.secrets)
        ]
        return [f"users with a password of Apache's examples: {', '.join(names)}"] if names else []
