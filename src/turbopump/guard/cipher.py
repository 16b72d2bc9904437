"""Encryption of secrets in files, and the key for it.

A signature is checked with the secret itself, so a hash would not do. Each secret is text of the form

    v1:base64(12 bytes nonce + AES-256-GCM of the secret, with the user's name as associated data)

so that a secret cannot be moved to another user. The key comes from the configuration or a file; it is
never in the file that it protects.
"""

import base64
import binascii
import os
from typing import Any

from turbopump.guard.config import KEY_BYTES
from turbopump.guard.extra import extra

NONCE_BYTES = 12
VERSION = "v1:"


class WrongKey(Exception):
    """Raised when a secret cannot be decrypted: another key was used, or the text was changed."""


class SecretCipher:
    """Encrypts and decrypts secrets of users with one key."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        """Raises ExtraMissing without the package `cryptography`."""
        assert len(key) == KEY_BYTES, "a key has 32 bytes"
        module: Any = extra("cryptography.hazmat.primitives.ciphers.aead", "authenticationEnabled")
        self._cipher = module.AESGCM(key)

    def encrypt(self, secret: str, owner: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + self._cipher.encrypt(nonce, secret.encode(), owner.encode())
        return VERSION + base64.b64encode(data).decode()

    def decrypt(self, text: str, owner: str) -> str:
        """Returns the secret of a user. Raises WrongKey."""
        try:
            data = base64.b64decode(text.removeprefix(VERSION), validate=True)
            if not text.startswith(VERSION) or len(data) <= NONCE_BYTES:
                raise ValueError
            plain: bytes = self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], owner.encode())
        except Exception as error:  # InvalidTag is a class of the optional package
            if not isinstance(error, ValueError | binascii.Error) and type(error).__name__ != "InvalidTag":
                raise
            raise WrongKey(f"the secret of {owner!r} cannot be decrypted: the key is another one") from None
        return plain.decode()


def parse_key(text: str, where: str) -> bytes:
    """Returns the key in a text of base64. Raises ValueError, which names `where` and never the text."""
    try:
        key = base64.b64decode("".join(text.split()), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{where} must hold 32 bytes in base64, as `openssl rand -base64 32` prints")
    return key


def new_key() -> str:
    """Returns a new random key as text."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()
