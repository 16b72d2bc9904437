"""A standalone Spark cluster on loopback, out of the pip package: a master and two workers on two "hosts"."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.interop import peers, processes

HOSTS = ("127.0.0.1", "127.0.0.2")
MEMORY = "900m"


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def standalone(home: Path, python: str = sys.executable) -> Iterator[str]:
    """The master's address; its executors run `python`."""
    port = peers.free_port()
    address = f"spark://{HOSTS[0]}:{port}"
    with ExitStack() as stack:
        command = ["org.apache.spark.deploy.master.Master", "--host", HOSTS[0], "--port", str(port)]
        command += ["--webui-port", "0"]
        _start(stack, command, home / "master.log", "New state: ALIVE", HOSTS[0], python)
        for number, host in enumerate(HOSTS):
            place = home / f"worker-{number}"
            command = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1"]
            more = ["--memory", MEMORY, "--webui-port", "0", "-d", str(place), address]
            log = home / f"worker-{number}.log"
            _start(stack, [*command, *more], log, "Successfully registered", host, python)
        yield address


def _start(stack: ExitStack, command: list[str], log: Path, ready: str, host: str, python: str) -> None:
    env = {
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": "",
        "SPARK_HOME": str(spark_home()),
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # it has a port of its own
        "SPARK_CONF_DIR": str(_loud(log.parent)),
    }
    server = processes.Server([str(spark_home() / "bin" / "spark-class"), *command], log, os.environ | env)
    stack.callback(server.kill)
    server.wait_ready(ready)


def _loud(home: Path) -> Path:
    """Spark says what it does only where log4j is told to: by default it is quiet about being ready."""
    place = home / "conf"
    place.mkdir(exist_ok=True)
    lines = (
        "rootLogger.level=info",
        "rootLogger.appenderRef.stdout.ref=console",
        "appender.console.type=Console",
        "appender.console.name=console",
        "appender.console.target=SYSTEM_ERR",
        "appender.console.layout.type=PatternLayout",
        "appender.console.layout.pattern=%m%n%ex",
    )
    (place / "log4j2.properties").write_text("\n".join(lines) + "\n")
    return place
