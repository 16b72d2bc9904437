"""Apache's Java clients over TLS, with a certificate of their own, toward servers of ours that demand it.

The certificates and settings files are those of `turbopump tls init`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbopump.cli.main import main

from . import clients, peers, processes

ROUNDS, QUEUES, MESSAGES = 2, 4, 10
VERSIONS = ("4.9.8", "5.5.0")


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    assert main(["tls", "init", str(directory), "--client", "alice"]) == 0
    return directory


@pytest.fixture(scope="module")
def place(pem: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.Place]:
    where = peers.place(tmp_path_factory.mktemp("server"))
    ports = ["--namesrv-port", str(where.namesrv_port), "--broker-port", str(where.broker_port)]
    command = ["up", "--tls", str(pem / "server.properties"), "--data", str(where.home), *ports]
    server = processes.Server([sys.executable, "-m", "turbopump", *command], where.home / "up.log")
    server.wait_ready("is ready")
    yield where
    server.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_client_sends_and_consumes_over_mutual_tls(
    version: str, pem: Path, place: peers.Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = f"-Dtls.enable=true -Dtls.config.file={pem / 'alice.properties'}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    sizes = [str(number) for number in (ROUNDS, QUEUES, MESSAGES)]
    where = [place.namesrv, place.broker_addr, clients.prefix()]
    printed = clients.run_java(
        f"java-{version}", clients.FIRST_MESSAGES, [*where, *sizes, "true"], tmp_path
    ).splitlines()
    assert f"rounds {ROUNDS}" in printed
    assert not [line for line in printed if line.startswith("lost")]
