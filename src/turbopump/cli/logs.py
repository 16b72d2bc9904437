"""Sets up the logging of servers: rotating files for operators, warnings on the terminal.

Files have Apache's names (`namesrv.log`, `broker.log`) and are in `~/logs/rocketmqlogs`, or in `--log-dir` or
TURBOPUMP_LOG_DIR; `-` means the terminal only, for containers.
"""

import argparse
import logging
import logging.handlers
import os
from collections.abc import Mapping

FILE_BYTES = 10 * 1024 * 1024
OLD_FILES = 5
LINE = "%(asctime)s %(levelname)s %(name)s - %(message)s"
TERMINAL_LINE = "%(levelname)s %(message)s"
TERMINAL_ONLY = "-"
DEFAULT_DIRECTORY = "~/logs/rocketmqlogs"
PRINTED = {"is_printed": True}
"""`extra` of a line that the command prints itself: it goes to the files only."""


def add_argument(parser: argparse.ArgumentParser, default: str = DEFAULT_DIRECTORY) -> None:
    parser.add_argument(
        "--log-dir",
        metavar="DIR",
        help=f"directory of log files; '-': terminal only (default: TURBOPUMP_LOG_DIR or {default})",
    )


def directory(flag: str | None, environ: Mapping[str, str], default: str = DEFAULT_DIRECTORY) -> str:
    chosen = flag or environ.get("TURBOPUMP_LOG_DIR") or default
    return chosen if chosen == TERMINAL_ONLY else os.path.expanduser(chosen)


def open_logs(where: str, roles: tuple[str, ...]) -> logging.Logger:
    """Sets up and returns logger `turbopump`: a file per role in `where`, or, for `-`, the terminal only.

    Warnings go to the terminal too.
    """
    top = logging.getLogger("turbopump")
    top.setLevel(logging.INFO)
    terminal = logging.StreamHandler()
    terminal.setFormatter(logging.Formatter(TERMINAL_LINE))
    terminal.setLevel(logging.INFO if where == TERMINAL_ONLY else logging.WARNING)
    terminal.addFilter(lambda record: not getattr(record, "is_printed", False))
    top.addHandler(terminal)
    if where == TERMINAL_ONLY:
        return top
    os.makedirs(where, exist_ok=True)
    for role in roles:
        file = _rotating(os.path.join(where, f"{role}.log"))
        if len(roles) > 1:  # both servers in one process: the rest goes to broker.log
            file.addFilter(_of_namesrv if role == "namesrv" else _not_of_namesrv)
        top.addHandler(file)
    return top


def _rotating(path: str) -> logging.Handler:
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter(LINE))
    return handler


def _of_namesrv(record: logging.LogRecord) -> bool:
    return record.name.startswith("turbopump.namesrv")


def _not_of_namesrv(record: logging.LogRecord) -> bool:
    return not _of_namesrv(record)
