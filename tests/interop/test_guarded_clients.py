"""Apache's clients, signed, against guarded servers of ours: Java over mutual TLS, Go, which knows no TLS, without.

Each runs the scenarios whose answers Apache's servers have given to the same client, unsigned and without
TLS: signatures, rights and encryption change no answer. What the recordings cannot have, the users of this
cluster, is in ALLOWED_GUARDED.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import artifacts, clients, compare, guarded, recordings
from .allowed import ALLOWED, Allowed, Judge
from .guarded import GuardedCluster

ALLOWED_GUARDED = (
    Allowed(
        "dashboard: access / *",
        "the recorded server has no access control, which answers requests about users with an error",
        recorded="{'failure': 'MQBrokerException'*",
    ),
)
BRIEF = ("send sync", "send batch", "pull, tags", "offset by time", "query by key", "push")
JAVA = tuple(f"java-{version}" for version in artifacts.JAVA_CLIENTS)
DASHBOARD = f"dashboard-{artifacts.DASHBOARD}"
CORE = "java-5.5.0"

_judge = Judge((*ALLOWED, *ALLOWED_GUARDED))


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return guarded.certificates(tmp_path_factory.mktemp("pem"))


@pytest.fixture(scope="module")
def encrypted(pem: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedCluster]:
    cluster = guarded.start(tmp_path_factory.mktemp("encrypted"), pem)
    yield cluster
    cluster.discard()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedCluster]:
    cluster = guarded.start(tmp_path_factory.mktemp("plain"))
    yield cluster
    cluster.discard()


def compare_answers(
    client: str, cluster: GuardedCluster, work: Path, only: tuple[str, ...] = ()
) -> clients.Answers:
    """Runs scenarios as the super user, and fails where an answer is not Apache's; returns the answers."""
    recorded, older = (recordings.load(client, server) for server in (recordings.REFERENCE, recordings.OLDER))
    signed = cluster.environment(guarded.ROOT)
    seen = clients.run_scenarios(client, cluster, work, only, signed)
    if only:
        recorded, older = ({name: answers[name] for name in only} for answers in (recorded, older))
    found = _judge.unexpected(recorded, older, seen)
    assert not found, compare.listing(found)
    assert list(seen) == list(recorded)
    return seen


def test_a_signing_java_client_gets_apaches_answers_over_mutual_tls_in_brief(
    encrypted: GuardedCluster, tmp_path: Path
) -> None:
    compare_answers(CORE, encrypted, tmp_path, BRIEF)


@pytest.mark.parametrize("client", JAVA)
def test_a_signing_java_client_gets_apaches_answers_over_mutual_tls(
    client: str, encrypted: GuardedCluster, tmp_path: Path
) -> None:
    compare_answers(client, encrypted, tmp_path)


def test_the_dashboard_signs_over_mutual_tls_and_manages_users(
    encrypted: GuardedCluster, tmp_path: Path
) -> None:
    managed = compare_answers(DASHBOARD, encrypted, tmp_path)["dashboard: access"]
    assert (managed["createUser"], managed["deleteUser"]) == ("created", "deleted")
    assert not [secret for _, secret in (guarded.ROOT, guarded.INNER) if secret in str(managed)]


def test_a_signing_go_client_gets_apaches_answers(plain: GuardedCluster, tmp_path: Path) -> None:
    compare_answers(clients.GO, plain, tmp_path)
