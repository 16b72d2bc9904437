"""`turbopump tls init`: makes a private authority, and certificates of the servers and clients of a cluster.

Prints what to give to servers and clients. Files that exist are never overwritten: their keys may be in use.
"""

import argparse
import os
import re
from collections.abc import Iterator

from turbopump.cli.arguments import add_action
from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.protocol.conf import pack_properties
from turbopump.remoting.certificates import Authority, KeyPair

DAYS = 825
MAX_DAYS = 36_500
AUTHORITY, SERVER = "ca", "server"
PRIVATE = 0o600
DIRECTORY = 0o700


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = add_action(
        actions,
        "init",
        "make an authority, a certificate of the servers and one for each client, and settings that use them",
        "turbopump tls init ./tls\n"
        "turbopump tls init ./tls --host 10.0.0.5 --host broker-a --client alice --client bob",
    )
    init.add_argument("directory", metavar="DIR", help="where the files are written")
    init.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="H",
        help="a name or address of the servers, several times; localhost and 127.0.0.1 are always there",
    )
    init.add_argument(
        "--client",
        action="append",
        default=[],
        type=client_name,
        metavar="NAME",
        help="make a certificate of this user, several times; then the servers require one",
    )
    init.add_argument(
        "--days", type=days, default=DAYS, metavar="N", help=f"how long they are valid (default: {DAYS})"
    )


def client_name(text: str) -> str:
    """Reads a user's name for argparse; it becomes part of file names."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", text):
        raise argparse.ArgumentTypeError(f"must be letters, digits, _ . and -, at most 64, got {text!r}")
    return text


def days(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= MAX_DAYS):
        raise argparse.ArgumentTypeError(f"must be days from 1 to {MAX_DAYS}, got {text}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    directory = os.path.abspath(options.directory)
    files: dict[str, bytes] = {}
    for name, data in contents(directory, options.host, options.client, options.days):
        if name in files:
            raise CommandFailure(f"two files would be {name}: choose another name of a client", USAGE_ERROR)
        files[name] = data
    write(directory, files)
    print(advice(directory, options.client))
    return 0


def contents(directory: str, hosts: list[str], clients: list[str], days: int) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of all files."""
    authority = Authority("Turbopump cluster authority", days)
    yield from _pair(AUTHORITY, authority.root())
    names = list(dict.fromkeys(["localhost", "127.0.0.1", *hosts]))
    yield from _pair(SERVER, authority.server(hosts[0] if hosts else "localhost", names))
    yield "server.properties", pack_properties(server_settings(directory, bool(clients)))
    for client in dict.fromkeys(clients):
        yield from _pair(client, authority.client(client))
    for client in dict.fromkeys(clients) or [""]:
        prefix = f"{client}." if client else "client."
        yield f"{prefix}properties", pack_properties(client_settings(directory, client))
        yield f"{prefix}toml", toml(directory, client).encode()


def _pair(name: str, pair: KeyPair) -> Iterator[tuple[str, bytes]]:
    yield f"{name}.pem", pair.cert
    yield f"{name}-key.pem", pair.key


def server_settings(directory: str, is_mutual: bool) -> dict[str, str]:
    """Returns the settings of servers, by Apache's names: nothing but TLS, also among themselves."""
    ca, cert, key = (os.path.join(directory, name) for name in ("ca.pem", "server.pem", "server-key.pem"))
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": cert,
        "tls.server.keyPath": key,
        "tls.server.need.client.auth": "require" if is_mutual else "none",
        "tls.server.trustCertPath": ca,
        "tls.enable": "true",
        "tls.client.certPath": cert,
        "tls.client.keyPath": key,
        "tls.client.trustCertPath": ca,
    }


def client_settings(directory: str, client: str) -> dict[str, str]:
    """Returns the settings of a Java client, for its `-Dtls.config.file`."""
    own = {
        "tls.client.certPath": os.path.join(directory, f"{client}.pem"),
        "tls.client.keyPath": os.path.join(directory, f"{client}-key.pem"),
    }
    return {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": os.path.join(directory, "ca.pem"),
        **(own if client else {}),
    }


def toml(directory: str, client: str) -> str:
    """Returns the settings of Python clients and of our commands, for TURBOPUMP_CONFIG."""
    own = {"tls_cert_path": f"{client}.pem", "tls_key_path": f"{client}-key.pem"} if client else {}
    paths = {"tls_trust_cert_path": "ca.pem", **own}
    lines = [f"{name} = {_quoted(os.path.join(directory, file))}" for name, file in paths.items()]
    return "\n".join(["[client]", "use_tls = true", *lines, ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(directory: str, files: dict[str, bytes]) -> None:
    """Writes the files, readable by this user alone. Raises CommandFailure, writing none, if one exists."""
    os.makedirs(directory, DIRECTORY, exist_ok=True)
    there = [name for name in files if os.path.lexists(os.path.join(directory, name))]
    if there:
        path = os.path.join(directory, there[0])
        words = "exists, and is not overwritten: choose another directory"
        raise CommandFailure(f"{path} {words}", USAGE_ERROR)
    for name, data in files.items():
        path = os.path.join(directory, name)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            file.write(data)


def advice(directory: str, clients: list[str]) -> str:
    """Returns what to give to servers and clients."""
    server = os.path.join(directory, "server.properties")
    name = os.path.join(directory, clients[0] if clients else "client")
    asked = " and clients without one of these certificates" if clients else ""
    return "\n".join(
        (
            f"Certificates for a cluster are in {directory}; only this user can read them.",
            "",
            f"Servers, which refuse plain connections{asked}:",
            f"  turbopump up --tls {server}",
            f"  turbopump namesrv|broker --tls {server}   # or in broker.conf: tlsConfigFile={server}",
            "",
            "Commands and Python clients:",
            f"  export TURBOPUMP_CONFIG={name}.toml",
            "",
            "Java clients and Apache's tools:",
            f"  -Dtls.enable=true -Dtls.config.file={name}.properties",
            "",
            f"{os.path.join(directory, 'ca-key.pem')} signs certificates that these servers accept: keep it "
            "where only you can read it; servers do not need it.",
        )
    )
