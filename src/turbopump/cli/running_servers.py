"""Finds Turbopump's servers on this machine by their command lines, so that no pid file can be stale.

Reads `/proc` if it exists, else the output of `ps`. Only processes of the same user count.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Commands of each role, and words after `turbopump` or `python -m turbopump`.
PROGRAMS = {"broker": "mqbroker", "namesrv": "mqnamesrv"}
WORDS = {"broker": {"broker", "up"}, "namesrv": {"namesrv", "up"}}
# Scripts that start the server of a Java class given as argument.
SCRIPTS = {"runserver.sh", "runbroker.sh", "tools.sh"}
CLASSES = {"broker": ".BrokerStartup", "namesrv": ".NamesrvStartup"}


def running(role: str, proc: Path = Path("/proc")) -> list[int]:
    """Returns the process ids of this user's servers in this role (broker, namesrv), except this process."""
    processes = _from_proc(proc) if proc.is_dir() else _from_ps()
    return sorted(pid for pid, words in processes if pid != os.getpid() and plays(role, words))


def plays(role: str, words: list[str]) -> bool:
    """Tells whether a command line runs a server in this role: `python .../mqbroker -c x` and so on."""
    if words and os.path.basename(words[0]).lower().startswith("python"):
        words = _without_interpreter(words)
    if not words:
        return False
    program = os.path.basename(words[0])
    if program in SCRIPTS:
        return any(word.endswith(CLASSES[role]) for word in words[1:])
    asked = next((word for word in words[1:] if not word.startswith("-")), "")
    return program == PROGRAMS[role] or (program == "turbopump" and asked in WORDS[role])


def _without_interpreter(words: list[str]) -> list[str]:
    """Returns what follows `python` and its options: the script or module, and its arguments."""
    position = 1
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in ("-X", "-W") else 1
    return words[position:]


def _from_proc(proc: Path) -> Iterator[tuple[int, list[str]]]:
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == os.getuid():
                words = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
                yield int(entry.name), words
        except OSError:  # it ended meanwhile
            continue


def _from_ps() -> Iterator[tuple[int, list[str]]]:
    lines = subprocess.run(
        ["ps", "-x", "-o", "pid=,command="], capture_output=True, text=True, check=True
    ).stdout
    for line in lines.splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command.split()
