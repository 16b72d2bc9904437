"""Every request body in every form that a client may write it in: our servers do what Apache's did."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop import body_variants, compare, peers, recordings, request_bodies
from tests.interop.allowed_bodies import BodyJudge
from tests.interop.clients import Answers

from turbopump.protocol import bodies

SOURCES = Path(bodies.__file__).parents[2]
NOT_SUPPORTED = 3

# Read by a server, but not out of a request or of a client's answer.
# Answers of a name server to a broker, and what slaves of ours tell their master.
FROM_ELSEWHERE = {"KVTable", "ClusterInfo", "GivenOffsets"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    with peers.start(peers.OURS, peers.place(tmp_path_factory.mktemp("ours"))) as cluster:
        yield request_bodies.observe(cluster)


def test_variants_of_bodies_do_what_they_did_to_apache(seen: Answers) -> None:
    judge = BodyJudge()
    newer, older = (recordings.load(request_bodies.RECORDED, server) for server in ("5.5.0", "4.9.7"))
    served = {kind: answers for kind, answers in seen.items() if _is_served(answers)}
    found = list(judge.unexpected(newer, older, served))
    assert not found, compare.listing(found)
    assert not judge.stale(), judge.stale()


def _is_served(answers: dict[str, dict[str, int]]) -> bool:
    """What is served at all is compared; the next test sees to it that nothing else is read."""
    return answers[body_variants.WHOLE]["code"] != NOT_SUPPORTED


def test_every_body_that_a_server_reads_has_variants(seen: Answers) -> None:
    read = _read_by("broker") | _read_by("namesrv")
    assert {"HeartbeatData", "RegisterBrokerBody", "LockBatchRequestBody", "DataVersion"} <= read
    with_variants = {kind.partition(" ")[0] for kind, answers in seen.items() if _is_served(answers)}
    assert read - FROM_ELSEWHERE == with_variants


def _read_by(role: str) -> set[str]:
    """The bodies that this role decodes out of a request or an answer: `X.decode(request.body)`."""
    found = set()
    for path in (SOURCES / role).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (name := _decoded(node)) is not None:
                found.add(name)
    return found


def _decoded(call: ast.Call) -> str | None:
    function = call.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return None
    if function.attr not in ("decode", "decode_compressed") or not call.args:
        return None
    from_the_wire = any(
        isinstance(part, ast.Attribute) and part.attr == "body" for part in ast.walk(call.args[0])
    ) or (isinstance(call.args[0], ast.Name) and call.args[0].id == "body")
    return function.value.id if from_the_wire and hasattr(bodies, function.value.id) else None
