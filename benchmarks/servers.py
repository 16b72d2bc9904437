"""Starts the servers under measurement: ours, and Apache's with the settings of a production JVM.

The interoperability tests start Apache's servers too, but with options for programs that live for seconds:
one compiler, a small heap. A fair comparison gives them both compilers, the default collector and 2 GiB of
heap.
"""

from __future__ import annotations

import compileall
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import artifacts, peers, processes

import turbopump
from turbopump.broker import settings

from . import generator

OURS = "ours"
BASELINE = "4.9.7"
APACHE = (BASELINE, "5.5.0")
ALL = (OURS, *APACHE)

NAMESRV_HEAP = ("-Xms256m", "-Xmx256m")
BROKER_HEAP = ("-Xms2g", "-Xmx2g")
QUIET = '<configuration><root level="ERROR"/></configuration>\n'

# Raises limits at which brokers answer pipelined loads with SYSTEM_BUSY; the work per message is the same.
PATIENCE = {
    "waitTimeMillsInSendQueue": "30000",
    "waitTimeMillsInPullQueue": "30000",
    "osPageCacheBusyTimeOutMills": "30000",
    "sendThreadPoolQueueCapacity": "100000",
}
OUR_PATIENCE = {settings.variable(key): PATIENCE[key] for key in PATIENCE if key in settings.SETTINGS}


class Process(processes.Server):
    """A server process whose id is known."""

    @property
    def pid(self) -> int:
        return self._process.pid


@dataclass
class Running:
    """A name server and a broker; ours are one process."""

    kind: str
    place: peers.Place
    processes: dict[str, Process] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)  # keys of broker.conf
    environment: dict[str, str] = field(default_factory=dict)  # of our process

    @property
    def pids(self) -> list[int]:
        """Processes whose CPU time counts: the broker's. Ours includes the name server."""
        return [self.processes["broker"].pid]

    @property
    def address(self) -> str:
        return self.place.broker_addr

    def load(self, mode: str, **options: object) -> generator.Sample:
        return generator.run(mode, self.address, self.pids, **options)

    def memory_mib(self) -> dict[str, dict[str, float]]:
        return {name: memory_mib(process.pid) for name, process in self.processes.items()}

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.stop()

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()


def start(
    kind: str, home: Path, prefix: tuple[str, ...] = (), extra: dict[str, str] | None = None
) -> tuple[Running, float]:
    """Starts a server with an empty store; returns it and the seconds until its first acknowledgement.

    `prefix` replaces our program, for the profiler. `extra` are keys of broker.conf.
    """
    shutil.rmtree(home, ignore_errors=True)
    return restart(Running(kind, peers.place(home), extra=extra or {}), prefix)


def restart(running: Running, prefix: tuple[str, ...] = ()) -> tuple[Running, float]:
    """Starts a server on the store that it has; returns as `start` does."""
    running.processes.clear()
    client = generator.first(running.place.namesrv, running.place.broker_addr)
    try:
        began_ns = time.time_ns()
        _start_processes(running, prefix)
        acknowledged_ns = generator.acknowledged_ns(client)
    except BaseException:
        client.kill()
        running.kill()
        raise
    return running, (acknowledged_ns - began_ns) / 1e9


def _start_processes(running: Running, prefix: tuple[str, ...]) -> None:
    place = running.place
    if running.kind == OURS:
        given = {settings.variable(key): value for key, value in running.extra.items()}
        given |= running.environment
        command = [*(prefix or our_program()), *our_arguments(place)]
        running.processes["broker"] = _process(place, "up", command, given)
        running.processes["broker"].wait_ready("is ready")
        return
    _configure_apache(place, running.extra)
    for name, command in _apache_commands(running.kind, place).items():
        running.processes[name] = _process(place, name, command)
        running.processes[name].wait_ready()


def compile_ours() -> None:
    """Compiles our package to byte code, as pip does when it installs."""
    compileall.compile_dir(str(Path(turbopump.__file__).parent), quiet=1)


def our_program() -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name("turbopump")),)


def our_arguments(place: peers.Place) -> list[str]:
    ports = ["--namesrv-port", str(place.namesrv_port), "--broker-port", str(place.broker_port)]
    return ["up", "--data", str(place.store_dir), *ports, "--host", peers.HOST]


def _process(
    place: peers.Place, name: str, command: list[str], given: dict[str, str] | None = None
) -> Process:
    environment = {"HOME": str(place.home), "NAMESRV_ADDR": "", **OUR_PATIENCE, **(given or {})}
    return Process(command, place.home / f"{name}.log", environment)


def _apache_commands(version: str, place: peers.Place) -> dict[str, list[str]]:
    java = artifacts.tool("java", f"Java server {version}")
    opened = [option for option in artifacts.JAVA_OPTIONS if option.startswith("--add-")]
    homes = [f"-Drocketmq.home.dir={place.home}", f"-Duser.home={place.home}"]
    options = [*opened, *homes, "-cp", artifacts.server_jars(version)]

    def command(name: str, heap: tuple[str, ...]) -> list[str]:
        main = f"org.apache.rocketmq.{name}.{name.capitalize()}Startup"
        return [java, *heap, *options, main, "-c", str(place.home / f"{name}.conf")]

    return {"namesrv": command("namesrv", NAMESRV_HEAP), "broker": command("broker", BROKER_HEAP)}


def _configure_apache(place: peers.Place, extra: dict[str, str]) -> None:
    broker = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerIP1": peers.HOST,
        "listenPort": str(place.broker_port),
        "namesrvAddr": place.namesrv,
        "autoCreateTopicEnable": "true",
        "storePathRootDir": str(place.store_dir),
        "storePathCommitLog": str(place.store_dir / "commitlog"),
        **PATIENCE,
        **extra,
    }
    (place.home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in broker.items()))
    (place.home / "namesrv.conf").write_text(f"listenPort={place.namesrv_port}\nbindAddress={peers.HOST}\n")
    (place.home / "conf").mkdir(exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        (place.home / "conf" / f"logback_{name}.xml").write_text(QUIET)


def memory_mib(pid: int) -> dict[str, float]:
    wanted = {"Rss:": "rss", "Anonymous:": "anonymous"}
    found: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, *values = line.split()
        if name in wanted:
            found[wanted[name]] = int(values[0]) / 1024
    return found


def machine_busy_s() -> float:
    """CPU seconds that all cores have spent on work; idle time and waiting for disks are left out."""
    user, nice, system, _idle, _waiting, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def free_gb(path: Path) -> float:
    usage = os.statvfs(path)
    return usage.f_bavail * usage.f_frsize / 1e9
