"""`turbopump transactions orphans`: prepared branches of ours in databases, with what the book says of them.

In: URLs of databases. Out: each prepared branch, how long it has been prepared, and the state and decision
of its transaction. It changes nothing: a process of the group ends what it finds.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.cli.listing import print_document, print_table
from turbopump.cli.records import moment
from turbopump.client.admin import Admin, NotFound
from turbopump.client.admin.global_transactions import BookEntry
from turbopump.protocol.body_text import printable
from turbopump.transactions.distributed.gids import may_last_resource_decide
from turbopump.transactions.distributed.resources import PreparedBranch, XaResource

FORM = "%-23s  %-16s  %-40s  %-8s  %-8s  %-16s  %s"
HEADINGS = ("#Prepared", "#Branch", "#Transaction", "#State", "#Decision", "#Group", "#What Ends It")
UNKNOWN = "unknown"
"""The state of a transaction that no broker knows."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A prepared branch, and its transaction in the book; None: no broker knows it."""

    database: str
    branch: PreparedBranch
    entry: BookEntry | None

    @property
    def state(self) -> str:
        return self.entry.transaction.state if self.entry else UNKNOWN

    @property
    def decision(self) -> str:
        return self.entry.transaction.decision if self.entry else ""

    @property
    def ending(self) -> str:
        """What ends the branch, in words."""
        if self.decision:
            return f"a process of the group: DoCommit or DoAbort, here {self.decision}"
        if may_last_resource_decide(self.branch.xid.gid):
            return "the last resource (SQLite) of the group says what was decided"
        if self.entry is None:
            return "the search of a process of the group: it writes an abort"
        return "the decision of its coordinator, or its deadline"


async def show(options: argparse.Namespace, admin: Admin) -> int:
    """Prints the prepared branches of all named databases, the oldest first."""
    found = [one for url in options.resource for one in await _of(url, admin)]
    found.sort(key=lambda one: one.branch.since_ms or 0)
    if options.json:
        return print_document({"orphans": [_document(one) for one in found]})
    return print_table(FORM, HEADINGS, map(_row, found))


async def _of(url: str, admin: Admin) -> list[Orphan]:
    parts = urlsplit(url)
    resource = XaResource("orphans", connector(parts))
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    try:
        prepared = await resource.prepared()
    except Exception as error:  # of any driver: each has a class of its own
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise CommandFailure(f"cannot list the prepared branches of {shown}: {first}") from None
    finally:
        await resource.close()
    return [Orphan(shown, one, await _entry(admin, one.xid.gid)) for one in prepared]


async def _entry(admin: Admin, gid: str) -> BookEntry | None:
    try:
        return await admin.global_transactions.find(gid)
    except NotFound:
        return None


def _row(one: Orphan) -> str:
    since = moment(one.branch.since_ms) if one.branch.since_ms else "-"
    group = one.entry.transaction.group if one.entry else "-"
    cells = (since, one.branch.xid.branch, one.branch.xid.gid, one.state, one.decision or "-", group)
    return printable(FORM % (*cells, one.ending)).rstrip()


def _document(one: Orphan) -> dict[str, object]:
    return {
        "database": one.database,
        "gid": one.branch.xid.gid,
        "branch": one.branch.xid.branch,
        "preparedMs": one.branch.since_ms,
        "state": str(one.state),
        "decision": str(one.decision),
        "group": one.entry.transaction.group if one.entry else None,
        "broker": one.entry.broker if one.entry else None,
    }


# --- URLs ------------------------------------------------------------------------------------------------


def connector(parts: SplitResult) -> Callable[[], Any]:
    """Returns the function that connects to the database of a URL. Raises CommandFailure."""
    if parts.scheme in ("postgresql", "postgres"):
        return _postgresql(parts)
    if parts.scheme in ("mariadb", "mysql"):
        return _mariadb(parts)
    given = parts.scheme or parts.path
    raise CommandFailure(
        f"--resource must begin with postgresql://, mariadb:// or mysql://, got {given!r}", USAGE_ERROR
    )


def _postgresql(parts: SplitResult) -> Callable[[], Any]:
    try:
        import psycopg
    except ImportError:
        raise CommandFailure("PostgreSQL needs the driver psycopg: pip install psycopg") from None
    url = parts._replace(scheme="postgresql").geturl()
    return lambda: psycopg.connect(url)


def _mariadb(parts: SplitResult) -> Callable[[], Any]:
    try:
        import pymysql
    except ImportError:
        raise CommandFailure("MariaDB and MySQL need the driver PyMySQL: pip install PyMySQL") from None
    try:
        port = parts.port or 3306
    except ValueError:
        raise CommandFailure("the port of --resource must be 1 to 65535", USAGE_ERROR) from None
    options = dict(parse_qsl(parts.query))
    given = {
        "host": parts.hostname or "127.0.0.1",
        "port": port,
        "user": unquote(parts.username or "") or None,
        "password": unquote(parts.password or "") or os.environ.get("MYSQL_PWD", ""),
        "database": parts.path.lstrip("/") or None,
        "unix_socket": options.get("unix_socket"),
    }
    return lambda: pymysql.connect(**given)
