"""Drivers that die, in processes of their own, and the query that goes on in this session after them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.spark import driver

ROOT = Path(__file__).parents[2]
FILES, ROWS = 3, 20
DRIVER_S = 600.0  # a busy machine takes minutes to start Java
EACH_ONCE = Counter(str(number) for number in range(FILES * ROWS))


def add_files(place: Path) -> None:
    for number in range(FILES):
        add_file(place, number)


def add_file(place: Path, number: int) -> None:
    (place / "in").mkdir(exist_ok=True)
    rows = [json.dumps({"body": str(row)}) for row in range(number * ROWS, (number + 1) * ROWS)]
    hidden = place / "in" / f".{number}.json"
    hidden.write_text("\n".join(rows))
    os.utime(hidden, (1_600_000_000 + number,) * 2)  # read in this order
    hidden.rename(place / "in" / f"{number}.json")


@contextmanager
def driving(
    place: Path, given: dict[str, str], fault: str, format: str = "rocketmq-faulty", **more: Any
) -> Iterator[subprocess.Popen[str]]:
    given = {**given, "fault": fault, "place": str(place)}
    asked = json.dumps({"place": str(place), "format": format, "options": given, **more})
    env = {
        **os.environ,
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it does not live for long
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (place / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", asked],
            cwd=ROOT,
            env=env,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def drive(
    place: Path, given: dict[str, str], fault: str, format: str = "rocketmq-faulty", **more: Any
) -> int:
    """Until it ends, or is ended. It must have met its misfortune."""
    with driving(place, given, fault, format, **more) as process:
        code = process.wait(DRIVER_S)
    assert (place / f"reached-{fault.split(':')[0]}").exists(), (place / "said").read_text()[-3000:]
    return code


def go_on(
    spark: Any, place: Path, given: dict[str, str], format: str = "rocketmq", checkpoint: str = "checkpoint"
) -> None:
    driver.begin(spark, format, given, place, checkpoint=checkpoint).awaitTermination()


def said(place: Path) -> str:
    return (place / "said").read_text()
