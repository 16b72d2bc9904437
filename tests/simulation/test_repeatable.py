"""A seed gives the same run whatever ran in the process before it: no real time, no order of addresses."""

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from tests.simulation import cluster, delays, dledger, globals, ledger, timers, transactions

from turbopump.broker.delay import levels, timer_recovery
from turbopump.broker.delay import timers as broker_timers
from turbopump.broker.transactions import checks, recovery
from turbopump.store import retention, timer_wheel

SEED_WITH_ONE_HOUR = 65  # its files expire at one hour of the day only, or when an operator asks
SEED = 6  # has retention in the world `cluster`


def _events(run: Callable[[int], object], seed: int) -> str:
    """Returns a digest of all that the event loop did: when, and what.

    Loops of other threads do not count: one of an earlier test may still run.
    """
    digest, run_handle = hashlib.sha256(), asyncio.Handle._run  # type: ignore[attr-defined]
    this_thread = threading.get_ident()

    def note(handle: asyncio.Handle) -> None:
        if threading.get_ident() == this_thread:
            callback = handle._callback  # type: ignore[attr-defined]
            owner = getattr(callback, "__self__", None)
            what = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
            digest.update(f"{handle._loop.time()} {getattr(what, '__qualname__', '')}\n".encode())  # type: ignore[attr-defined]
        run_handle(handle)

    with mock.patch.object(asyncio.Handle, "_run", note):
        run(seed)
    return digest.hexdigest()


@pytest.mark.parametrize("world", [ledger, cluster, dledger, globals])
def test_a_seed_is_the_same_run_again(world: object) -> None:
    run: Callable[[int], object] = world.run  # type: ignore[attr-defined]
    first = _events(run, SEED)
    kept = [bytearray(17 * size % 4_000) for size in range(20_000)]  # objects get other addresses
    del kept[::3]
    assert _events(run, SEED) == first


@pytest.fixture
def time_zone() -> Iterator[Callable[[str], None]]:
    """Sets the time zone of this process for a test."""
    before = os.environ.get("TZ")

    def set_to(name: str | None) -> None:
        os.environ.pop("TZ", None)
        if name is not None:
            os.environ["TZ"] = name
        time.tzset()

    yield set_to
    set_to(before)


def test_a_seed_with_hours_of_retention_is_the_same_run_in_every_time_zone(
    time_zone: Callable[[str], None],
) -> None:
    """Files expire at an hour of the local day, which is set as a distance from that of the start."""
    runs = []
    for name in ("UTC", "Asia/Kolkata"):
        time_zone(name)
        runs.append(_events(cluster.run, SEED_WITH_ONE_HOUR))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "run", [delays.run, timers.run, transactions.run, ledger.run, cluster.run, dledger.run]
)
def test_a_world_leaves_the_constants_as_they_were(run: Callable[[int], object]) -> None:
    modules = (levels, broker_timers, timer_recovery, checks, recovery, timer_wheel, retention)

    def constants() -> list[dict[str, object]]:
        return [{name: value for name, value in vars(one).items() if name.isupper()} for one in modules]

    before = constants()
    run(SEED)
    assert constants() == before
