"""A real PostgreSQL, from the archive that Maven Central has of it, in a directory of its own.

It listens on a Unix socket only. `max_prepared_transactions` is 0 unless it is set, and then nothing can be
prepared.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from . import artifacts
from .database_server import START_TIMEOUT_S, DatabaseServer, as_someone, hand_over

VERSION = "16.4.0"
ARCHIVES = {"x86_64": "linux-amd64", "aarch64": "linux-arm64v8"}
# Nothing is synced, but a commit is written before it is answered: else a killed server would lose it.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "max_prepared_transactions": "100",
    "shared_buffers": "32MB",
}


@dataclass
class Postgres(DatabaseServer):
    """One server, with one database from the beginning; the tests have schemas or databases of their own."""

    made: int = 0

    def connection_string(self, schema: str = "public", database: str = "postgres") -> str:
        place = f"host={self.home / 'socket'} user=postgres dbname={database}"
        return f"{place} options='-c search_path={schema}'"

    def url(self, schema: str = "public", driver: str = "psycopg", database: str = "postgres") -> str:
        """SQLAlchemy's. asyncpg takes the schema in `server_settings` instead."""
        options = "" if driver == "asyncpg" else f"&options=-csearch_path%3D{schema}"
        return f"postgresql+{driver}://postgres@/{database}?host={self.home / 'socket'}{options}"

    def new_schema(self) -> str:
        """An empty one, for a test of its own. Its name."""
        name = self._new_name()
        self.execute(f"CREATE SCHEMA {name}")
        return name

    def new_database(self) -> str:
        """An empty one, with prepared transactions of its own. Its name."""
        name = self._new_name()
        self.execute(f"CREATE DATABASE {name}")
        return name

    def _new_name(self) -> str:
        self.made += 1
        return f"test_{self.made}"

    def execute(
        self, sql: str, database: str = "postgres", schema: str = "public"
    ) -> list[tuple[object, ...]]:
        """One statement, committed at once. The rows that it returns."""
        import psycopg

        with psycopg.connect(self.connection_string(schema, database), autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


def start() -> Postgres:
    """Raises Missing when this machine cannot have one."""
    archive = _archive()
    home = Path(tempfile.mkdtemp(prefix="turbopump-postgres-"))
    try:
        _unpack(archive, home)
        return _started(home)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def _archive() -> Path:
    machine = platform.machine()
    if machine not in ARCHIVES or platform.system() != "Linux":
        raise artifacts.Missing(f"PostgreSQL {VERSION}: no archive for {platform.system()} on {machine}")
    name = f"embedded-postgres-binaries-{ARCHIVES[machine]}"
    return artifacts.jar("io.zonky.test.postgres", name, VERSION)


def _unpack(archive: Path, home: Path) -> None:
    """The archive is a jar with one compressed tar in it. Made anew each time: the cache may lie where the
    server's user cannot look.
    """
    with zipfile.ZipFile(archive) as jar:
        (packed,) = [name for name in jar.namelist() if name.endswith(".txz")]
        with jar.open(packed) as stream, tarfile.open(fileobj=stream, mode="r:xz") as files:
            files.extractall(home / "server", filter="fully_trusted")


def _started(home: Path) -> Postgres:
    (home / "socket").mkdir()
    hand_over(home)
    server = home / "server" / "bin"
    data = home / "data"
    made = subprocess.run(
        [server / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        **as_someone(home),
    )
    if made.returncode:
        raise RuntimeError(f"initdb failed: {made.stdout}{made.stderr}")
    settings = SETTINGS | {"unix_socket_directories": str(home / "socket")}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command: list[str | Path] = [server / "postgres", "-D", data, *options]
    postgres = Postgres("PostgreSQL", home, command, answers=lambda: None)
    postgres.answers = lambda: _answers(postgres)
    postgres.start()
    return postgres


def _answers(postgres: Postgres) -> None:
    postgres.execute("SELECT 1")
