"""Ties a checkpoint directory to one job, by a file beside those of Spark.

In: a path, local or in any file system that Spark knows, and the fingerprint of a job. Out: nothing, or
BadSpec, which says what differs and what to do. What a fingerprint consists of is decided in
`fingerprint.py`.
"""

from collections.abc import Callable
from typing import Any

from turbopump.pipelines.jobs.fingerprint import FILE, Fingerprint, decoded, differences, encoded, refusal
from turbopump.pipelines.jobs.spec import BadSpec

REFUSED_BEFORE = ("dedupe",)
"""Jobs whose checkpoints, from before fingerprints existed, hold another kind of state."""


class HadoopDirectory:
    """A directory in any of Hadoop's file systems, the local one included."""

    def __init__(self, spark: Any, path: str) -> None:
        self._jvm = spark._jvm
        self.path = path
        root = self._at("")
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())

    def has(self, name: str) -> bool:
        return bool(self._files.exists(self._at(name)))

    def has_files(self, name: str) -> bool:
        """Tells whether the subdirectory exists and is not empty."""
        return self.has(name) and len(self._files.listStatus(self._at(name))) > 0

    def read(self, name: str) -> str:
        stream = self._files.open(self._at(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        stream = self._files.create(self._at(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)


def claim(folder: HadoopDirectory, now: Fingerprint, is_kept: bool, note: Callable[[str], None]) -> None:
    """Writes this job's fingerprint into the checkpoint. Raises BadSpec if it belongs to another job.

    `is_kept`: continue from it although the job has changed. A checkpoint made before fingerprints existed is
    taken over with a warning, since its job is unknown.
    """
    is_used = folder.has_files("offsets")
    if is_used and folder.has(FILE):
        differing = differences(decoded(folder.read(FILE)), now)
        if differing and not is_kept:
            raise BadSpec(refusal(folder.path, differing))
        for line in differing:
            note(f"checkpoint kept although the job has changed: {line}")
    elif is_used and now["job"] in REFUSED_BEFORE:
        raise BadSpec(
            f"the checkpoint {folder.path} was made by an earlier version, whose state for {now['job']} "
            "cannot be read: give --name or --checkpoint for a new one, and --since to begin where the old "
            "one ended"
        )
    elif is_used:
        note(
            f"warning: the checkpoint {folder.path} was made by an earlier version and does not say which "
            "job it belongs to; using it for this job"
        )
    folder.write(FILE, encoded(now))


def check_parquet(checkpoint: HadoopDirectory, target: HadoopDirectory) -> None:
    """Raises BadSpec if a stream with another checkpoint wrote the target.

    Spark skips batches that a directory already has, whichever stream wrote them.
    """
    if target.has_files("_spark_metadata") and not checkpoint.has_files("offsets"):
        raise BadSpec(
            f"{target.path} was written by a stream with another checkpoint: Spark would skip the first "
            "batches of this one without an error. Give another directory, or the --checkpoint or --name "
            "with which it was written"
        )
