"""Kafka beside us: a local server, Spark with Kafka's own connector, and one Python that runs both.

In: a directory, counts and sizes. Out: a running Kafka (KRaft, one process), topics with random bodies, and
what a Spark session must be given to read them. Spark's connector is built for one release of Spark, 4.2.0:
benchmarks that use it call `in_our_environment()` first, which runs them again under a Python of their own
with just that PySpark, below `.cache/bench`. Jars come by Maven, packages by pip, as the machine has them.

    python -m benchmarks.kafka        # builds the environment and says where its Python is
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
PRODUCED_AT_ONCE = 1000  # messages between two looks at what was delivered
HELD = 100_000  # messages that wait for the server at most
FILLING = {"acks": "1", "queue.buffering.max.messages": 2 * HELD, "queue.buffering.max.kbytes": 400_000}

# Group, artifact, version: what the connector's own description names, but for the token provider, whose
# 4.2.0 is in no repository, and without what Spark has already.
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
    """Of a Spark session that shall know the format `kafka`."""
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
    """Does not come back unless this is the Python of `python()`: else that one runs the same command."""
    if Path(sys.prefix) == Path(python()).parents[1]:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return
    module = sys.modules["__main__"].__spec__
    assert module is not None, "benchmarks are run as modules: python -m benchmarks.NAME"
    sys.stdout.flush()
    os.execv(python(), [python(), "-m", module.name, *sys.argv[1:]])


def python() -> str:
    """Of an environment with PySpark of the connector's release, this tree, and a client to fill topics."""
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
    """Stopped by its `process.kill()`."""
    return systems.start(systems.KAFKA, home)


def create(address: str, topic: str, partitions: int = PARTITIONS) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})  # ends its calls when nobody holds it
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(FLUSH_S)


def fill(address: str, topic: str, count: int, size: int, partitions: int = PARTITIONS) -> None:
    """Random bodies, in turn to all partitions, uncompressed, in the large batches of librdkafka."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, **FILLING})
    for number, body in enumerate(bodies(count, size)):
        producer.produce(topic, body, partition=number % partitions)
        if number % PRODUCED_AT_ONCE == 0:
            _make_room(producer)
    left = producer.flush(FLUSH_S)
    assert not left, f"{left} messages were not delivered"


def _make_room(producer: Any) -> None:
    producer.poll(0)
    while len(producer) > HELD:
        producer.poll(0.05)


def bodies(count: int, size: int, seed: int = 1) -> Iterator[bytes]:
    """The same for who gives the same seed, so that two systems hold the same."""
    chance = random.Random(seed)
    for begin in range(0, count, PRODUCED_AT_ONCE):
        several = min(PRODUCED_AT_ONCE, count - begin)
        noise = chance.randbytes(several * size)
        for number in range(several):
            yield noise[number * size : (number + 1) * size]


def _mark(*of: str) -> str:
    return hashlib.sha256("\n".join(of).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
