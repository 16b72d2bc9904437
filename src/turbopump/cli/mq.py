"""Runs Apache's commands `mqnamesrv`, `mqbroker`, `mqshutdown`, `mqadmin`, and its scripts for Java classes.

The scripts `runserver.sh`, `runbroker.sh` and `tools.sh` take the name of a Java class. `packaging/bin` has
the installed files: shell and Python in one, so that `sh bin/mqbroker` works.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from turbopump.cli.exits import FAILED, USAGE_ERROR, exit_status, warn
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
"""Java's main classes, with the equivalent command."""


def namesrv() -> int:
    return main_as("namesrv", "mqnamesrv")


def broker() -> int:
    return main_as("broker", "mqbroker")


def mqadmin() -> int:
    from turbopump.cli.admin import main

    return main()


def shutdown() -> int:
    return exit_status(lambda: _shutdown(sys.argv[1:]), "mqshutdown")


def runserver() -> int:
    return run_class("runserver.sh", sys.argv[1:])


def runbroker() -> int:
    return run_class("runbroker.sh", sys.argv[1:])


def tools() -> int:
    return run_class("tools.sh", sys.argv[1:])


def run_class(program: str, words: Sequence[str]) -> int:
    """Runs the command for a Java class, `[JVM OPTIONS] CLASS [ARGUMENTS]`; returns the exit status."""
    jvm_options, rest = split_at_class(words)
    if not rest or rest[0] not in CLASSES:
        given = f"there is no class {rest[0]}" if rest else "a class is missing"
        warn(f"{program}: {given}; there are {', '.join(CLASSES)}")
        return USAGE_ERROR
    ignored = []
    for option in jvm_options:
        if option.startswith(NAME_SERVER_PROPERTY):
            os.environ["NAMESRV_ADDR"] = option.removeprefix(NAME_SERVER_PROPERTY)
        else:
            ignored.append(option)
    if ignored:
        warn(f"{program}: JVM options have no effect: {' '.join(ignored)}")
    name, *action = CLASSES[rest[0]]
    return main_as(name, f"{program} {rest[0]}", [*action, *rest[1:]])


def split_at_class(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits arguments into options of `java`, and the class with its arguments."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in OPTIONS_WITH_VALUE else 1
    return list(words[:position]), list(words[position:])


def _shutdown(words: list[str]) -> int:
    from turbopump.cli.running_servers import PROGRAMS, running

    if words in (["-h"], ["--help"]):
        print(f"{USAGE}\n\nSends SIGTERM to the servers of this user in that role.")
        return 0
    if len(words) != 1 or words[0] not in PROGRAMS:
        warn(USAGE)
        return USAGE_ERROR
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
