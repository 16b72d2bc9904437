"""`turbopump pipeline`: runs jobs on Spark over topics, stores and tables, from flags or a TOML file."""

import argparse
import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turbopump.cli import connect
from turbopump.cli.failures import FAILED, USAGE_ERROR, CommandFailure
from turbopump.pipelines import shipping
from turbopump.pipelines.jobs.catalog import JOBS, Job
from turbopump.pipelines.jobs.checks import check
from turbopump.pipelines.jobs.display import Display, JobResult
from turbopump.pipelines.jobs.session import session
from turbopump.pipelines.jobs.spec import BadSpec, JobFlag, given_by, read_file
from turbopump.pipelines.requirements import CannotRun
from turbopump.runtime.clock import SystemClock

PACK_HELP = "make an archive of Turbopump's packages, for executors that do not have them"
STDERR = 2
MAX_ERRORS = 1 << 20  # bytes of Spark's errors that are shown when a job fails
SPEC_HELP = "read options that are not given here from a TOML file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name, job in JOBS.items():
        one = jobs.add_parser(
            name, help=job.summary, description=job.summary[0].upper() + job.summary[1:] + "."
        )
        _add_flags(one, job.flags)
        one.add_argument("--spec", metavar="FILE.toml", help=SPEC_HELP)
        one.add_argument(
            "--json", dest="is_json", action="store_true", help="print the result as one JSON document"
        )
    pack = jobs.add_parser("pack", help=PACK_HELP, description=PACK_HELP[0].upper() + PACK_HELP[1:] + ".")
    pack.add_argument("archive", metavar="FILE.tgz")
    run = jobs.add_parser("run", help="run the job of a TOML file", description="Run the job of a TOML file.")
    _add_flags(run, _all_flags())
    run.add_argument("spec", metavar="FILE.toml")
    run.add_argument(
        "--json", dest="is_json", action="store_true", help="print the result as one JSON document"
    )


def _all_flags() -> list[JobFlag]:
    """Returns the flags of all jobs, each once, for a job that is named only in a file.

    A flag that this job does not have is refused.
    """
    found: dict[str, JobFlag] = {}
    for job in JOBS.values():
        for flag in job.flags:
            found.setdefault(flag.key, flag)
    return list(found.values())


def _add_flags(parser: argparse.ArgumentParser, flags: Sequence[JobFlag]) -> None:
    for flag in flags:
        words = [f"--{flag.name}"] if not flag.is_pairs else [f"--{flag.name.removesuffix('s')}"]
        if flag.read is None:
            parser.add_argument(*words, dest=flag.key, action="store_true", default=None, help=flag.help)
        else:
            action = "append" if flag.is_pairs else "store"
            parser.add_argument(*words, dest=flag.key, action=action, metavar=flag.metavar, help=flag.help)


def run(options: argparse.Namespace) -> int:
    if options.job == "pack":
        return _pack(options.archive)
    try:
        name, given = _told(options)
    except BadSpec as error:
        raise CommandFailure(str(error), USAGE_ERROR) from None
    screen = Display(options.is_json)
    outcome = _carried_out(name, JOBS[name], given, screen)
    screen.show(outcome)
    return FAILED if outcome.is_failure else 0


def _pack(archive: str) -> int:
    try:
        packed = shipping.pack(archive)
    except shipping.CannotShip as error:
        raise CommandFailure(str(error)) from None
    print(f"{archive}: {', '.join(packed)}\n{shipping.command(archive)}")
    return 0


def _told(options: argparse.Namespace) -> tuple[str, Any]:
    file = read_file(_text(options.spec), options.spec) if options.spec else {}
    name = options.job if options.job != "run" else file.get("job")
    if name not in JOBS:
        raise BadSpec(f"job in {options.spec} must be one of {', '.join(JOBS)}")
    if file.get("job", name) != name:
        raise BadSpec(f"job in {options.spec} must be {name}, got {file['job']}")
    known = {flag.key for flag in JOBS[name].flags}
    strange = [f.name for f in _all_flags() if f.key not in known and vars(options).get(f.key) is not None]
    if strange:
        raise BadSpec(f"job {name} has no --{strange[0]}; see turbopump pipeline {name} --help")
    given = given_by(JOBS[name].flags, file, vars(options), name, SystemClock())
    check(name, given, JOBS[name].check)
    return name, given


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSpec(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _carried_out(name: str, job: Job, given: Any, screen: Display) -> JobResult:
    name_server = ";".join(connect.name_servers(given["namesrv"]))
    for time in ("since", "until"):
        if given.get(time) is not None:
            screen.note(f"{time} {given[time].with_zone()}")
    screen.note(f"starting Spark on {given['master']} ...")
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "turbopump.tgz" if given["ship"] else None
        try:
            if archive:
                shipping.pack(archive)
            with spark_errors() as errors:
                spark = session(f"turbopump {name}", given["master"], given["conf"], archive)
        except (CannotRun, shipping.CannotShip) as error:
            raise CommandFailure(str(error)) from None
        work = _work(spark, given, screen, name, name_server)
        return _done(work, job, errors)


def _work(spark: Any, given: Any, screen: Display, name: str, name_server: str) -> Any:
    from turbopump.pipelines.jobs.job_run import JobRun

    return JobRun(spark, given, screen, name, name_server)


def _done(work: Any, job: Job, errors: "SparkErrors") -> JobResult:
    _stop_by_signal(work.stop)
    errors.is_shown = bool(work.given.get("follow"))
    try:
        outcome: JobResult = job.load()(work)
        return outcome
    except (BadSpec, ValueError) as error:
        raise CommandFailure(str(error), USAGE_ERROR) from None
    except Exception as error:
        errors.show()
        line = words_of(error)
        if line is None:
            raise
        raise CommandFailure(line) from None
    finally:
        work.spark.stop()


class SparkErrors:
    """Keeps the stderr of Spark's processes and shows it only if the job fails.

    Workers print tracebacks when their connections close, although nothing is wrong. A job that follows a
    topic shows it immediately.
    """

    def __init__(self, source: int, target: int) -> None:
        self.is_shown = False
        self.received = 0  # bytes
        self._source, self._target = source, target
        self._held = bytearray()

    def run(self) -> None:
        while part := os.read(self._source, 1 << 16):
            self._held += part
            del self._held[:-MAX_ERRORS]
            self.received += len(part)
            if self.is_shown:
                self.show()

    def show(self) -> None:
        """Writes the end of the kept output to the real stderr, and forgets it."""
        held, self._held = self._held, bytearray()
        os.write(self._target, held)


@contextlib.contextmanager
def spark_errors() -> Iterator[SparkErrors]:
    """Redirects stderr of processes started in the block to a pipe; shows its end if the block raises."""
    kept, (source, target) = os.dup(STDERR), os.pipe()
    errors = SparkErrors(source, kept)
    threading.Thread(target=errors.run, daemon=True).start()
    os.dup2(target, STDERR)
    os.close(target)
    try:
        yield errors
    except BaseException:
        errors.show()
        raise
    finally:
        os.dup2(kept, STDERR)


def words_of(error: BaseException) -> str | None:
    """Explains a failure of Spark in one line, without stack traces; None for a bug of Turbopump."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.getMessage() or error.java_exception)
    elif isinstance(error, PySparkException):
        text = str(error)
    else:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    own = [line for line in lines if line.startswith("turbopump.")]  # an error of Turbopump in a worker
    return (own[-1:] or lines[:1] or [type(error).__name__])[0]


def _stop_by_signal(stop: threading.Event) -> None:
    """Makes SIGINT and SIGTERM set `stop`, so that a stream ends after the current batch."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
