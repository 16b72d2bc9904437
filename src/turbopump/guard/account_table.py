"""The accounts of 4.x of a server: read at the start, read again when a file changes, changed by requests.

In: files below a directory (`account_files.py`). Out: the `Access` that decides. Files are read and parsed in
a thread: 1,000 accounts take 0.1 s. A file that cannot be used
stops the start; later the accounts before stay, with a warning. A change by a request is checked as a whole
before it is written, so what is answered with success is what the files say.
"""

import asyncio
import copy
import logging
from collections.abc import Callable, Mapping
from typing import Any

from turbopump.auth.account_access import AccountAccess
from turbopump.auth.accounts import Accounts, merged, read_accounts
from turbopump.guard.account_files import AccountFiles
from turbopump.guard.audit import Run
from turbopump.guard.faults import AccessFileFault
from turbopump.protocol.bodies import DataVersion
from turbopump.protocol.conf import ConfigError
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk

log = logging.getLogger(__name__)

LOOK_S = 5.0  # between two looks at the files, as with Apache
EXAMPLE_SECRETS = frozenset(("12345678",))

Values = dict[str, Any]
"""The plain value of each file, by its path."""


class AccountTable:
    """Accounts as they are now, and their files."""

    def __init__(self, directory: str, disk: Disk, run: Run, clock: Clock) -> None:
        """Raises ExtraMissing without PyYAML."""
        self.access = AccountAccess(Accounts())
        self.files = AccountFiles(directory, disk)
        self._run = run
        self._clock = clock
        self._values: Values = {}
        self._seen: Mapping[str, bytes] = {}
        self._changing = asyncio.Lock()

    @property
    def accounts(self) -> Accounts:
        return self.access.accounts

    @property
    def values(self) -> Mapping[str, Any]:
        """The plain value of each file, the main one first."""
        return self._values

    def open(self) -> list[str]:
        """Reads the files; returns what to warn of. Raises AccessFileFault. Blocks."""
        contents = self.files.read()
        values = self.files.parse(contents)
        accounts, repeated = accounts_of(values)
        self._install(contents, values, accounts)
        warnings = [f"accessKey {key} is in two files: the first one counts" for key in repeated]
        return warnings + self.files.warnings(contents) + _weak(accounts)

    async def watch(self) -> None:
        """Reads the files again when one has changed, until it is cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            async with self._changing:
                await self._look()

    async def change(self, change: Callable[[Values], str]) -> None:
        """Changes the file whose path `change` returns, in a copy of all values. Raises AccessFileFault.

        Then nothing has changed. Refuses to leave no administrator; the version of the file is counted up.
        """
        async with self._changing:
            contents, values = await self._run(self._read)
            path = change(values)
            values[path] = _counted(values[path], self._clock.now_ms())
            accounts, _ = await self._run(accounts_of, values)
            if _has_admin(self.accounts) and not _has_admin(accounts):
                raise AccessFileFault("this is the last account with admin: true: create another one first")
            try:
                contents[path] = await self._run(self.files.write, path, values[path])
            except OSError as error:
                raise AccessFileFault(f"cannot write {path}: {error}") from None
            self._install(contents, values, accounts)

    def versions(self) -> dict[str, DataVersion]:
        """Returns the version of each file, by its path."""
        return {path: _version(value) for path, value in self._values.items()}

    async def _look(self) -> None:
        try:
            contents = await self._run(self.files.read)
        except AccessFileFault as fault:
            contents, known = {}, self._seen
            if known:
                log.warning("The accounts before stay: %s", fault)
            self._seen = contents
            return
        if contents == self._seen:
            return
        try:
            values, (accounts, repeated) = await self._run(self._parsed, contents)
        except AccessFileFault as fault:
            log.warning("The accounts before stay: %s", fault)
            self._seen = contents
            return
        self._install(contents, values, accounts)
        log.info("Read the files of accounts again: %d accounts", len(accounts.by_key))
        for key in repeated:
            log.warning("accessKey %s is in two files: the first one counts", key)

    def _read(self) -> tuple[dict[str, bytes], Values]:
        contents = dict(self.files.read())
        return contents, self.files.parse(contents)

    def _parsed(self, contents: Mapping[str, bytes]) -> tuple[Values, tuple[Accounts, list[str]]]:
        values = self.files.parse(contents)
        return values, accounts_of(values)

    def _install(self, contents: Mapping[str, bytes], values: Values, accounts: Accounts) -> None:
        self._seen, self._values = contents, values
        self.access.accounts = accounts


def accounts_of(values: Mapping[str, Any]) -> tuple[Accounts, list[str]]:
    """Returns the accounts of all files, and the keys that come again. Raises AccessFileFault."""
    found = []
    for path, value in values.items():
        try:
            found.append(read_accounts(value))
        except ConfigError as error:
            raise AccessFileFault(f"{path}: {error}") from None
    try:
        return merged(found)
    except ConfigError as error:
        raise AccessFileFault(str(error)) from None


def _has_admin(accounts: Accounts) -> bool:
    return any(account.is_admin for account in accounts.by_key.values())


def _weak(accounts: Accounts) -> list[str]:
    names = [key for key, account in accounts.by_key.items() if account.secret_key in EXAMPLE_SECRETS]
    return [f"accounts with a secret of Apache's examples: {', '.join(names)}"] if names else []


def _version(value: Any) -> DataVersion:
    rows = value.get("dataVersion") if isinstance(value, dict) else None
    row = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    counter, timestamp = row.get("counter"), row.get("timestamp")
    return DataVersion(
        counter=counter if isinstance(counter, int) else 0,
        timestamp=timestamp if isinstance(timestamp, int) else 0,
    )


def _counted(value: Any, now_ms: int) -> Any:
    changed = copy.copy(value)
    version = {"counter": (_version(value).counter or 0) + 1, "timestamp": now_ms}
    changed.pop("dataVersion", None)
    changed["dataVersion"] = [version]
    return changed
