"""Runs one target with many inputs. An input that ends in a new way joins the pool of mutated ones.

The way an input ends is the line that raised: a coarse but free substitute for coverage. `guided.py` is
better if atheris is installed.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.mutation import mutate
from tests.fuzz.targets import Target, kept

SLOW_S = 2.0
HANG_S = 30  # of processor time: the machine may be busy
MAX_POOL = 2000
SHRINK_TRIES = 400
MAX_FAILURES = 5


class Hang(BaseException):
    """Raised by an alarm in an input that does not end."""


@dataclass
class Failure:
    data: bytes
    reason: str


@dataclass
class Report:
    inputs: int = 0
    seconds: float = 0.0
    endings: dict[str, bytes] = field(default_factory=dict)  # way of ending -> shortest input
    failures: list[Failure] = field(default_factory=list)


def search(name: str, target: Target, seed: int, goes_on: Callable[[int], bool]) -> Report:
    """Replays the kept corpus and the seeds, then makes inputs while `goes_on(inputs so far)`."""
    chance = random.Random(f"{seed}/{name}")
    report = Report()
    started = time.perf_counter()
    pool = [*kept(name), *target.seeds(), b""]
    for data in pool:
        _try(target, data, report)
    while goes_on(report.inputs) and len(report.failures) < MAX_FAILURES:
        data = mutate(pool, target.words, chance)
        if _try(target, data, report) and len(pool) < MAX_POOL:
            pool.append(data)
    report.seconds = time.perf_counter() - started
    return report


def ending(target: Target, data: bytes) -> tuple[str, bool]:
    """Returns how the input ends, and whether that is a failure."""
    started = time.process_time()
    try:
        target.run(data)
        how, failed = "read", False
    except target.allowed as error:
        how, failed = _place(error), False
    except (Exception, Hang) as error:
        how, failed = _place(error), True
    took = time.process_time() - started
    if took > SLOW_S:
        return f"slow: {took:.1f} s for {len(data)} bytes, {how}", True
    return how, failed


def _try(target: Target, data: bytes, report: Report) -> bool:
    """Runs an input; tells whether it ended in a new way."""
    report.inputs += 1
    how, failed = ending(target, data)
    known = report.endings.get(how)
    if failed and known is None:
        report.failures.append(Failure(shrink(target, data, how), how))
    if known is None or len(data) < len(known):
        report.endings[how] = data
    return known is None


def shrink(target: Target, data: bytes, how: str) -> bytes:
    """Returns a smaller input that fails in the same way."""
    if how.startswith(("slow", "Hang")):
        return data
    step = max(1, len(data) // 2)
    tries = 0
    while step and tries < SHRINK_TRIES:
        at = 0
        while at < len(data) and tries < SHRINK_TRIES:
            shorter = data[:at] + data[at + step :]
            tries += 1
            if ending(target, shorter) == (how, True):
                data = shorter
            else:
                at += step
        step //= 2
    return data


def _place(error: BaseException) -> str:
    """Returns the exception class and the innermost line of Turbopump."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "turbopump" in path or "fuzz" in path:
            line = f"{path.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {line}"
