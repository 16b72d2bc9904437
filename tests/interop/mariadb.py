"""A real MariaDB, from the packages that Debian has of it, unpacked below the cache: nothing is installed.

It listens on a free port of this machine and on a Unix socket. XA needs nothing switched on here.
"""

from __future__ import annotations

import functools
import platform
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import artifacts
from .database_server import START_TIMEOUT_S, DatabaseServer, as_someone, hand_over

PACKAGES = (
    "galera-4",
    "libaio1",
    "liburing2",
    "libmariadb3",
    "libnuma1",
    "mariadb-client-core",
    "mariadb-common",
    "mariadb-server",
    "mariadb-server-core",
)
NEEDED = ("usr/bin", "usr/sbin", "usr/lib", "usr/share/mysql")
NOT_NEEDED = ("*galera*", "ha_*", "wsrep*", "maria-backup", "aria_*", "myisam*", "innochecksum")
SETTINGS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--innodb-flush-log-at-trx-commit=2",  # written before the answer, not synced: survives a kill
    "--innodb-flush-method=nosync",
    "--skip-sync-frm",
    "--innodb-lock-wait-timeout=20",
    "--aria-log-file-size=8M",
    "--max-connections=100",
    "--performance-schema=OFF",
)


@dataclass
class MariaDB(DatabaseServer):
    """One server, with one database from the beginning; the tests have databases of their own."""

    port: int = 0
    made: int = 0

    def parameters(self, database: str = "test") -> dict[str, Any]:
        """What PyMySQL, asyncmy and aiomysql are given; asyncmy and aiomysql call the last one `db`."""
        return {"host": "127.0.0.1", "port": self.port, "user": "root", "password": "", "database": database}

    def url(self, database: str = "test", driver: str = "pymysql") -> str:
        """SQLAlchemy's."""
        return f"mysql+{driver}://root@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """An empty one, for a test of its own. Its name."""
        self.made += 1
        name = f"test_{self.made}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def execute(self, sql: str, database: str = "test") -> list[tuple[Any, ...]]:
        """One statement, committed at once. The rows that it returns."""
        import pymysql

        connection = pymysql.connect(**self.parameters(database), autocommit=True, connect_timeout=5)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()


def start() -> MariaDB:
    """Raises Missing when this machine cannot have one."""
    packages = _packages()
    home = Path(tempfile.mkdtemp(prefix="turbopump-mariadb-"))
    try:
        _copy(packages, home)
        return _started(home)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


@functools.cache
def _packages() -> Path:
    what = "MariaDB (Debian's packages)"
    if platform.system() != "Linux":
        raise artifacts.Missing(f"{what}: no package for {platform.system()}")
    apt, dpkg = artifacts.tool("apt-get", what), artifacts.tool("dpkg", what)
    return artifacts.unpacked_packages("mariadb", PACKAGES, apt, dpkg, what)


def _copy(packages: Path, home: Path) -> None:
    """Made anew each time: the cache may lie where the server's user cannot look."""
    for name in NEEDED:
        shutil.copytree(
            packages / name,
            home / "server" / name,
            symlinks=True,
            ignore=shutil.ignore_patterns(*NOT_NEEDED),
        )


def _started(home: Path) -> MariaDB:
    hand_over(home)
    server, data = home / "server" / "usr", home / "data"
    (libraries,) = {path.parent for path in server.glob("lib/*/libmariadb.so.3")}
    environment = {"LD_LIBRARY_PATH": str(libraries)}
    made = subprocess.run(
        [
            server / "bin" / "mariadb-install-db",
            "--no-defaults",
            f"--basedir={server}",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *SETTINGS,
        ],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        **as_someone(home, environment),
    )
    if made.returncode:
        raise RuntimeError(f"mariadb-install-db failed: {made.stdout}{made.stderr}")
    port = _free_port()
    command: list[str | Path] = [
        server / "sbin" / "mariadbd",
        "--no-defaults",
        f"--basedir={server}",
        f"--datadir={data}",
        f"--plugin-dir={server / 'lib' / 'mysql' / 'plugin'}",
        f"--socket={home / 'socket'}",
        f"--pid-file={home / 'pid'}",
        f"--port={port}",
        *SETTINGS,
    ]
    mariadb = MariaDB("MariaDB", home, command, lambda: None, environment, port=port)
    mariadb.answers = lambda: _answers(mariadb)
    mariadb.start()
    mariadb.execute("CREATE DATABASE test", database="mysql")
    return mariadb


def _answers(mariadb: MariaDB) -> None:
    """The process just started must be the one that answers at the port, not another one's server."""
    ((data,),) = mariadb.execute("SELECT @@datadir", database="mysql")
    assert Path(data) == mariadb.home / "data", f"another server answers at port {mariadb.port}: {data}"


def _free_port() -> int:
    """MariaDB cannot say which port it took for 0; the same one is needed again after a kill."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
