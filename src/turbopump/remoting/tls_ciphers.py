"""Cipher suites of TLS 1.2 that servers accept in `tlsCiphers`, by Java's names and OpenSSL's.

Only suites with forward secrecy and authenticated encryption are in the table. Those of TLS 1.3 are all good,
and Python's `ssl` cannot choose among them.
"""

from typing import NamedTuple


class CipherName(NamedTuple):
    """The names of a cipher suite."""

    java: str
    openssl: str


CIPHERS = tuple(
    CipherName(f"TLS_{exchange}_{sign}_WITH_{java}", f"{exchange}-{sign}-{openssl}")
    for exchange, sign in (("ECDHE", "RSA"), ("ECDHE", "ECDSA"), ("DHE", "RSA"))
    for java, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
)

OF_TLS_13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})

_OPENSSL = {name: cipher.openssl for cipher in CIPHERS for name in cipher}


def is_of_tls_13(name: str) -> bool:
    return name in OF_TLS_13


def openssl_name(name: str) -> str | None:
    """Returns OpenSSL's name of a suite of TLS 1.2; None if it is not in the table."""
    return _OPENSSL.get(name)
