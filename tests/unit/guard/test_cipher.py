"""Secrets in files: encrypted with a key, bound to their user."""

import base64
import sys

import pytest

from turbopump.guard.cipher import SecretCipher, WrongKey, new_key, parse_key
from turbopump.guard.extra import ExtraMissing

KEY = bytes(range(32))


def test_a_secret_comes_back_and_its_text_does_not_show_it() -> None:
    cipher = SecretCipher(KEY)
    text = cipher.encrypt("pässword", "alice")
    assert cipher.decrypt(text, "alice") == "pässword"
    assert b"ssword" not in base64.b64decode(text.removeprefix("v1:"))
    assert cipher.encrypt("pässword", "alice") != text


@pytest.mark.parametrize("text", ["", "v1:", "v1:?", "v2:AAAA", "password", "v1:" + "A" * 60])
def test_what_was_not_encrypted_is_refused(text: str) -> None:
    with pytest.raises(WrongKey):
        SecretCipher(KEY).decrypt(text, "alice")


def test_a_secret_of_another_key_or_another_user_is_refused_without_being_shown() -> None:
    text = SecretCipher(KEY).encrypt("password", "alice")
    with pytest.raises(WrongKey, match="the secret of 'alice' cannot be decrypted"):
        SecretCipher(bytes(32)).decrypt(text, "alice")
    with pytest.raises(WrongKey):
        SecretCipher(KEY).decrypt(text, "mallory")


def test_a_key_is_32_bytes_in_base64_and_an_error_does_not_show_it() -> None:
    assert len(parse_key(new_key() + "\n", "the file")) == 32
    for text in ("", "secret-words", base64.b64encode(bytes(31)).decode()):
        with pytest.raises(ValueError, match=r"^the file must hold 32 bytes in base64") as raised:
            parse_key(text, "the file")
        assert not text or text not in str(raised.value)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ExtraMissing, match=r"needs cryptography: pip install 'turbopump\[security\]'"):
        SecretCipher(KEY)
