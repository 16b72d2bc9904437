"""TLS toward name servers and brokers, by the settings whose names Apache's clients know."""

import ssl

from turbopump.client.errors import InvalidArgument
from turbopump.client.settings import ClientSettings
from turbopump.runtime.network import Network, SystemNetwork


def network_for(settings: ClientSettings, network: Network) -> Network:
    """The network to use: the one given, or with `use_tls` an encrypted one."""
    if not settings.use_tls:
        return network
    if not isinstance(network, SystemNetwork):
        raise InvalidArgument("use_tls needs real sockets: leave it out where the network is simulated")
    return SystemNetwork(tls_context(settings))


def tls_context(settings: ClientSettings) -> ssl.SSLContext:
    """Without `tls_trust_cert_path` any certificate is accepted, as Apache's clients do by default: that
    keeps readers out, not one who sits in between. Host names are not compared, since brokers register under
    addresses. Raises InvalidArgument when a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        if settings.tls_trust_cert_path:
            context.load_verify_locations(settings.tls_trust_cert_path)
            context.verify_mode = ssl.CERT_REQUIRED
        if settings.tls_cert_path:
            key = settings.tls_key_path or None
            context.load_cert_chain(settings.tls_cert_path, key, settings.tls_key_password or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(f"a file of the tls_ settings cannot be used: {error}") from None
    return context
