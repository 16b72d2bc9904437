"""What the tests of TLS share: certificates made once, settings over files in memory, contexts of clients."""

import functools
import ssl
from dataclasses import dataclass, replace
from typing import Any

from cryptography.hazmat.primitives import serialization as pem

from turbopump.remoting.certificates import Authority, KeyPair
from turbopump.remoting.pem import load_pair
from turbopump.remoting.tls_contexts import TlsContexts
from turbopump.remoting.tls_settings import TlsSettings
from turbopump.runtime.clock import SystemClock
from turbopump.testing.memory import MemoryDisk

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Certificates:
    """An authority with certificates of a server and of a client, and those of a stranger."""

    root: KeyPair
    server: KeyPair
    other: KeyPair
    """Another certificate of the same server."""
    client: KeyPair
    expired: KeyPair
    stranger_root: KeyPair
    stranger: KeyPair


@functools.cache
def certificates() -> Certificates:
    ours, strange = Authority("test authority", 30), Authority("a stranger", 30)
    past = ours.lasting(-1)
    return Certificates(
        ours.root(),
        ours.server("broker", [HOST, "localhost"]),
        ours.server("broker", [HOST, "localhost"]),
        ours.client("alice"),
        past.client("alice"),
        strange.root(),
        strange.client("alice"),
    )


def encrypted(key: bytes, password: str, form: Any = pem.PrivateFormat.PKCS8) -> bytes:
    """Returns a key in PEM encrypted with a password; without one, unencrypted in another form."""
    how = pem.BestAvailableEncryption(password.encode()) if password else pem.NoEncryption()
    return pem.load_pem_private_key(key, None).private_bytes(pem.Encoding.PEM, form, how)


@dataclass
class TlsFiles:
    """The PEM files of a server, on a disk in memory."""

    disk: MemoryDisk
    settings: TlsSettings

    @classmethod
    def of(cls, **changes: Any) -> "TlsFiles":
        files = cls(MemoryDisk(SystemClock()), TlsSettings(cert_path="/pem/cert", key_path="/pem/key"))
        made = certificates()
        files.write(cert=made.server.cert, key=made.server.key, ca=made.root.cert)
        files.settings = replace(files.settings, **changes)
        return files

    def write(self, **contents: bytes) -> None:
        self.disk.make_dirs("/pem")
        for name, data in contents.items():
            self.disk.write(f"/pem/{name}", data)

    def contexts(self) -> TlsContexts:
        return TlsContexts(self.settings, self.disk)


def client_context(shown: KeyPair | None = None, trust: bytes | None = None) -> ssl.SSLContext:
    """Returns the context of a client that trusts the server's authority, and shows a certificate or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=(trust or certificates().root.cert).decode())
    if shown is not None:
        load_pair(context, shown.cert, shown.key, "")
    return context
