"""Apache's commands under their own names: `mqnamesrv`, `mqbroker`, `mqshutdown`, `mqadmin`, and the scripts
`runserver.sh`, `runbroker.sh` and `tools.sh`, which take the name of a Java class.

`packaging/bin` has the files that are installed: shell and Python in one, so that `sh bin/mqbroker` works.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from turbopump.cli.ending import ASKED_WRONGLY, FAILED, ended, warn
from turbopump.cli.main import main_as

USAGE = "Usage: mqshutdown broker | namesrv"
NAME_SERVER_PROPERTY = "-Drocketmq.namesrv.addr="
OPTIONS_WITH_VALUE = ("-cp", "-classpath", "--class-path")

CLASSES = {
    "org.apache.rocketmq.namesrv.NamesrvStartup": ("namesrv",),
    "org.apache.rocketmq.broker.BrokerStartup": ("broker",),
    "org.apache.rocketmq.tools.command.MQAdminStartup": ("admin",),
    "org.apache.rocketmq.example.quickstart.Producer": ("quickstart", "producer"),
    "org.apache.rocketmq.example.quickstart.Consumer": ("quickstart", "consumer"),
}
"""Java's main classes, and the command that does the same."""


def namesrv() -> int:
    return main_as("namesrv", "mqnamesrv")


def broker() -> int:
    return main_as("broker", "mqbroker")


def mqadmin() -> int:
    from turbopump.cli.admin import main

    return main()


def shutdown() -> int:
    return ended(lambda: _shutdown(sys.argv[1:]), "mqshutdown")


def runserver() -> int:
    return run_class("runserver.sh", sys.argv[1:])


def runbroker() -> int:
    return run_class("runbroker.sh", sys.argv[1:])


def tools() -> int:
    return run_class("tools.sh", sys.argv[1:])


def run_class(program: str, words: Sequence[str]) -> int:
    """`tools.sh [JVM OPTIONS] CLASS [ARGUMENTS]`: the command that does what the class does."""
    jvm_options, rest = split_at_class(words)
    if not rest or rest[0] not in CLASSES:
        given = f"there is no class {rest[0]} here" if rest else "which class?"
        warn(f"{program}: {given}; there are {', '.join(CLASSES)}")
        return ASKED_WRONGLY
    ignored = []
    for option in jvm_options:
        if option.startswith(NAME_SERVER_PROPERTY):
            os.environ["NAMESRV_ADDR"] = option.removeprefix(NAME_SERVER_PROPERTY)
        else:
            ignored.append(option)
    if ignored:
        warn(f"{program}: there is no JVM, no effect: {' '.join(ignored)}")
    name, *action = CLASSES[rest[0]]
    return main_as(name, f"{program} {rest[0]}", [*action, *rest[1:]])


def split_at_class(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What `java` would take for itself, and the class with what follows."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in OPTIONS_WITH_VALUE else 1
    return list(words[:position]), list(words[position:])


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
