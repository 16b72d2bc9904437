"""Certificates, keys and authorities in PEM, loaded from bytes into TLS contexts.

Raises `UnusablePem` with the setting that names the file, and what is wrong with it. No file of a server is
read here: the bytes that were compared with those before are the ones that are loaded.
"""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PemFiles:
    """Contents of the files of one side: certificate, key and authorities; empty where there is no file."""

    cert: bytes = b""
    key: bytes = b""
    trust: bytes = b""


class UnusablePem(Exception):
    """Raised for a file that cannot be read or used; `key` is the setting that names it."""

    def __init__(self, key: str, text: str) -> None:
        self.key = key
        super().__init__(text)


def load_trust(context: ssl.SSLContext, pem: bytes, key: str, path: str) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise UnusablePem(key, f"{path} must have PEM certificates of authorities: {error}") from None


def load_pair(context: ssl.SSLContext, cert: bytes, key: bytes, password: str) -> None:
    """Loads a certificate and its key from PEM; raises an OSError unless they fit together."""
    with _file_of(cert) as cert_file, _file_of(key or cert) as key_file:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(cert_file, key_file, password=lambda: password)


def load_files(
    context: ssl.SSLContext, files: PemFiles, password: str, key: str, cert_path: str, key_path: str
) -> None:
    """Loads certificate and key of the files; raises UnusablePem unless they fit together."""
    try:
        load_pair(context, files.cert, files.key, password)
    except (OSError, ValueError) as error:
        why = _reason(error, files.key or files.cert, password)
        words = f"{cert_path} and its key {key_path or cert_path} cannot be used: {why}"
        raise UnusablePem(key, words) from None


def _reason(error: Exception, key: bytes, password: str) -> str:
    """Returns what is wrong with a pair; OpenSSL says little about keys that it cannot read."""
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the key is that of another certificate"
    if b"ENCRYPTED" in key:
        return f"the key is encrypted, and its password is {'wrong' if password else 'missing'}"
    return f"they must be a certificate and a private key in PEM ({error})"


@contextlib.contextmanager
def _file_of(contents: bytes) -> Iterator[str]:
    """Gives the path of a private file with these bytes: OpenSSL takes certificates from files alone.

    So both come from the same reads that were compared. On Linux the file is in memory only.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()
    try:
        os.write(descriptor, contents)
        yield path
    finally:
        os.close(descriptor)
        if not hasattr(os, "memfd_create"):
            os.unlink(path)
