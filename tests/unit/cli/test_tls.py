import ssl
import stat
import sys
from pathlib import Path

import pytest

from turbopump.broker import config as broker_config
from turbopump.cli.main import main
from turbopump.client import discovery
from turbopump.client.encryption import tls_context
from turbopump.client.settings import ClientSettings, made
from turbopump.remoting.tls_contexts import TlsContexts
from turbopump.runtime.disk import SystemDisk


def init(*words: str) -> int:
    return main(["tls", "init", *words])


def servers(directory: Path) -> TlsContexts:
    loaded = broker_config.load(b"", {}, {"tlsConfigFile": str(directory / "server.properties")})
    return TlsContexts(loaded.config.tls, SystemDisk())


def test_servers_start_with_what_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(str(tmp_path / "tls"), "--host", "10.0.0.5") == 0
    contexts = servers(tmp_path / "tls")
    assert contexts.server is not None
    assert contexts.client is not None
    assert contexts.settings.mode == "enforcing"
    assert contexts.warnings == []
    printed = capsys.readouterr().out
    for words in ("server.properties", "client.toml", "-Dtls.config.file=", "ca-key.pem"):
        assert words in printed


def test_clients_by_name_make_the_servers_ask_for_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert init(str(tmp_path), "--client", "alice", "--client", "bob") == 0
    assert servers(tmp_path).settings.need_client_auth == "require"
    monkeypatch.setenv("TURBOPUMP_CONFIG", str(tmp_path / "bob.toml"))
    settings = made(ClientSettings, {}, discovery.defaults())
    assert settings.use_tls
    assert tls_context(settings).verify_mode == ssl.CERT_REQUIRED
    assert (tmp_path / "alice.properties").exists()


def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    init(str(tmp_path / "tls"), "--client", "alice")
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "tls").iterdir()} == {0o600}


def test_a_file_that_exists_is_not_overwritten_and_nothing_else_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server-key.pem").write_text("mine")
    assert init(str(tmp_path)) == 2
    assert "server-key.pem exists, and is not overwritten" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["server-key.pem"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--client", "../alice"), "must be letters"),
        (("--client", "ca"), "two files would be ca.pem"),
        (("--client", "server-key"), "two files would be server-key.pem"),
        (("--days", "0"), "must be days from 1"),
        (("--days", "36501"), "must be days from 1"),
    ],
)
def test_a_name_or_time_that_cannot_be_used_is_refused(
    words: tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = init(str(tmp_path), *words)
    except SystemExit as left:  # argparse leaves so
        status = left.code
    assert status == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_the_extra_the_command_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    assert init(str(tmp_path)) == 2
    assert "pip install 'turbopump[security]'" in capsys.readouterr().err
