"""The five-minute path of docs/tls.md, and what servers say that cannot start with TLS."""

import pytest
from tests.integration.cli.conftest import Home

from turbopump.remoting.certificates import self_signed


def test_certificates_servers_and_clients_in_a_few_commands(home: Home) -> None:
    made = home.run("turbopump", "tls", "init", "tls", "--client", "alice")
    assert made.returncode == 0, made.stderr
    home.up("--tls", "tls/server.properties")
    plain = home.run("turbopump", "send", "hello", "plain")
    assert plain.returncode == 1
    home.environment["TURBOPUMP_CONFIG"] = str(home.path / "tls/alice.toml")
    sent = home.run("turbopump", "send", "hello", "secret")
    assert sent.returncode == 0, sent.stderr
    read = home.run("turbopump", "tail", "hello", "--from", "first", "-n", "1")
    assert read.stdout.endswith("| secret\n")
    for words in (("health",), ("doctor",), ("admin", "clusterList")):
        done = home.run("turbopump", *words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["broker", "namesrv"])
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("tlsServerMode=enforced\n", "tlsServerMode: must be disabled or permissive or enforcing"),
        ("tlsServerMode=enforcing\n", "tlsServerMode: enforcing needs a certificate"),
        ("tlsServerCertPath=none.pem\n", "tlsServerCertPath: cannot read none.pem"),
        ("tlsConfigFile=none.properties\n", "tlsConfigFile: cannot be read"),
    ],
)
def test_a_server_does_not_start_with_less_tls_than_configured(
    home: Home, command: str, lines: str, words: str
) -> None:
    (home.path / "own.conf").write_text(f"{lines}bindAddress=127.0.0.1\nlistenPort=0\n")
    done = home.run("turbopump", command, "-c", "own.conf")
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_does_not_start_with_the_key_of_another_certificate(home: Home) -> None:
    (home.path / "cert.pem").write_bytes(self_signed(days=1).cert)
    (home.path / "key.pem").write_bytes(self_signed(days=1).key)
    (home.path / "own.conf").write_text(
        "tlsServerCertPath=cert.pem\ntlsServerKeyPath=key.pem\nlistenPort=0\n"
    )
    done = home.run("turbopump", "broker", "-c", "own.conf")
    assert done.returncode == 2
    assert "the key is that of another certificate" in done.stderr
