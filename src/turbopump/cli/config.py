"""`turbopump config check FILE`: everything that is wrong with a configuration file, before a server starts.

The same code reads the file that the servers use; here what they would refuse does not end the reading.
"""

import argparse
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from turbopump.admin.render import json_text
from turbopump.broker import config as broker_config
from turbopump.broker.config import BrokerConfig
from turbopump.broker.settings import ALIASES, unknown_key, variable
from turbopump.cli.arguments import add_action
from turbopump.cli.conf import ConfFile
from turbopump.cli.ending import FAILED
from turbopump.namesrv.config import SETTINGS as NAMESRV_SETTINGS
from turbopump.namesrv.config import WITHOUT_EFFECT as NAMESRV_WITHOUT_EFFECT
from turbopump.namesrv.config import NamesrvConfig, configure
from turbopump.protocol.conf import ConfigError, parse_properties

REFUSED, WARNING = "refused", "warning"
LOOPBACK = ("127.", "localhost", "::1")

Load = Callable[[bytes], list[str]]
"""Reads a whole file: what the server would log about it. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class Problem:
    kind: str
    """`refused`: the server does not start with it; `warning`: it starts, but not as the file says."""
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = add_action(
        actions,
        "check",
        "name every key of a file that is unknown, has no effect, cannot be used or looks wrong; "
        "exit status 1 when there is one",
        "turbopump config check broker.conf\nturbopump config check --for namesrv namesrv.conf",
    )
    check.add_argument("file", metavar="FILE", help="a broker.conf, or the properties of a name server")
    check.add_argument(
        "--for",
        dest="role",
        choices=ROLES,
        help="which server reads it (default: namesrv when the file's name says so, else broker)",
    )
    check.add_argument("--lenient", action="store_true", help="exit status 1 only for what a server refuses")
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
        return f"every key is known and has its effect ({role})"
    end = "does not start with it" if refused else "starts with it"
    return f"{refused} refused, {len(found) - refused} warnings: a {role} {end}"


def problems(text: bytes, load: Load) -> list[Problem]:
    """A line that is refused is left out, and the rest is read again, until all of it can be read."""
    found: list[Problem] = []
    while True:
        try:
            return found + [Problem(WARNING, warning) for warning in load(text)]
        except ConfigError as error:
            found.append(Problem(REFUSED, str(error)))
            if not error.line:  # of the environment, or of the file as a whole
                return found
            text = without_line(text, error.line)


def without_line(text: bytes, number: int) -> bytes:
    """The line and those that continue it become empty, so that the others keep their numbers."""
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
    """What can be meant, but rarely is. `lines` says where each key of the file stands."""
    for key, line in lines.items():
        if (name := variable(ALIASES.get(key, key))) in environ:
            yield f"line {line}: {key}: the environment variable {name} wins over it"
    host = config.listening.advertised_address
    if host.startswith(LOOPBACK) and not config.listening.bind_address.startswith(LOOPBACK):
        yield f"brokerIP1={host}: clients on other machines are told to connect to themselves"
    root = os.path.abspath(os.path.expanduser(config.store.root_dir))
    if not os.access(existing_parent(root), os.W_OK):
        yield f"storePathRootDir={config.store.root_dir}: this user may not write there"


def existing_parent(path: str) -> str:
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def load_namesrv(text: bytes) -> list[str]:
    _, unknown = configure(NamesrvConfig.below_home(os.path.expanduser("~")), text)
    known = (*NAMESRV_SETTINGS, *NAMESRV_WITHOUT_EFFECT)
    found = []
    for entry in parse_properties(text):
        if entry.key in unknown:
            found.append(unknown_key(entry.key, entry.line, known))
        elif entry.key in NAMESRV_WITHOUT_EFFECT:
            found.append(f"line {entry.line}: {entry.key}: no effect here")
    return found


ROLES: dict[str, Load] = {"broker": load_broker, "namesrv": load_namesrv}
