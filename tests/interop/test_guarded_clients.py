"""Apache's clients, signed, at guarded servers of ours: Java over mutual TLS, Go, which has no TLS, without.

Each runs the scenarios whose answers Apache's servers have given to the same client, unsigned and without
TLS: signatures, rights and encryption change no answer. What the recordings cannot have, the users of this
cluster, is in ALLOWED_GUARDED.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import artifacts, clients, compare, guarded, processes, recordings
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


@pytest.mark.parametrize(
    "client", [pytest.param(one, marks=() if one in JAVA[:1] else pytest.mark.long) for one in JAVA]
)
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


@pytest.mark.parametrize(
    "version",
    [pytest.param(one, marks=() if one == "4.5.1" else pytest.mark.long) for one in artifacts.JAVA_CLIENTS],
)
def test_a_java_client_over_mutual_tls_has_the_rights_of_its_signature_or_else_of_its_certificate(
    version: str, encrypted: GuardedCluster, tmp_path: Path
) -> None:
    number = version.replace(".", "")
    hers, his = f"hers{number}", f"his{number}"
    guarded.grant(encrypted, guarded.CERTIFIED, "unused-secret", [f"Topic:{hers}", f"Group:{hers}"])
    guarded.grant(encrypted, *guarded.APP, [f"Topic:{his}", f"Group:{his}"])
    with encrypted.admin() as admin:
        for topic in (hers, his):
            admin.topics.create(topic, queues=2)

    def outcome(who: guarded.Credentials, topic: str) -> list[str]:
        return run_signing(version, encrypted, who, topic, tmp_path)

    unsigned = ("", "")
    assert outcome(unsigned, hers) == ["sent", "consumed true", "found 1"]
    assert outcome(guarded.APP, his) == ["sent", "consumed true", "found 1"]
    assert f"User:{guarded.CERTIFIED} has no permission to access Topic:{his}" in outcome(unsigned, his)[0]
    assert f"User:{guarded.APP[0]} has no permission to access Topic:{hers}" in outcome(guarded.APP, hers)[0]
    assert "check signature failed" in outcome((guarded.APP[0], "guessed"), his)[0]


def run_signing(
    version: str, cluster: GuardedCluster, who: guarded.Credentials, topic: str, work: Path
) -> list[str]:
    """Runs Signing.java with a topic and a group of one name; returns the lines about what happened."""
    java = artifacts.tool("java", f"Java client {version}")
    options = [*artifacts.JAVA_OPTIONS, f"-Duser.home={work}", f"-Drocketmq.client.logRoot={work}"]
    command = [java, *options, "-cp", artifacts.access_programs(version), "Signing", cluster.namesrv]
    log = work / "signing.log"
    processes.run([*command, *who, topic, topic], log, clients.TIMEOUT_S, cluster.environment(None))
    words = ("sent", "consumed", "found", "failed")
    return [line for line in log.read_text().splitlines() if line.startswith(words)]
