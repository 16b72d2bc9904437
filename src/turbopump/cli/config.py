"""`turbopump config check FILE`: lists all problems of a configuration file, before a server starts.

The file is read by the code of the servers; here a refused line does not end the check.
"""

import argparse
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from turbopump.admin.render import json_text
from turbopump.broker import config as broker_config
from turbopump.broker.config import BrokerConfig
from turbopump.broker.settings import canonical, unknown_key, variable
from turbopump.cli.arguments import add_action
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.exits import FAILED
from turbopump.namesrv.config import SETTINGS as NAMESRV_SETTINGS
from turbopump.namesrv.config import WITHOUT_EFFECT as NAMESRV_WITHOUT_EFFECT
from turbopump.namesrv.config import NamesrvConfig, configure
from turbopump.protocol.conf import ConfigError, parse_properties
from turbopump.remoting.tls_settings import KEYS as TLS_KEYS

REFUSED, WARNING = "refused", "warning"
LOOPBACK = ("127.", "localhost", "::1")

Load = Callable[[bytes], list[str]]
"""Reads a whole file; returns the lines that the server would log about it. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a configuration file."""

    kind: str
    """`refused`: the server does not start with it; `warning`: it starts, but not as the line says."""
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = add_action(
        actions,
        "check",
        "list every key of a file that is unknown, has no effect, is invalid or looks wrong; "
        "exit status 1 if there is one",
        "turbopump config check broker.conf\nturbopump config check --for namesrv namesrv.conf",
    )
    check.add_argument("file", metavar="FILE", help="a broker.conf, or the properties of a name server")
    check.add_argument(
        "--for",
        dest="role",
        choices=ROLES,
        help="server that reads it (default: namesrv if the file name contains it, else broker)",
    )
    check.add_argument(
        "--lenient", action="store_true", help="exit status 1 only for lines that a server refuses"
    )
    check.add_argument("--json", action="store_true", help="print one JSON document")


def run(options: argparse.Namespace) -> int:
    file = ConfFile.read(options.file)
    role = options.role or ("namesrv" if "namesrv" in os.path.basename(options.file).lower() else "broker")
    found = problems(file.text, ROLES[role])
    if options.json:
        print(json_text({"file": options.file, "role": role, "problems": [asdict(one) for one in found]}))
    else:
        for one in found:
            print(f"{one.kind}: {one.text}")
        print(f"{options.file}: {summary(found, role)}")
    counted = [one for one in found if one.kind == REFUSED or not options.lenient]
    return FAILED if counted else 0


def summary(found: list[Problem], role: str) -> str:
    refused = sum(one.kind == REFUSED for one in found)
    if not found:
        return f"every key is known and has an effect ({role})"
    end = "does not start with it" if refused else "starts with it"
    return f"{refused} refused, {len(found) - refused} warnings: a {role} {end}"


def problems(text: bytes, load: Load) -> list[Problem]:
    """Returns all problems of a file: reads it again without each refused line until nothing is refused."""
    found: list[Problem] = []
    while True:
        try:
            return found + [Problem(WARNING, warning) for warning in load(text)]
        except ConfigError as error:
            found.append(Problem(REFUSED, str(error)))
            if not error.line:  # an error of the environment or of the whole file
                return found
            text = without_line(text, error.line)


def without_line(text: bytes, number: int) -> bytes:
    """Returns the text with a line and its continuation lines emptied, so that others keep their numbers."""
    lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    index = number - 1
    while index < len(lines):
        line = lines[index]
        lines[index] = b""
        index += 1
        if (len(line) - len(line.rstrip(b"\\"))) % 2 == 0:
            break
    return b"\n".join(lines)


# --- roles -----------------------------------------------------------------------------------------------


def load_broker(text: bytes) -> list[str]:
    loaded = broker_config.load(text, os.environ, {}, socket.gethostname())
    keys = {entry.key: entry.line for entry in parse_properties(text)}
    return [*loaded.warnings, *suspicious(loaded.config, keys, os.environ)]


def suspicious(config: BrokerConfig, lines: Mapping[str, int], environ: Mapping[str, str]) -> Iterator[str]:
    """Yields a warning per setting that is valid but probably wrong. `lines`: the line of each key."""
    for key, line in lines.items():
        if (name := variable(canonical(key))) in environ:
            yield f"line {line}: {key}: overridden by the environment variable {name}"
    host = config.listening.advertised_address
    if host.startswith(LOOPBACK) and not config.listening.bind_address.startswith(LOOPBACK):
        yield f"brokerIP1={host}: clients on other machines would connect to themselves"
    root = os.path.abspath(os.path.expanduser(config.store.root_dir))
    if not os.access(existing_parent(root), os.W_OK):
        yield f"storePathRootDir={config.store.root_dir}: this user cannot write there"


def existing_parent(path: str) -> str:
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def load_namesrv(text: bytes) -> list[str]:
    _, unknown = configure(NamesrvConfig.below_home(os.path.expanduser("~")), text)
    known = (*NAMESRV_SETTINGS, *NAMESRV_WITHOUT_EFFECT, *(key.name for key in TLS_KEYS))
    found = []
    for entry in parse_properties(text):
        if entry.key in unknown:
            found.append(unknown_key(entry.key, entry.line, known))
        elif entry.key in NAMESRV_WITHOUT_EFFECT:
            found.append(f"line {entry.line}: {entry.key}: has no effect")
    return found


ROLES: dict[str, Load] = {"broker": load_broker, "namesrv": load_namesrv}
