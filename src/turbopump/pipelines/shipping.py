"""Our code for executors that have a bare Python: one archive of the packages that workers import.

In: what is installed here. Out: a .tar.gz that Spark unpacks beside every executor. Compiled packages are in
it, so executors need the same Python version and system as this machine. PySpark itself they have.

    spark-submit --archives turbopump.tgz#turbopump --conf spark.executorEnv.PYTHONPATH=./turbopump job.py
"""

import tarfile
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("turbopump", "msgspec", "numpy", "pyarrow")
USEFUL = ("pyspark_rocketmq", "pyspark_rocketmq_log", "deltalake", "fastavro", "lz4", "zlib_ng", "zstandard")
FOLDER = "turbopump"  # as executors see it
LEFT_OUT = ("__pycache__", "tests", "include")


class CannotShip(RuntimeError):
    """A package that workers need is not installed here."""


def settings(archive: str | Path) -> dict[str, str]:
    """For a session whose executors shall have it."""
    return {
        "spark.archives": f"{Path(archive).absolute()}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }


def command(archive: str | Path) -> str:
    """The same for people."""
    return f"spark-submit --archives {archive}#{FOLDER} --conf spark.executorEnv.PYTHONPATH=./{FOLDER} JOB.py"


def pack(archive: str | Path) -> list[str]:
    """Writes the archive; the names of the packages that are in it. Raises CannotShip."""
    places = {name: _place(name) for name in (*NEEDED, *USEFUL)}
    missing = [name for name in NEEDED if places[name] is None]
    if missing:
        raise CannotShip(f"not installed: {', '.join(missing)}: pip install 'turbopump[spark]'")
    found = {name: place for name, place in places.items() if place is not None}
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name, place in found.items():
            tar.add(place, name, filter=_without_ballast)
            libraries = place.with_name(f"{name}.libs")
            if libraries.is_dir():
                tar.add(libraries, libraries.name)
    return list(found)


def _place(name: str) -> Path | None:
    spec = find_spec(name)
    where = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(where))) if where else None


def _without_ballast(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = entry.name.split("/")
    is_ours = parts[0].startswith(("turbopump", "pyspark_rocketmq"))
    left_out = LEFT_OUT[:1] if is_ours else LEFT_OUT
    return None if any(part in left_out for part in parts[1:]) else entry
