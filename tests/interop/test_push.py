"""Push consumers on our servers and on Apache's: equal answers.

All clients run at once against one broker: the scenarios mostly wait for timers of the clients. The reference
is the recording of Apache 5.5.0, see test_scenarios; some pairs are asked again each time, `-m long` all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from tests import again

from . import compare, peers, push, recordings
from .allowed import ALLOWED_PUSH, Judge
from .clients import Answers
from .conftest import Early

AskOnce = Callable[[str, tuple[str, ...]], dict[str, Future[Answers]]]

VARIES = {("push-go", "5.5.0"): "joining and leaving / two more leave"}
"""Apache's Go client at Apache's server hears of the second of two members that leave at once, or not before
it rebalances by itself: both were seen with nothing else running. Ours is held to the recording."""

_judge = Judge(ALLOWED_PUSH)
_compared: set[str] = set()


@pytest.fixture(scope="module")
def ask_once(tmp_path_factory: pytest.TempPathFactory) -> AskOnce:
    asked: dict[tuple[str, tuple[str, ...]], dict[str, Future[Answers]]] = {}

    def ask(kind: str, names: tuple[str, ...]) -> dict[str, Future[Answers]]:
        if (kind, names) not in asked:
            asked[kind, names] = push.ask_all(names, kind, tmp_path_factory.mktemp("push"))
        return asked[kind, names]

    return ask


@pytest.mark.parametrize("client", push.CLIENTS)
def test_our_servers_treat_push_consumers_as_apache_did(client: str, ask_once: AskOnce) -> None:
    recorded, older = (recordings.load(client, server) for server in (recordings.REFERENCE, recordings.OLDER))
    seen = ask_once(peers.OURS, push.CLIENTS)[client].result()
    _compared.add(client)
    unexpected = _judge.unexpected(recorded, older, seen)
    assert not unexpected, compare.listing(unexpected)


def test_every_allowed_difference_of_push_consumers_is_still_needed() -> None:
    if _compared != set(push.CLIENTS):
        pytest.skip("needs the answers of every client in this session")
    assert not _judge.stale(), "\n".join(_judge.stale())


@pytest.mark.parametrize(
    ("client", "server"),
    [pytest.param(*pair, marks=pytest.mark.early(f"push-{pair[1]}")) for pair in push.LIVE_PAIRS],
)
def test_apache_still_treats_push_consumers_as_recorded(
    client: str, server: str, early: Early, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client may be late beside the other tests: then it is asked once more, alone, and the run says so."""
    answers: dict[str, Future[Answers]] = early(f"push-{server}")
    found = changed(client, server, answers[client].result(), capsys)
    if found:
        again.record(f"{client} at {server} differed from the recording", compare.listing(found))
        found = changed(client, server, push.ask_all([client], server, tmp_path)[client].result(), capsys)
    assert not found, compare.listing(found) + "\nIf Apache is right: make record"


def changed(
    client: str, server: str, seen: Answers, capsys: pytest.CaptureFixture[str]
) -> list[compare.Difference]:
    """Prints the differences from the recording, and returns those that do not come and go."""
    found = list(compare.differences(recordings.load(client, server), seen))
    if found:
        with capsys.disabled():
            print(f"\n{client} at {server}: {compare.listing(found)}")
    varies = VARIES.get((client, server))
    return [one for one in found if varies is None or not one.path.startswith(varies)]


@pytest.mark.long
@pytest.mark.parametrize(("client", "server"), [pair for pair in push.PAIRS if pair not in push.LIVE_PAIRS])
def test_apache_still_treats_the_others_as_recorded(client: str, server: str, ask_once: AskOnce) -> None:
    names = tuple(name for name, at in push.PAIRS if at == server and (name, at) not in push.LIVE_PAIRS)
    expect_as_recorded(client, server, ask_once(server, names)[client].result())


def expect_as_recorded(client: str, server: str, seen: Answers) -> None:
    found = list(compare.differences(recordings.load(client, server), seen))
    assert not found, compare.listing(found) + "\nIf Apache is right: make record"


def ask_live(server: str) -> Callable[[Path], dict[str, Future[Answers]]]:
    names = [client for client, at in push.LIVE_PAIRS if at == server]
    return lambda home: push.ask_all(names, server, home)


EARLY = {f"push-{server}": ask_live(server) for _, server in push.LIVE_PAIRS}
