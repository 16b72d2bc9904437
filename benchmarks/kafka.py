"""Provides Kafka for comparisons: a local server, Spark's connector for it, and a Python environment.

In: a directory, counts and sizes. Out: a running Kafka (KRaft, one process), topics with random bodies, and
the settings that a Spark session needs to read them. Spark's connector is built for one release of Spark,
4.2.0: benchmarks that use it call `in_our_environment()` first, which runs them again in an environment with
exactly that PySpark, below `.cache/bench`. Maven fetches the jars, pip the packages.

    python -m benchmarks.kafka        # builds the environment and prints the path of its Python
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop import artifacts

from .clients import systems
from .generator import ROOT

SPARK = "4.2.0"
PARTITIONS = 4
FLUSH_S = 120.0
MESSAGES_PER_POLL = 1000
MAX_QUEUED = 100_000  # messages that wait for the server
FILLING = {"acks": "1", "queue.buffering.max.messages": 2 * MAX_QUEUED, "queue.buffering.max.kbytes": 400_000}

# Group, artifact, version: the dependencies that the connector's POM names, without those that Spark has
# already. The token provider is 4.0.0 because its 4.2.0 is in no repository.
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
)
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def main() -> None:
    print(python())
    print(settings()["spark.jars"])


# --- Spark ---------------------------------------------------------------------------------------------


def settings() -> dict[str, str]:
    """Settings with which a Spark session knows the format `kafka`."""
    return {"spark.jars": ",".join(str(jar) for jar in sorted(jars()))}


def jars() -> list[Path]:
    mark = _mark(*("/".join(one) for one in JARS))

    def copy_into(directory: Path) -> None:
        maven = artifacts.tool("mvn", "Spark's Kafka connector")
        pom = directory / "pom.xml"
        pom.write_text(artifacts.POM.format(dependencies="".join(map(_dependency, JARS))))
        command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        systems.fetch([*command, f"-DoutputDirectory={directory / 'lib'}"], "Spark's Kafka connector")

    return list((systems.made_once(f"spark-kafka-{mark}", copy_into) / "lib").glob("*.jar"))


def _dependency(coordinates: tuple[str, str, str]) -> str:
    group, name, version = coordinates
    plain = artifacts.DEPENDENCY.format(group=group, name=name, version=version)
    return plain.replace("</dependency>", f"{ALONE}</dependency>")


def in_our_environment() -> None:
    """Replaces this process by the same command under `python()`, unless it runs there already."""
    if Path(sys.prefix) == Path(python()).parents[1]:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return
    module = sys.modules["__main__"].__spec__
    assert module is not None, "benchmarks are run as modules: python -m benchmarks.NAME"
    sys.stdout.flush()
    os.execv(python(), [python(), "-m", module.name, *sys.argv[1:]])


def python() -> str:
    """Path of a Python that has the connector's PySpark, this tree, and a client for Kafka."""
    wanted = [f"pyspark=={SPARK}", "confluent-kafka>=2.13", "pytest"]

    def install(directory: Path) -> None:
        systems.fetch([sys.executable, "-m", "venv", str(directory)], "environment")
        pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "-q"]
        systems.fetch(
            [*pip, "--disable-pip-version-check", "-e", f"{ROOT}[spark]", *wanted], f"PySpark {SPARK}"
        )

    mark = _mark(sys.version, str(ROOT), *wanted)
    return str(systems.made_once(f"spark-{SPARK}-{mark}", install) / "bin" / "python")


# --- Kafka ---------------------------------------------------------------------------------------------


def start(home: Path) -> systems.System:
    """Starts a Kafka server; `process.kill()` stops it."""
    return systems.start(systems.KAFKA, home)


def create(address: str, topic: str, partitions: int = PARTITIONS) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(FLUSH_S)


def fill(address: str, topic: str, count: int, size: int, partitions: int = PARTITIONS) -> None:
    """Sends random bodies to all partitions in turn, uncompressed, in the large batches of librdkafka."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, **FILLING})
    for number, body in enumerate(bodies(count, size)):
        producer.produce(topic, body, partition=number % partitions)
        if number % MESSAGES_PER_POLL == 0:
            _wait_for_capacity(producer)
    left = producer.flush(FLUSH_S)
    assert not left, f"{left} messages were not delivered"


def _wait_for_capacity(producer: Any) -> None:
    producer.poll(0)
    while len(producer) > MAX_QUEUED:
        producer.poll(0.05)


def bodies(count: int, size: int, seed: int = 1) -> Iterator[bytes]:
    """Random bodies, the same ones for the same seed, so that two systems hold the same data."""
    chance = random.Random(seed)
    for begin in range(0, count, MESSAGES_PER_POLL):
        several = min(MESSAGES_PER_POLL, count - begin)
        noise = chance.randbytes(several * size)
        for number in range(several):
            yield noise[number * size : (number + 1) * size]


def _mark(*of: str) -> str:
    return hashlib.sha256("\n".join(of).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
