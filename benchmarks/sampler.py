"""`python -m benchmarks.sampler FILE ARGUMENTS...`: runs our command line under a sampling profiler.

A timer signal every 2 ms of CPU time records the Python stack of the main thread, which runs the event loop.
This costs about one percent, where a tracing profiler triples the cost of small functions and hides that of C
calls. At exit it writes one line per stack to FILE, outermost frame first: `a;b;c 42`, the format of flame
graph tools.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.002


def main() -> int:
    target, arguments = Path(sys.argv[1]), sys.argv[2:]
    stacks: Counter[tuple[str, ...]] = Counter()

    def sample(_signal: int, frame: FrameType | None) -> None:
        stacks[stack(frame)] += 1

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        from turbopump.cli.main import main as turbopump

        return turbopump(arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        target.write_text("".join(f"{';'.join(names)} {count}\n" for names, count in stacks.most_common()))


def stack(frame: FrameType | None) -> tuple[str, ...]:
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).stem}.{code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(names))


if __name__ == "__main__":
    raise SystemExit(main())
