"""Makes keys and certificates: of a private authority, of servers and clients, and signed by themselves.

In: names. Out: PEM bytes. Nothing is written here, and no certificate is read or trusted. Needs the extra
`security`; serving TLS from PEM files does not.
"""

import copy
import datetime
import importlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbopump.protocol.conf import ConfigError

BACKDATED = datetime.timedelta(hours=1)
"""Clocks of other machines may be behind."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its certificate, as PEM."""

    cert: bytes
    key: bytes


def self_signed(days: int) -> KeyPair:
    """Makes a certificate for localhost that is its own authority. Raises ConfigError without the extra."""
    return Authority("localhost", days).root(["localhost", "127.0.0.1"])


class Authority:
    """A private certificate authority: its own key, and the certificates that it signs. All last `days`."""

    def __init__(self, name: str, days: int) -> None:
        self._crypto = _Cryptography()
        self._name = name
        self._days = days
        self._key = self._crypto.new_key()

    def lasting(self, days: int) -> "Authority":
        """Returns the same authority, whose certificates from now on last `days`; negative: they are over."""
        other = copy.copy(self)
        other._days = days
        return other

    def root(self, hosts: Sequence[str] = ()) -> KeyPair:
        """Makes the authority's own certificate; with `hosts` it can also be that of a server."""
        crypto = self._crypto
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(
            crypto.x509.BasicConstraints(ca=True, path_length=None if hosts else 0), critical=True
        )
        if hosts:
            builder = builder.add_extension(crypto.names(hosts), critical=False)
        return self._signed(builder, self._key)

    def server(self, name: str, hosts: Sequence[str]) -> KeyPair:
        """Makes a certificate of a server with these host names and addresses; it may dial others too."""
        return self._issued(name, hosts, ("SERVER_AUTH", "CLIENT_AUTH"))

    def client(self, name: str) -> KeyPair:
        """Makes a certificate of a client, whose common name is the user's."""
        return self._issued(name, (), ("CLIENT_AUTH",))

    def _issued(self, name: str, hosts: Sequence[str], uses: Sequence[str]) -> KeyPair:
        crypto, key = self._crypto, self._crypto.new_key()
        oids = [getattr(crypto.oid.ExtendedKeyUsageOID, use) for use in uses]
        builder = (
            self._builder(name, key)
            .add_extension(crypto.x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(crypto.x509.ExtendedKeyUsage(oids), critical=False)
            .add_extension(
                crypto.x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(crypto.names(hosts), critical=False)
        return self._signed(builder, key)

    def _builder(self, name: str, key: Any) -> Any:
        x509, now = self._crypto.x509, datetime.datetime.now(datetime.UTC)
        end = now + datetime.timedelta(days=self._days)
        return (
            x509.CertificateBuilder()
            .subject_name(self._crypto.name(name))
            .issuer_name(self._crypto.name(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, end) - BACKDATED)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    def _signed(self, builder: Any, key: Any) -> KeyPair:
        crypto = self._crypto
        cert = builder.sign(self._key, crypto.hashes.SHA256())
        pem = crypto.serialization
        private = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
        return KeyPair(cert.public_bytes(pem.Encoding.PEM), private)


class _Cryptography:
    """The modules of the package `cryptography`, imported when they are needed."""

    def __init__(self) -> None:
        try:
            self.x509: Any = importlib.import_module("cryptography.x509")
            self.oid: Any = importlib.import_module("cryptography.x509.oid")
            self.hashes: Any = importlib.import_module("cryptography.hazmat.primitives.hashes")
            self.serialization: Any = importlib.import_module("cryptography.hazmat.primitives.serialization")
            self._ec: Any = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ec")
        except ImportError:
            raise ConfigError(
                "making certificates needs cryptography: pip install 'turbopump[security]'"
            ) from None

    def new_key(self) -> Any:
        return self._ec.generate_private_key(self._ec.SECP256R1())

    def name(self, common_name: str) -> Any:
        return self.x509.Name([self.x509.NameAttribute(self.oid.NameOID.COMMON_NAME, common_name)])

    def names(self, hosts: Sequence[str]) -> Any:
        return self.x509.SubjectAlternativeName([self._host(host) for host in hosts])

    def _host(self, host: str) -> Any:
        try:
            return self.x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            return self.x509.DNSName(host)
