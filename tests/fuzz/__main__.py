"""`python -m tests.fuzz [--seconds 60] [--target NAME …] [--only N --by COMMIT] [--part 1/4] [--runs N]
[--seed S] [--jobs N]`: seconds and runs are per target.

With atheris installed (extra group `fuzz`) the search follows coverage; otherwise, and always with --runs,
the mutations of this package are used. Failures are kept as corpus/<target>/crash-* and printed last, with
the input, so that the end of a log is enough to repeat them; the exit status is 1 if there were any.
"""

import argparse
import base64
import gc
import hashlib
import importlib.util
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from tests.fuzz.search import HANG_S, Hang, Report, search
from tests.fuzz.targets import CORPUS, Target, all_targets

PATIENCE_S = 4 * HANG_S  # of wall time, with other processes on the machine
MAX_MEMORY = 3 << 30
KEPT_BYTES = 1200
KEPT_EACH = 24
SHOWN_LINES = 60


def main() -> int:
    logging.disable()  # damaged files would log a million lines
    table = all_targets()
    options = _options(sorted(table))
    names = options.target or sorted(table)
    if options.only is not None:
        names = sorted(rotated(names, options.only, options.by))
    if options.part is not None:
        number, of = options.part
        names = names[number - 1 :: of]
    if options.jobs > 1:
        return _side_by_side(names, options)
    guided = options.runs is None and not options.plain and importlib.util.find_spec("atheris") is not None
    print(f"{len(names)} targets, {'atheris' if guided else f'mutations, seed {options.seed}'}", flush=True)
    failures: list[str] = []
    if not guided:
        _bound_the_process()
        gc.freeze()  # loaded modules stay: they need not be collected again
    for name in names:
        if guided:
            failures += _guided(name, table[name], options.seconds, options.seed)
        else:
            failures += _plain(name, table[name], options)
    for failure in failures:
        print(f"\nFAILED {failure}")
    print(f"{len(failures)} failures" if failures else "no failures")
    return 1 if failures else 0


def _options(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Hostile input for every decoder."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each target")
    parser.add_argument("--target", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument("--only", type=int, metavar="N", help="N of the targets, chosen by --by")
    parser.add_argument("--by", default="", metavar="TEXT", help="another text (a commit) chooses others")
    parser.add_argument("--part", type=part, metavar="N/OF", help="every OFth target, from the Nth on")
    parser.add_argument("--runs", type=int, help="inputs for each target, instead of a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time, a process each")
    parser.add_argument("--plain", action="store_true", help="mutations even where atheris is installed")
    parser.add_argument(
        "--keep", action="store_true", help="add an input for each new way of ending to the corpus"
    )
    return parser.parse_args()


def part(text: str) -> tuple[int, int]:
    """Reads `1/4`: the first of four parts."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"a part must be written as 1/4, got {text!r}")
    return int(number), int(of)


def rotated(names: list[str], count: int, by: str) -> list[str]:
    """Chooses `count` of the names by a hash, so that each has its turn over many commits."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{by} {name}".encode()).digest())[:count]


def _side_by_side(names: list[str], options: argparse.Namespace) -> int:
    """Runs a process for each target, with the same options; prints the output of failed ones last."""
    same = [f"--seconds={options.seconds}", f"--seed={options.seed}"]
    same += [f"--runs={options.runs}"] if options.runs is not None else []
    same += [f"--{flag}" for flag in ("plain", "keep") if getattr(options, flag)]

    def run(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.fuzz", *same, f"--target={name}"]
        finished = subprocess.run(command, text=True, capture_output=True, check=False)
        print((finished.stdout + finished.stderr).partition("\n")[2].partition("\n")[0], flush=True)
        return finished

    with ThreadPoolExecutor(options.jobs) as pool:
        failed = [one for one in pool.map(run, names) if one.returncode]
    for one in failed:
        print(f"\nFAILED, exit status {one.returncode}\n{one.stdout}{one.stderr}")
    print(f"{len(failed)} of {len(names)} targets failed" if failed else "no failures")
    return 1 if failed else 0


def _plain(name: str, target: Target, options: argparse.Namespace) -> list[str]:
    until = time.monotonic() + options.seconds

    def goes_on(inputs: int) -> bool:
        signal.setitimer(signal.ITIMER_PROF, HANG_S)  # counts again from each input
        return inputs < options.runs if options.runs is not None else time.monotonic() < until

    report = search(name, target, options.seed, goes_on)
    signal.setitimer(signal.ITIMER_PROF, 0)
    rate = report.inputs / report.seconds if report.seconds else 0.0
    print(
        f"{name:16} {report.inputs:9} inputs {rate:8.0f}/s {len(report.endings):4} ways of ending", flush=True
    )
    if options.keep:
        _keep(name, report)
    return [
        f"{name}: {failure.reason}\n{_shown(_save(name, 'crash', failure.data))}"
        for failure in report.failures
    ]


def _guided(name: str, target: Target, seconds: float, seed: int) -> list[str]:
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.glob("*-*"))
    with tempfile.TemporaryDirectory() as scratch:
        seeds, words = Path(scratch, "seeds"), Path(scratch, "words")
        seeds.mkdir()
        for number, data in enumerate(target.seeds()):
            (seeds / str(number)).write_bytes(data)
        words.write_text(
            "".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in target.words)
        )
        command = [sys.executable, "-m", "tests.fuzz.guided", name, str(seeds), str(folder)]
        command += [
            f"-max_total_time={int(seconds)}",
            f"-seed={seed + 1}",
            f"-timeout={PATIENCE_S}",
            "-print_final_stats=1",
        ]
        command += ["-rss_limit_mb=3000", "-max_len=65536", f"-artifact_prefix={folder}/"]
        command += [f"-dict={words}"] if target.words else []
        # the same search from the same seed; libFuzzer ends without cleaning up
        world = {**os.environ, "PYTHONHASHSEED": "0", "TMPDIR": scratch}
        finished = subprocess.run(command, capture_output=True, text=True, check=False, env=world)
    lines = finished.stderr.splitlines()
    stats = dict(line[6:].split(":") for line in lines if line.startswith("stat::"))
    inputs, rate = (
        stats.get(key, "?").strip() for key in ("number_of_executed_units", "average_exec_per_sec")
    )
    print(f"{name:16} {inputs:>9} inputs {rate:>8}/s, status {finished.returncode}", flush=True)
    if not finished.returncode:
        return []
    told = finished.stdout.splitlines()  # atheris: the exception
    told += [line for line in lines if not line.startswith(("INFO", "#", "stat::"))]
    told += [_shown(path) for path in set(folder.glob("*-*")) - before]
    return [f"{name}, status {finished.returncode}\n" + "\n".join(told[-SHOWN_LINES:])]


def _bound_the_process() -> None:
    """Limits time and memory of the process, so that a hang or a greedy decoder raises an exception."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang(f"more than {HANG_S} s of the processor")

    signal.signal(signal.SIGPROF, ring)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, resource.RLIM_INFINITY))


def _shown(path: Path) -> str:
    """Formats a failed input, so that it can be restored from the log."""
    return f"{path}: {base64.b64encode(path.read_bytes()[:KEPT_BYTES]).decode()}"


def _save(name: str, kind: str, data: bytes) -> Path:
    path = CORPUS / name / f"{kind}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _keep(name: str, report: Report) -> None:
    short = sorted((data for data in report.endings.values() if 0 < len(data) <= KEPT_BYTES), key=len)
    for data in short[:KEPT_EACH]:
        _save(name, "kept", data)


if __name__ == "__main__":
    sys.exit(main())
