"""Fetches and starts the servers of the comparison, with an empty store, one process each.

Kafka comes from Maven Central, Redis as Debian's package, nats-server by `go install`, and the Python clients
of all three by pip into their own environment. What cannot be fetched raises `Missing` with the reason.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop import artifacts, peers, processes
from tests.interop.artifacts import Missing

from benchmarks import servers
from benchmarks.generator import CACHE, ROOT

OURS, KAFKA, REDIS, NATS = "Turbopump", "Kafka", "Redis", "NATS"
KAFKA_VERSION = "4.3.1"
NATS_VERSION = "v2.15.2"
DEBIAN_PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")
FETCH_TIMEOUT_S = 600.0
READY_TIMEOUT_S = 60.0

# Options that Kafka's own start script gives the JVM.
KAFKA_JVM = (
    *("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
KAFKA_CONFIGURATION = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=4
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
KAFKA_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"  # any id will do

DURABILITY = {
    OURS: "ASYNC_FLUSH, its default: in the page cache when acknowledged, synced in the background; 4 queues",
    KAFKA: "its default: in the page cache when acknowledged, synced when the kernel decides; one node "
    "(KRaft), 4 partitions, 1 GiB of heap",
    REDIS: "appendonly, everysec: written to its file when acknowledged, synced every second; no snapshots",
    NATS: "JetStream, file storage: written to its file when acknowledged, synced every 2 minutes",
}


@dataclass(frozen=True)
class System:
    """A running server; `address` is for its clients."""

    name: str
    version: str
    address: str
    process: servers.Process


def start(name: str, home: Path) -> System:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return STARTERS[name](home)


def _ours(home: Path) -> System:
    place = peers.place(home)
    command = [*servers.our_program(), *servers.our_arguments(place)]
    process = servers.Process(command, home / "log", {"HOME": str(home), "NAMESRV_ADDR": ""})
    process.wait_ready("is ready")
    return System(OURS, "this tree", place.namesrv, process)


def _kafka(home: Path) -> System:
    java = artifacts.tool("java", f"Kafka {KAFKA_VERSION}")
    jars = artifacts.jar("org.apache.kafka", "kafka_2.13", KAFKA_VERSION).parent / "*"
    port = peers.free_port(also=(1,))
    configuration = home / "server.properties"
    configuration.write_text(KAFKA_CONFIGURATION.format(port=port, controller=port + 1, data=home / "data"))
    storage = [java, "-cp", str(jars), "kafka.tools.StorageTool", "format"]
    processes.run(
        [*storage, "-t", KAFKA_CLUSTER, "-c", str(configuration)], home / "format.log", READY_TIMEOUT_S
    )
    command = [java, *KAFKA_JVM, "-cp", str(jars), "kafka.Kafka", str(configuration)]
    process = servers.Process(command, home / "log")
    return _listening(System(KAFKA, KAFKA_VERSION, f"127.0.0.1:{port}", process), port)


def _redis(home: Path) -> System:
    program, environment = redis_program()
    port = peers.free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(home), "--save", ""]
    durable = ["--appendonly", "yes", "--appendfsync", "everysec"]
    process = servers.Process([program, *options, *durable], home / "log", environment)
    version = _output([program, "--version"], environment).partition("v=")[2].partition(" ")[0]
    return _listening(System(REDIS, version, f"redis://127.0.0.1:{port}", process), port)


def _nats(home: Path) -> System:
    port = peers.free_port()
    options = ["--jetstream", "--store_dir", str(home), "--addr", "127.0.0.1", "--port", str(port)]
    process = servers.Process([str(nats_program()), *options], home / "log")
    return _listening(System(NATS, NATS_VERSION, f"nats://127.0.0.1:{port}", process), port)


STARTERS: dict[str, Callable[[Path], System]] = {OURS: _ours, KAFKA: _kafka, REDIS: _redis, NATS: _nats}


def _listening(system: System, port: int) -> System:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return system
        except OSError:
            if time.monotonic() > deadline:
                system.process.kill()
                raise RuntimeError(
                    f"{system.name} did not listen within {READY_TIMEOUT_S:.0f} s:\n{system.process.tail()}"
                ) from None
            time.sleep(0.1)


# --- from the registries ---------------------------------------------------------------------------------


def python_of_others() -> str:
    """Path of the Python of an environment with the dependency group `bench` and without our package."""
    wanted: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["bench"]
    mark = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:12]

    def install(directory: Path) -> None:
        fetch([sys.executable, "-m", "venv", str(directory)], "environment")
        pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "-q"]
        fetch([*pip, "--disable-pip-version-check", *wanted], "clients of Kafka, Redis and NATS")

    return str(made_once(f"clients-{mark}", install) / "bin" / "python")


def versions_of_others(python: str) -> dict[str, str]:
    lines = _output([python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"])
    return dict(line.split("==") for line in lines.split())


def redis_program() -> tuple[str, dict[str, str]]:
    """Path of redis-server, installed or from Debian's packages, and the environment for its libraries."""
    if (installed := shutil.which("redis-server")) is not None:
        return installed, {}

    def unpack(directory: Path) -> None:
        fetch([artifacts.tool("apt-get", REDIS), "download", *DEBIAN_PACKAGES], REDIS, directory)
        for package in directory.glob("*.deb"):
            fetch([artifacts.tool("dpkg", REDIS), "-x", str(package), "."], REDIS, directory)

    root = made_once("redis", unpack)
    folders = {str(library.parent) for library in root.rglob("*.so*")}
    return str(root / "usr/bin/redis-server"), {"LD_LIBRARY_PATH": os.pathsep.join(folders)}


def nats_program() -> Path:
    def build(directory: Path) -> None:
        go = artifacts.tool("go", NATS)
        package = f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"
        fetch([go, "install", package], NATS, directory, {"GOBIN": str(directory)})

    return made_once(f"nats-{NATS_VERSION}", build) / "nats-server"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Makes a directory of the cache, unless an earlier run has completed it."""
    target = CACHE / name
    done = target / ".done"
    if not done.exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        make(target)
        done.touch()
    return target


def fetch(
    command: list[str], what: str, folder: Path | None = None, environment: dict[str, str] | None = None
) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder or tempfile.gettempdir(),
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{what}: not fetched within {FETCH_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise Missing(f"{what}: {' '.join(command[:2])} failed: {(done.stdout + done.stderr)[-400:]}")


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    given = {**os.environ, **(environment or {})}
    return subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout
