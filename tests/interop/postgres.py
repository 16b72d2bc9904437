"""A real PostgreSQL, from the archive that Maven Central has of it, in a directory of its own.

It refuses to run as root: there it runs as `nobody`. It listens on a Unix socket only, and does not sync to
disk: in our tests its clients die, not the machine.
"""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import artifacts

VERSION = "16.4.0"
ARCHIVES = {"x86_64": "linux-amd64", "aarch64": "linux-arm64v8"}
START_TIMEOUT_S = 60
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "32MB",
}


@dataclass
class Postgres:
    """One server. Everything it has is below `home`."""

    home: Path
    process: subprocess.Popen[bytes]
    schemas: int = 0

    def connection_string(self, schema: str = "public") -> str:
        return f"host={self.home / 'socket'} user=postgres dbname=postgres options='-c search_path={schema}'"

    def url(self, schema: str) -> str:
        place = f"host={self.home / 'socket'}&options=-csearch_path%3D{schema}"
        return f"postgresql+psycopg://postgres@/postgres?{place}"

    def new_schema(self) -> str:
        """An empty one, for a test of its own. Its name."""
        import psycopg

        self.schemas += 1
        name = f"test_{self.schemas}"
        with psycopg.connect(self.connection_string(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
        return name

    def stop(self) -> None:
        self.process.send_signal(signal.SIGQUIT)  # at once, with its children
        self.process.wait(START_TIMEOUT_S)
        shutil.rmtree(self.home, ignore_errors=True)


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
    _hand_over(home)
    server = home / "server" / "bin"
    data = home / "data"
    made = subprocess.run(
        [server / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        **_as_someone(home),
    )
    if made.returncode:
        raise RuntimeError(f"initdb failed: {made.stdout}{made.stderr}")
    settings = SETTINGS | {"unix_socket_directories": str(home / "socket")}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [server / "postgres", "-D", data, *options], stdout=log, stderr=log, **_as_someone(home)
        )
    postgres = Postgres(home, process)
    _wait_for(postgres)
    return postgres


def _wait_for(postgres: Postgres) -> None:
    import psycopg

    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            psycopg.connect(postgres.connection_string()).close()
            return
        except psycopg.OperationalError as error:
            if postgres.process.poll() is not None or time.monotonic() > deadline:
                log = (postgres.home / "log").read_text()
                postgres.stop()
                raise RuntimeError(f"PostgreSQL did not start: {error}\n{log[-2000:]}") from None
        time.sleep(0.05)


def _hand_over(home: Path) -> None:
    if os.getuid() != 0:
        return
    user = _nobody()
    for directory, _, files in os.walk(home):
        os.chown(directory, user.pw_uid, user.pw_gid)
        for name in files:
            os.chown(Path(directory) / name, user.pw_uid, user.pw_gid, follow_symlinks=False)


def _as_someone(home: Path) -> dict[str, Any]:
    """Options of a process that must not be root's."""
    common: dict[str, Any] = {"cwd": home, "env": {"PATH": os.defpath, "HOME": str(home), "LC_ALL": "C"}}
    if os.getuid() != 0:
        return common
    user = _nobody()
    return common | {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _nobody() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise artifacts.Missing(
            f"PostgreSQL {VERSION}: it must not run as root, and no user nobody"
        ) from None
