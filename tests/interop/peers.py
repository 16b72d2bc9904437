"""A name server and a broker, Apache's or ours, behind one face: `Cluster`.

Both kinds get the same `broker.conf`, so a store directory written by one can be opened by the other. A
`Place` holds what must stay equal over restarts on one store: the directories, and the ports, because
records name the broker's address.
"""

from __future__ import annotations

import random
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import artifacts, processes
from .asking import ask

HOST = "127.0.0.1"
OURS = "ours"
GET_BROKER_CLUSTER_INFO = 106
REGISTERED_WITHIN_S = 90.0  # one that failed on a busy machine is made again after 30 s
HEAP = ("-Xms512m", "-Xmx512m")
FULL_DISK = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
MAIN_CLASSES = {
    "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
}

LOGBACK = """\
<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d %p %t %logger{{0}} %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""

# On a busy machine these limits would answer SYSTEM_BUSY, and on a full disk they would delete files.
PATIENCE = {
    "diskMaxUsedSpaceRatio": "95",
    "waitTimeMillsInSendQueue": "20000",
    "waitTimeMillsInPullQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
}


@dataclass(frozen=True)
class Place:
    """Where a cluster lives: directory and ports."""

    home: Path
    namesrv_port: int
    broker_port: int

    @property
    def store_dir(self) -> Path:
        return self.home / "store"

    @property
    def namesrv(self) -> str:
        return f"{HOST}:{self.namesrv_port}"

    @property
    def broker_addr(self) -> str:
        return f"{HOST}:{self.broker_port}"


@dataclass
class Cluster:
    kind: str
    place: Place
    servers: list[processes.Server] = field(default_factory=list)  # the broker is the last one
    prefix: tuple[str, ...] = ()
    """Words before the broker's command: a program that runs it elsewhere."""

    @property
    def namesrv(self) -> str:
        return self.place.namesrv

    @property
    def broker_addr(self) -> str:
        return self.place.broker_addr

    @property
    def store_dir(self) -> Path:
        return self.place.store_dir

    @property
    def broker_log(self) -> str:
        """What the broker printed, over all its lives."""
        return self._log_file("broker").read_text(errors="replace")

    def _log_file(self, role: str) -> Path:
        return self.place.home / f"{role}-{self.kind}.log"

    def stop_broker(self) -> None:
        """An orderly stop; the name server stays."""
        self.servers.pop().stop()

    def kill_broker(self) -> None:
        """As kill -9; the name server stays."""
        self.servers.pop().kill()

    def start_namesrv(self) -> None:
        """Starts a name server of this kind alone; `configure` writes its file too."""
        self._start("namesrv", self.kind)

    def start_broker(self) -> None:
        """Again, on the same store and with the same configuration."""
        self._start("broker", self.kind)

    def _start(self, role: str, made_by: str) -> None:
        where = self.place
        command = _our_command(role, where) if made_by == OURS else _apache_command(made_by, role, where)
        env = {"HOME": str(where.home), "NAMESRV_ADDR": ""}
        command = [*self.prefix, *command] if role == "broker" else command
        server = processes.Server(command, self._log_file(role), env)
        self.servers.append(server)
        server.wait_ready()
        if role == "broker":
            self._wait_registered()

    def _wait_registered(self) -> None:
        """A broker says that it is there before its name server knows it."""
        deadline = time.monotonic() + REGISTERED_WITHIN_S
        while f'"{self.broker_addr}"'.encode() not in ask(self.namesrv, GET_BROKER_CLUSTER_INFO).body:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.broker_addr} did not register:\n{self.servers[-1].tail()}")
            time.sleep(processes.POLL_S)

    def stop(self) -> None:
        """An orderly stop of the broker; the name server has nothing to lose."""
        try:
            self.servers[-1].stop()
        finally:
            self.kill()

    def kill(self) -> None:
        """As kill -9."""
        for server in reversed(self.servers):
            server.kill()
        self.servers.clear()

    def discard(self) -> None:
        """Killed, and its store removed: a gigabyte each. The logs stay for a look."""
        self.kill()
        shutil.rmtree(self.store_dir, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self.kill() if failed else self.stop()


def place(home: Path) -> Place:
    home.mkdir(parents=True, exist_ok=True)
    broker_port = free_port(also=(-2, 1))
    return Place(home, free_port(avoid=range(broker_port - 2, broker_port + 2)), broker_port)


def start(
    kind: str,
    where: Place,
    conf: Mapping[str, str] | None = None,
    namesrv: str | None = None,
    namesrv_conf: Mapping[str, str] | None = None,
) -> Cluster:
    """`kind` is an Apache version, or OURS; the name server is of the same kind unless told otherwise."""
    cluster = Cluster(kind, where)
    write_configuration(where, conf or {}, namesrv_conf or {})
    try:
        cluster._start("namesrv", namesrv or kind)
        cluster._start("broker", kind)
    except BaseException:
        cluster.kill()
        raise
    return cluster


def join(
    cluster: Cluster, home: Path, name: str, conf: Mapping[str, str] | None = None, kind: str | None = None
) -> Cluster:
    """One more broker behind the same name server, of the same kind unless told otherwise."""
    port = free_port(also=(-2, 1), avoid=range(cluster.place.namesrv_port, cluster.place.namesrv_port + 1))
    home.mkdir(parents=True)
    joined = Cluster(kind or cluster.kind, Place(home, cluster.place.namesrv_port, port))
    write_configuration(joined.place, {"brokerName": name, **(conf or {})}, {})
    try:
        joined.start_broker()
    except BaseException:
        joined.kill()
        raise
    return joined


def configure(cluster: Cluster, conf: Mapping[str, str]) -> None:
    """Writes the configuration of a broker again; its next start reads it."""
    write_configuration(cluster.place, conf, {})


def free_port(also: tuple[int, ...] = (), avoid: range = range(0)) -> int:
    """A port below the ephemeral range, free together with its neighbours."""
    while True:
        port = random.randrange(10_000, 30_000)
        wanted = [port + step for step in (0, *also)]
        if not set(wanted) & set(avoid) and all(map(_is_free, wanted)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def write_configuration(where: Place, conf: Mapping[str, str], namesrv_conf: Mapping[str, str]) -> None:
    """Writes the files of both servers, and the logging files of Apache's."""
    broker = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "listenPort": str(where.broker_port),
        "namesrvAddr": where.namesrv,
        "autoCreateTopicEnable": "true",
        "enablePropertyFilter": "true",
        "storePathRootDir": str(where.store_dir),
        "storePathCommitLog": str(where.store_dir / "commitlog"),
        **PATIENCE,
        **conf,
    }
    _write_properties(where.home / "broker.conf", broker)
    namesrv = {"listenPort": str(where.namesrv_port), "bindAddress": HOST, **namesrv_conf}
    _write_properties(where.home / "namesrv.conf", namesrv)
    write_logback(where.home)


def write_logback(home: Path) -> None:
    """Servers and tools of 4.x do not start without these files."""
    (home / "conf").mkdir(exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        text = LOGBACK.format(log=home / f"{name}-logback.log")
        (home / "conf" / f"logback_{name}.xml").write_text(text)


def _write_properties(path: Path, values: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))


def _apache_command(version: str, role: str, where: Place) -> list[str]:
    java = artifacts.tool("java", f"Java server {version}")
    homes = [f"-Drocketmq.home.dir={where.home}", f"-Duser.home={where.home}"]
    run = [java, *artifacts.JAVA_OPTIONS, *HEAP, *FULL_DISK, *homes, "-cp", artifacts.server_jars(version)]
    return [*run, MAIN_CLASSES[role], "-c", str(where.home / f"{role}.conf")]


def _our_command(role: str, where: Place) -> list[str]:
    return [sys.executable, "-m", "turbopump", role, "-c", str(where.home / f"{role}.conf")]
