import asyncio
import logging
import ssl

import pytest
from cryptography.hazmat.primitives import serialization as pem
from tests.kit import virtual
from tests.unit.remoting.tls_kit import TlsFiles, certificates, encrypted

from turbopump.protocol.conf import ConfigError
from turbopump.remoting.tls_contexts import TlsContexts
from turbopump.testing.loop import VirtualClock
from turbopump.testing.memory import MemoryWorkers

PKCS1 = pem.PrivateFormat.TraditionalOpenSSL


def refused(files: TlsFiles) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        files.contexts()
    return raised.value


def test_certificate_and_key_may_be_in_one_file() -> None:
    files = TlsFiles.of(key_path="")
    files.write(cert=certificates().server.key + certificates().server.cert)
    assert files.contexts().server is not None


@pytest.mark.parametrize("form", [pem.PrivateFormat.PKCS8, PKCS1], ids=["PKCS8", "PKCS1"])
@pytest.mark.parametrize("password", ["", "hush"])
def test_keys_of_both_forms_are_read_with_and_without_a_password(form: object, password: str) -> None:
    files = TlsFiles.of(key_password=password)
    files.write(key=encrypted(certificates().server.key, password, form))
    assert files.contexts().server is not None


def test_a_wrong_and_a_missing_password_are_told_apart_and_neither_is_shown() -> None:
    files = TlsFiles.of(key_password="guess")
    files.write(key=encrypted(certificates().server.key, "hush"))
    assert "its password is wrong" in str(refused(files))
    assert "guess" not in str(refused(files)) + repr(files.settings)
    files = TlsFiles.of()
    files.write(key=encrypted(certificates().server.key, "hush"))
    assert "its password is missing" in str(refused(files))


def test_the_key_of_another_certificate_stops_the_start() -> None:
    files = TlsFiles.of()
    files.write(key=certificates().other.key)
    error = refused(files)
    assert error.key == "tlsServerCertPath"
    assert "/pem/key cannot be used: the key is that of another certificate" in str(error)


def test_a_file_that_is_missing_or_no_pem_stops_the_start_and_is_named() -> None:
    assert "cannot read /pem/none" in str(refused(TlsFiles.of(key_path="/pem/none")))
    files = TlsFiles.of()
    files.write(cert=b"no certificate")
    assert "must be a certificate and a private key in PEM" in str(refused(files))
    files = TlsFiles.of(need_client_auth="require", trust_path="/pem/key")
    assert refused(files).key == "tlsServerTrustCertPath"


def test_a_file_that_is_too_large_is_not_taken_for_a_certificate() -> None:
    files = TlsFiles.of()
    files.write(cert=bytes((4 << 20) + 1))
    assert "must have at most" in str(refused(files))


def test_only_tls_1_2_and_1_3_are_spoken_and_nobody_renegotiates() -> None:
    context = TlsFiles.of().contexts().server
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.maximum_version == ssl.TLSVersion.TLSv1_3
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("protocols", "ciphers", "lowest", "highest"),
    [
        (("TLSv1.2",), (), "TLSv1_2", "TLSv1_2"),
        (("TLSv1.3",), (), "TLSv1_3", "TLSv1_3"),
        ((), ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), "TLSv1_2", "TLSv1_2"),
        ((), ("TLS_AES_128_GCM_SHA256",), "TLSv1_3", "TLSv1_3"),
        ((), ("TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES256-GCM-SHA384"), "TLSv1_2", "TLSv1_3"),
    ],
)
def test_protocols_and_ciphers_narrow_what_is_spoken(
    protocols: tuple[str, ...], ciphers: tuple[str, ...], lowest: str, highest: str
) -> None:
    context = TlsFiles.of(protocols=protocols, ciphers=ciphers).contexts().server
    assert context is not None
    assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)


def test_ciphers_and_protocols_that_exclude_each_other_stop_the_start() -> None:
    files = TlsFiles.of(protocols=("TLSv1.2",), ciphers=("TLS_AES_128_GCM_SHA256",))
    assert refused(files).key == "tlsCiphers"


def test_servers_that_are_dialled_are_verified_by_the_own_authority_or_by_host_name() -> None:
    own = TlsFiles.of(enabled=True, client_trust_path="/pem/ca").contexts().client
    public = TlsFiles.of(enabled=True).contexts().client
    none = TlsFiles.of(enabled=True, client_auth_server=False).contexts().client
    assert own is not None
    assert public is not None
    assert none is not None
    assert (own.verify_mode, own.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert (public.verify_mode, public.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert none.verify_mode == ssl.CERT_NONE


def test_without_tls_no_file_is_read() -> None:
    contexts = TlsFiles.of(cert_path="", key_path="/none").contexts()
    assert contexts.server is None
    assert contexts.client is None


def test_the_file_of_apache_overrides_the_keys() -> None:
    files = TlsFiles.of(cert_path="", key_path="", config_file="/pem/tls.properties")
    files.write(
        **{
            "tls.properties": b"tls.server.mode=enforcing\ntls.server.certPath=/pem/cert\n"
            b"tls.server.keyPath=/pem/key\ntls.server.need.client.auth=require\n"
            b"tls.server.trustCertPath=/pem/ca\n"
        }
    )
    contexts = files.contexts()
    assert contexts.settings.mode == "enforcing"
    assert contexts.server is not None
    assert contexts.server.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            b"tls.server.mode=enforced",
            "must be disabled or permissive or enforcing, or nothing, got 'enforced'",
        ),
        (b"\ntls.server.certpath=/x", "line 2"),
        (b"tls.config.file=/x", "is no key of TLS"),
    ],
)
def test_the_file_of_apache_stops_the_start_where_it_cannot_be_used(text: bytes, words: str) -> None:
    files = TlsFiles.of(config_file="/pem/tls.properties")
    files.write(**{"tls.properties": text})
    assert words in str(refused(files))
    assert "/pem/tls.properties" in str(refused(files))


def test_a_configuration_file_that_cannot_be_read_is_named() -> None:
    assert refused(TlsFiles.of(config_file="/none")).key == "tlsConfigFile"


def test_the_test_mode_signs_its_own_certificate_and_says_so() -> None:
    contexts = TlsFiles.of(cert_path="", key_path="", test_mode=True).contexts()
    assert contexts.server is not None
    assert "signed by the server itself" in contexts.warnings[0]
    before = contexts.server
    contexts.look()
    assert contexts.server is before


# Files that others can read


def test_keys_that_others_can_read_are_named() -> None:
    files = TlsFiles.of(enabled=True, client_cert_path="/pem/client", client_trust_path="/pem/ca")
    files.write(client=certificates().client.key + certificates().client.cert)
    open_to_all = "can be read by every user of this machine: chmod 600"
    assert files.contexts().warnings == [f"/pem/key {open_to_all}", f"/pem/client {open_to_all}"]
    for path in ("/pem/key", "/pem/client"):
        files.disk.write(path, files.disk.read(path), private=True)
    assert files.contexts().warnings == []


def test_a_file_with_passwords_of_keys_that_others_can_read_is_named() -> None:
    files = TlsFiles.of(config_file="/pem/tls.properties")
    files.disk.write("/pem/key", encrypted(certificates().server.key, "hush"), private=True)
    files.write(**{"tls.properties": b"tls.server.keyPassword=hush\n"})
    (warning,) = files.contexts().warnings
    assert warning == "/pem/tls.properties can be read by every user of this machine: chmod 600"
    files.disk.write("/pem/tls.properties", b"tls.server.keyPassword=hush\n", private=True)
    assert files.contexts().warnings == []


# Reload


async def changed(files: TlsFiles, **contents: bytes) -> tuple[TlsContexts, ssl.SSLContext | None]:
    """Changes files while they are watched; returns the contexts, and the server's before the change."""
    contexts = files.contexts()
    before = contexts.server
    watch = asyncio.ensure_future(contexts.watch(VirtualClock()))
    await asyncio.sleep(5)
    assert contexts.server is before, "nothing has changed"
    files.write(**contents)
    await asyncio.sleep(0.6)
    watch.cancel()
    return contexts, before


@virtual
async def test_a_new_pair_is_used_soon() -> None:
    made = certificates()
    contexts, before = await changed(TlsFiles.of(), cert=made.other.cert, key=made.other.key)
    assert contexts.server is not before


@virtual
async def test_a_new_authority_is_used_soon() -> None:
    files = TlsFiles.of(need_client_auth="require", trust_path="/pem/ca")
    contexts, before = await changed(files, ca=certificates().stranger_root.cert)
    assert contexts.server is not before


@pytest.mark.parametrize("contents", [{"cert": certificates().other.cert}, {"key": b"garbage"}])
def test_a_pair_that_does_not_match_keeps_the_old_one_and_is_logged_once(
    contents: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    @virtual
    async def main() -> None:
        files = TlsFiles.of()
        contexts = files.contexts()
        before = contexts.server
        files.write(**contents)
        watch = asyncio.ensure_future(contexts.watch(VirtualClock()))
        await asyncio.sleep(60)
        assert contexts.server is before
        made = certificates()
        files.write(cert=made.other.cert, key=made.other.key)
        await asyncio.sleep(1)
        assert contexts.server is not before
        watch.cancel()

    with caplog.at_level(logging.INFO):
        main()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "old TLS certificate of the server side stays" in caplog.text


@virtual
async def test_a_file_that_is_gone_keeps_the_old_certificate() -> None:
    files = TlsFiles.of()
    contexts = files.contexts()
    before = contexts.server
    files.disk.remove("/pem/key")
    contexts.look()
    assert contexts.server is before
    files.write(key=certificates().server.key)
    contexts.look()
    assert contexts.server is before, "the same files again"


def test_a_certificate_for_the_own_ports_that_cannot_be_read_stops_the_start() -> None:
    contexts = TlsFiles.of(client_cert_path="/none").contexts()
    with pytest.raises(ConfigError, match="tlsClientCertPath: cannot read /none"):
        contexts.to_itself()


def test_a_server_whose_ports_ask_for_a_certificate_needs_one_to_reach_itself() -> None:
    mutual = {"need_client_auth": "require", "trust_path": "/pem/ca"}
    assert TlsFiles.of(**mutual).contexts().to_itself() is None
    own = (
        TlsFiles.of(**mutual, client_cert_path="/pem/cert", client_key_path="/pem/key").contexts().to_itself()
    )
    assert own is not None
    assert own.verify_mode == ssl.CERT_NONE


@virtual
async def test_files_are_read_where_a_disk_that_hangs_stops_nobody() -> None:
    files = TlsFiles.of()
    contexts = files.contexts()
    before = contexts.server
    workers = MemoryWorkers()
    watch = asyncio.ensure_future(contexts.watch(VirtualClock(), workers))
    files.write(cert=certificates().other.cert, key=certificates().other.key)
    await asyncio.sleep(2)
    assert contexts.server is not before
    watch.cancel()
