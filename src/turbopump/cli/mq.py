"""Apache's commands under their own names: `mqnamesrv`, `mqbroker`, `mqshutdown`.

The first two are `turbopump namesrv` and `turbopump broker`. The third speaks the words of Apache's script.
"""

import os
import signal
import sys
from collections.abc import Callable

from turbopump.cli.ending import ASKED_WRONGLY, FAILED, ended, warn
from turbopump.cli.main import main_as

USAGE = "Usage: mqshutdown broker | namesrv"


def namesrv() -> int:
    return main_as("namesrv", "mqnamesrv")


def broker() -> int:
    return main_as("broker", "mqbroker")


def shutdown() -> int:
    return ended(lambda: _shutdown(sys.argv[1:]), "mqshutdown")


def _shutdown(words: list[str]) -> int:
    from turbopump.cli.processes import PROGRAMS, running

    if words in (["-h"], ["--help"]):
        print(f"{USAGE}\n\nSends SIGTERM to the servers of this user that play the role.")
        return 0
    if len(words) != 1 or words[0] not in PROGRAMS:
        warn(USAGE)
        return ASKED_WRONGLY
    return stop(PROGRAMS[words[0]], running(words[0]), os.kill)


def stop(program: str, pids: list[int], kill: Callable[[int, int], None]) -> int:
    if not pids:
        print(f"No {program} running.")
        return FAILED
    for pid in pids:
        print(f"The {program}({pid}) is running...")
        kill(pid, signal.SIGTERM)
        print(f"Send shutdown request to {program}({pid}) OK")
    return 0
