"""Finds the addresses of the name servers, and the configured default settings of clients.

Addresses come from the argument, `turbopump.configure()`, the configuration file, the environment
(NAMESRV_ADDR), an HTTP endpoint where a domain is configured, or are 127.0.0.1:9876. Pure except for
`configure`, which keeps its arguments for later clients, and the reading of the file when a client is made.
`instance.py` asks the endpoint.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.client.settings import ClientSettings, every_name, unknown
from turbopump.protocol.addresses import has_host_and_port, split_list

FILE_VARIABLE = "TURBOPUMP_CONFIG"
DEFAULT_FILE = "~/.turbopump.toml"
SECTION = "client"
ADDRESS_VARIABLE = "NAMESRV_ADDR"
NAME_SERVERS = "name_servers"
HTTP_PORT = 8080
DEFAULT_ADDRESS = "127.0.0.1:9876"

_configured: dict[str, Any] = {}


def configure(**settings: Any) -> None:
    """Sets defaults for every client that is made from now on in this process, `name_servers` included.

    >>> configure(name_servers="10.0.0.1:9876;10.0.0.2:9876", send_msg_timeout=5)

    The same keys can stand in the table `[client]` of the file that TURBOPUMP_CONFIG names, or of
    ~/.turbopump.toml. Arguments of a client come first, then these defaults, then the file.
    `configure()` without arguments removes what was configured before.
    """
    if not settings:
        _configured.clear()
    _check_names(settings)
    _configured.update(settings)


def defaults(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the configured defaults: those of `configure()` before those of the configuration file."""
    return {**_from_file(os.environ if environment is None else environment), **_configured}


def _check_names(settings: Mapping[str, Any], where: str = "") -> None:
    known = every_name() | {NAME_SERVERS}
    for name in settings:
        if name not in known:
            raise InvalidArgument(f"{where}{unknown(name, known)}")


def name_servers(
    given: str | Sequence[str] | None, environment: Mapping[str, str] | None = None, domain: str = ""
) -> tuple[str, ...]:
    """Returns the given, configured or NAMESRV_ADDR addresses; else 127.0.0.1:9876, or () given `domain`.

    The first of the three that is set counts. No request is made: after () the caller asks the HTTP endpoint
    of the domain.
    """
    known = os.environ if environment is None else environment
    sources = (given, defaults(environment).get(NAME_SERVERS), known.get(ADDRESS_VARIABLE))
    last = () if domain else (DEFAULT_ADDRESS,)
    return next((found for source in sources if (found := addresses(source or ""))), last)


def addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """Parses `host:port`, several separated by `;` or `,`, or a sequence of these. Raises InvalidArgument."""
    parts = [part for one in ([text] if isinstance(text, str) else text) for part in split_list(one)]
    return tuple(dict.fromkeys(map(_address, parts)))


def _address(text: str) -> str:
    if text.startswith(("http://", "https://")):
        text = text.rpartition("/")[2]
    if not has_host_and_port(text):
        raise InvalidArgument(
            f"the address of a name server must be host:port, such as 127.0.0.1:9876, got {text!r}"
        )
    return text


@dataclass(frozen=True, slots=True)
class DiscoveryEndpoint:
    """Host, port and path of the HTTP endpoint that returns the addresses of name servers."""

    host: str
    port: int
    path: str


def endpoint(settings: ClientSettings) -> DiscoveryEndpoint:
    """Returns `http://<domain>:8080/rocketmq/<subgroup>`, with the port of the domain if it has one."""
    host, colon, port = settings.name_server_domain.partition(":")
    path = f"/rocketmq/{settings.name_server_subgroup}"
    if settings.unit_name:
        path += f"-{settings.unit_name}?nofix=1"
    return DiscoveryEndpoint(host, int(port) if colon else HTTP_PORT, path)


def _from_file(environment: Mapping[str, str]) -> dict[str, Any]:
    named = environment.get(FILE_VARIABLE)
    path = Path(named or DEFAULT_FILE).expanduser()
    try:
        text = path.read_text()
    except OSError as error:
        if named:
            raise InvalidArgument(f"{FILE_VARIABLE} must name a readable file, got {path}: {error}") from None
        return {}
    try:
        section = tomllib.loads(text).get(SECTION, {})
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{path} must be TOML: {error}") from None
    if not isinstance(section, dict):
        raise InvalidArgument(f"{path}: [{SECTION}] must be a table")
    _check_names(section, f"{path}: ")
    return section
