"""TLS and SOCKS proxies for connections to name servers and brokers, by the settings of Apache's clients."""

import ipaddress
import json
import ssl
from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.client.settings import ClientSettings
from turbopump.protocol.addresses import split_address
from turbopump.runtime.network import Network, SystemNetwork
from turbopump.runtime.socks import Proxy, SocksNetwork


def network_for(settings: ClientSettings, network: Network) -> Network:
    """Returns `network` with the TLS and SOCKS proxies of the settings; unchanged without either."""
    tls = tls_context(settings) if settings.use_tls else None
    if tls is not None and not isinstance(network, SystemNetwork):
        raise InvalidArgument("use_tls needs real sockets: leave it out with a simulated network")
    direct = network if tls is None else SystemNetwork(tls)
    proxies = proxies_of(settings.socks_proxy_config)
    return SocksNetwork(network, direct, proxies, tls) if proxies else direct


def proxies_of(text: str) -> tuple[Proxy, ...]:
    """Parses Apache's `socks_proxy_config` (JSON) into SOCKS5 proxies. Raises InvalidArgument.

    The first network that contains an address is used. Example:
    `{"10.0.0.0/8": {"addr": "host:port", "username": "…", "password": "…"}}`; `0.0.0.0/0` contains all
    addresses.
    """
    try:
        table: Any = json.loads(text or "{}")
        return tuple(_proxy(hosts, **rule) for hosts, rule in table.items())
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"socks_proxy_config must be valid ({error}); it is JSON such as "
            '{"0.0.0.0/0": {"addr": "proxy:1080", "username": "me", "password": "secret"}}'
        ) from None


def _proxy(hosts: str, addr: str, username: str | None = None, password: str | None = None) -> Proxy:
    ipaddress.ip_network(hosts, strict=False)
    host, port = split_address(addr)
    return Proxy(hosts, host, port, username or "", password or "")


def tls_context(settings: ClientSettings) -> ssl.SSLContext:
    """Makes the TLS context of a client from its `tls_` settings. Raises InvalidArgument for a bad file.

    Servers are verified by the authorities of `tls_trust_cert_path`; their host names are not compared then,
    because brokers register under addresses. Without it the system's roots are used and host names compared:
    anyone can have a certificate of a public authority. `tls_auth_server=False` accepts any certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.tls_auth_server and not settings.tls_trust_cert_path
    context.verify_mode = ssl.CERT_REQUIRED if settings.tls_auth_server else ssl.CERT_NONE
    try:
        if settings.tls_trust_cert_path:
            context.load_verify_locations(settings.tls_trust_cert_path)
        elif settings.tls_auth_server:
            context.load_default_certs()
        if settings.tls_cert_path:
            key = settings.tls_key_path or None
            context.load_cert_chain(settings.tls_cert_path, key, settings.tls_key_password or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(f"the files of the tls_ settings must be readable and valid: {error}") from None
    return context
