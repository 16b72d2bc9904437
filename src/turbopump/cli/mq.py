"""Apache's commands under their own names: `mqnamesrv`, `mqbroker`, `mqshutdown`.

The first two are `turbopump namesrv` and `turbopump broker`. The third speaks the words of Apache's script.
"""

import os
import signal
import sys
from collections.abc import Callable

from turbopump.cli.failures import ASKED_WRONGLY, FAILED
from turbopump.cli.main import main_as


def namesrv() -> int:
    return main_as("namesrv", "mqnamesrv")


def broker() -> int:
    return main_as("broker", "mqbroker")


def shutdown() -> int:
    from turbopump.cli.processes import PROGRAMS, running

    roles = sys.argv[1:]
    if len(roles) != 1 or roles[0] not in PROGRAMS:
        print("Usage: mqshutdown broker | namesrv", file=sys.stderr)
        return ASKED_WRONGLY
    return stop(PROGRAMS[roles[0]], running(roles[0]), os.kill)


def stop(program: str, pids: list[int], kill: Callable[[int, int], None]) -> int:
    if not pids:
        print(f"No {program} running.")
        return FAILED
    for pid in pids:
        print(f"The {program}({pid}) is running...")
        kill(pid, signal.SIGTERM)
        print(f"Send shutdown request to {program}({pid}) OK")
    return 0
