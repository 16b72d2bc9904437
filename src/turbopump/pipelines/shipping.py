"""Packs our code for executors that have a bare Python: one archive of the packages that workers import.

In: the packages installed here. Out: a .tar.gz that Spark unpacks beside every executor. It includes compiled
packages, so executors need the same Python version and operating system as this machine. PySpark is not
included: executors have it.

    spark-submit --archives turbopump.tgz#turbopump --conf spark.executorEnv.PYTHONPATH=./turbopump job.py
"""

import re
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("turbopump", "msgspec", "numpy", "pyarrow")
FORMATS = ("pyspark_rocketmq", "pyspark_rocketmq_log", "pyspark_rocketmq_delta")
USEFUL = ("deltalake", "fastavro", "lz4", "zlib_ng", "zstandard")
FOLDER = "turbopump"  # into which executors unpack the archive
STANDARD = ("pyspark", "py4j")  # executors have them
DISTRIBUTION = re.compile(r"[^A-Za-z0-9._-]")  # a character that ends a distribution's name
LEFT_OUT = ("__pycache__", "tests", "include")


class CannotShip(RuntimeError):
    """A package that workers need is not installed here."""


def settings(archive: str | Path) -> dict[str, str]:
    """Returns the Spark settings that give the archive to a session's executors."""
    return {
        "spark.archives": f"{Path(archive).absolute()}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }


def command(archive: str | Path) -> str:
    """Returns the `spark-submit` command that gives the archive to executors."""
    return f"spark-submit --archives {archive}#{FOLDER} --conf spark.executorEnv.PYTHONPATH=./{FOLDER} JOB.py"


def pack(archive: str | Path) -> list[str]:
    """Writes the archive, and returns the names of the packages in it. Raises CannotShip."""
    paths = package_paths(NEEDED, USEFUL)
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name, path in paths.items():
            tar.add(path, path.name if path.is_file() else name, filter=_without_ballast)
            libraries = path.with_name(f"{name}.libs")
            if libraries.is_dir():
                tar.add(libraries, libraries.name)
    return list(paths)


def package_paths(needed: Iterable[str], useful: Iterable[str]) -> dict[str, Path]:
    """Returns the paths of these packages and of all that they depend on.

    `useful` packages may be absent. Raises CannotShip for a needed one that is not installed.
    """
    found: dict[str, Path] = {}
    missing: list[str] = []
    open_names = [*((name, True) for name in (*needed, *FORMATS)), *((name, False) for name in useful)]
    while open_names:
        name, is_needed = open_names.pop(0)
        path = _path(name) if name not in found else None
        if path is not None:
            found[name] = path
            open_names += [(one, True) for one in _required_by(name)]
        elif name not in found and is_needed:
            missing.append(name)
    if missing:
        raise CannotShip(f"not installed: {', '.join(sorted(missing))}: pip install 'turbopump[spark]'")
    return found


def _required_by(name: str) -> list[str]:
    """Returns the modules that a package depends on by its metadata; none for our own packages."""
    if name in (*NEEDED[:1], *FORMATS):
        return []
    found: list[str] = []
    for distribution in _owners().get(name, []):
        for wanted in requires(distribution) or []:
            if "extra ==" not in wanted and (modules := _modules_of(DISTRIBUTION.split(wanted, 1)[0])):
                found += modules
    return [one for one in found if one not in STANDARD]


def _modules_of(distribution: str) -> list[str]:
    """Returns the modules of a distribution; none if it is not installed, as for another Python or system."""
    wanted = _plain(distribution)
    return [
        module
        for module, owners in _owners().items()
        if module.isidentifier() and any(_plain(owner) == wanted for owner in owners)
    ]


@cache
def _owners() -> Mapping[str, list[str]]:
    """Returns the distributions of each installed module. Cached: reading them takes a while."""
    return packages_distributions()


def _plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _path(name: str) -> Path | None:
    spec = find_spec(name)
    if spec is None:
        return None
    where = next(iter(spec.submodule_search_locations or ()), None) or spec.origin
    return Path(where) if where else None


def _without_ballast(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Returns the archive entry, or None to leave it out, for caches, tests and headers."""
    parts = entry.name.split("/")
    is_ours = parts[0].startswith(("turbopump", "pyspark_rocketmq"))
    left_out = LEFT_OUT[:1] if is_ours else LEFT_OUT
    return None if any(part in left_out for part in parts[1:]) else entry
