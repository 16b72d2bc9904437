"""One store format: what Apache wrote opens in ours, what ours wrote opens in Apache's, stopped or killed.

A journey is Apache → ours → Apache on one directory, with a load at each of the first two stations.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from . import artifacts, peers, stores
from .stores import Acknowledged, Census

LOAD = 1200
ENDINGS = ("clean stop", "kill -9")


@dataclass(frozen=True)
class Journey:
    acknowledged_by_apache: list[Acknowledged]
    seen_in_ours: Census
    acknowledged_by_ours: list[Acknowledged]
    seen_in_apache: Census


JOURNEYS = [(version, ending) for version in artifacts.SERVERS for ending in ENDINGS]
every_journey = pytest.mark.parametrize("journey", JOURNEYS, indirect=True, ids="-".join)
calm_journeys = pytest.mark.parametrize(
    "journey", [journey for journey in JOURNEYS if journey[1] == "clean stop"], indirect=True, ids="-".join
)


@pytest.fixture(scope="module")
def journey(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    version, ending = request.param
    place = peers.place(tmp_path_factory.mktemp("journey"))
    by_apache = fill(stores.start(version, place), ending)
    seen_in_ours, by_ours = read_and_fill(stores.start(peers.OURS, place), ending)
    return Journey(by_apache, seen_in_ours, by_ours, read(stores.start(version, place)))


@every_journey
def test_ours_reads_every_message_that_apache_acknowledged(journey: Journey) -> None:
    assert stores.unread(journey.acknowledged_by_apache, journey.seen_in_ours) == []
    assert stores.holes(journey.seen_in_ours) == []


@every_journey
def test_ours_finds_every_message_by_id_and_by_key(journey: Journey) -> None:
    assert journey.seen_in_ours.not_found_by_id == []
    assert journey.seen_in_ours.not_found_by_key == []


@every_journey
def test_back_in_apache_every_message_is_as_it_was(journey: Journey) -> None:
    seen = journey.seen_in_apache
    before = journey.seen_in_ours.messages
    assert {place: seen.messages.get(place) for place in before} == before
    assert stores.unread(journey.acknowledged_by_ours, seen) == []
    assert stores.holes(seen) == []
    assert seen.not_found_by_id == []


@calm_journeys
def test_back_in_apache_every_message_is_found_by_key(journey: Journey) -> None:
    """Not after a kill: Apache drops its newest index file and reads the log only from its checkpoint on."""
    assert journey.seen_in_apache.not_found_by_key == []


@calm_journeys
def test_committed_offsets_travel_too(journey: Journey) -> None:
    """Not after a kill: they are written every five seconds."""
    assert journey.seen_in_ours.committed == stores.COMMITTED
    assert journey.seen_in_apache.committed == stores.COMMITTED


@pytest.fixture(scope="module")
def written_by_ours(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[peers.Place, list[Acknowledged]]:
    place = peers.place(tmp_path_factory.mktemp("ours"))
    return place, fill(stores.start(peers.OURS, place), request.param)


@pytest.mark.parametrize("written_by_ours", ENDINGS, indirect=True)
@pytest.mark.parametrize("version", artifacts.SERVERS)
def test_apache_opens_a_store_that_ours_made(
    version: str, written_by_ours: tuple[peers.Place, list[Acknowledged]], tmp_path: Path
) -> None:
    place, acknowledged = written_by_ours
    seen = read(stores.start(version, stores.copy(place, tmp_path)))
    assert stores.unread(acknowledged, seen) == []
    assert stores.holes(seen) == []
    assert seen.not_found_by_id == []
    assert seen.not_found_by_key == []


@pytest.mark.parametrize("written_by_ours", ["clean stop"], indirect=True)
def test_a_store_whose_first_file_is_gone_reads_alike(
    written_by_ours: tuple[peers.Place, list[Acknowledged]], tmp_path: Path
) -> None:
    """Retention has deleted the beginning: queues start above 0, and a pull from 0 is told where."""
    for_apache = without_first_file(stores.copy(written_by_ours[0], tmp_path / "apache"))
    for_ours = without_first_file(stores.copy(written_by_ours[0], tmp_path / "ours"))
    in_apache = read(stores.start("5.5.0", for_apache))
    in_ours = read(stores.start(peers.OURS, for_ours))
    assert min(bounds["min"] for bounds in in_apache.queues.values()) > 0
    assert in_ours.queues == in_apache.queues
    assert in_ours.messages == in_apache.messages


def without_first_file(place: peers.Place) -> peers.Place:
    min((place.store_dir / "commitlog").iterdir()).unlink()
    return place


def fill(cluster: peers.Cluster, ending: str) -> list[Acknowledged]:
    try:
        if ending == "kill -9":
            return stores.load_until_killed(cluster)
        acknowledged = stores.load(cluster, LOAD)
        cluster.stop()
        return acknowledged
    finally:
        cluster.kill()


def read_and_fill(cluster: peers.Cluster, ending: str) -> tuple[Census, list[Acknowledged]]:
    try:
        return stores.census(cluster), fill(cluster, ending)
    finally:
        cluster.kill()


def read(cluster: peers.Cluster) -> Census:
    try:
        return stores.census(cluster)
    finally:
        cluster.kill()
