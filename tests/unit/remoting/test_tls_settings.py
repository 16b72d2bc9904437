import re

import pytest

from turbopump.protocol.conf import ConfigError
from turbopump.remoting.certificate_user import user_of
from turbopump.remoting.tls_settings import APACHE_NAMES, KEYS, TlsSettings, changed, check


@pytest.mark.parametrize(
    ("key", "bad", "good"),
    [
        ("tlsServerMode", "enforced", "Enforcing"),
        ("tls.server.mode", "off", "disabled"),
        ("tlsEnable", "yes", "true"),
        ("tlsServerNeedClientAuth", "required", "require"),
        ("tlsProtocols", "TLSv1.1", "TLSv1.2,TLSv1.3"),
        ("tlsProtocols", "TLSv1,TLSv1.2", "TLSv1.3"),
        ("tlsCiphers", "TLS_RSA_WITH_NULL_SHA", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("tlsReloadInterval", "49", "50"),
        ("tlsReloadInterval", "3600001", "3600000"),
        ("tlsUserFromCertificate", "subject", "dns"),
        ("tlsPlainPeers", "broker-b", "10.0.0.7;10.1.0.0/16"),
        ("tlsHttpMode", "https", "enforcing"),
    ],
)
def test_a_word_that_is_not_known_stops_the_start(key: str, bad: str, good: str) -> None:
    changed(TlsSettings(), key, good)
    with pytest.raises(ConfigError) as raised:
        changed(TlsSettings(), key, bad, 3)
    assert re.match(f"line 3: {re.escape(key)}: must be .*, got '{bad}'", str(raised.value))


def test_each_key_of_apache_sets_the_field_of_ours() -> None:
    for key in KEYS:
        text = key.show(getattr(TlsSettings(), key.field)) or key.accepts.split(" ", 1)[0]
        if key.field not in ("ciphers", "plain_peers"):
            assert changed(TlsSettings(), key.name, text) == changed(
                TlsSettings(), key.apache or key.name, text
            )
            assert APACHE_NAMES.get(key.apache, key.name) == key.name


def test_passwords_are_never_shown() -> None:
    settings = changed(TlsSettings(), "tlsServerKeyPassword", "hush")
    shown = [key.show(getattr(settings, key.field)) for key in KEYS]
    assert "hush" not in repr(settings) + str(shown)


def test_a_certificate_alone_makes_a_server_permissive_and_none_leaves_it_without_tls() -> None:
    assert TlsSettings().mode == "disabled"
    assert TlsSettings(cert_path="/x").mode == "permissive"
    assert TlsSettings(cert_path="/x", server_mode="disabled").mode == "disabled"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (TlsSettings(server_mode="permissive"), "tlsServerMode"),
        (TlsSettings(server_mode="enforcing"), "tlsServerMode"),
        (TlsSettings(http_mode="enforcing"), "tlsHttpMode"),
        (TlsSettings(cert_path="/x", need_client_auth="require"), "tlsServerNeedClientAuth"),
        (TlsSettings(cert_path="/x", need_client_auth="optional"), "tlsServerNeedClientAuth"),
        (TlsSettings(cert_path="/x", test_mode=True), "tlsTestModeEnable"),
    ],
)
def test_a_configuration_that_promises_more_than_it_can_keep_stops_the_start(
    settings: TlsSettings, key: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        check(settings)
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (TlsSettings(cert_path="/x", auth_client=False), "always verified"),
        (TlsSettings(enabled=True, client_auth_server=False), "are not verified"),
        (TlsSettings(enabled=True, plain_peers=("10.0.0.7",)), "not encrypted with 10.0.0.7"),
        (TlsSettings(cert_path="/x", ciphers=("TLS_AES_128_GCM_SHA256",)), "cannot be chosen"),
    ],
)
def test_a_setting_that_weakens_tls_is_named_in_a_warning(settings: TlsSettings, words: str) -> None:
    assert [words in warning for warning in check(settings)] == [True]


SUBJECT = ((("organizationName", "x"),), (("commonName", "alice"),))
NAMES = (("IP Address", "10.0.0.7"), ("DNS", "first.example"), ("DNS", "second.example"))


@pytest.mark.parametrize(
    ("certificate", "rule", "user"),
    [
        ({"subject": SUBJECT, "subjectAltName": NAMES}, "cn-or-dns", "alice"),
        ({"subject": SUBJECT, "subjectAltName": NAMES}, "dns", "first.example"),
        ({"subject": SUBJECT, "subjectAltName": NAMES}, "none", ""),
        ({"subjectAltName": NAMES}, "cn-or-dns", "first.example"),
        ({"subjectAltName": NAMES}, "cn", ""),
        ({"subject": SUBJECT}, "dns", ""),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, "cn-or-dns", ""),
        ({"subject": ((("commonName", "alice\x00.evil"),),)}, "cn", ""),
        ({"subject": ((("commonName", " alice"),),)}, "cn", ""),
        ({"subject": ((("commonName", "a" * 257),),)}, "cn", ""),
        ({}, "cn-or-dns", ""),
        (None, "cn-or-dns", ""),
    ],
)
def test_the_user_of_a_certificate_is_the_name_that_the_rule_says(
    certificate: object, rule: object, user: str
) -> None:
    assert user_of(certificate, rule) == user  # type: ignore[arg-type]
