"""How soon a slave finds and dials its master: at once when it can, then at growing intervals."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import NAME_SERVER, PORT, Node, Pair, pair
from tests.unit.replication.slave_kit import ADDRESS, Bench, log_of
from tests.unit.store.replica_kit import bytes_of

from turbopump.broker.registration import NameServerRegistration
from turbopump.broker.replicas.slave_broker import MAX_REFRESH_S
from turbopump.protocol.codes import ResponseCode
from turbopump.replication.comparison import CannotCompare, Verdict
from turbopump.replication.dial_delay import FIRST_S, MAX_S, DialDelay
from turbopump.replication.slave import TICK_S, MasterAddress, SlaveState

MASTER = "brokerRole=SYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"
FIXED = f"{SLAVE}haMasterAddress=10.0.0.1:{PORT + 1}\n"
SOON_S = 0.05  # a few exchanges of messages in memory


async def seconds_until_counted(world: Pair, master: Node) -> float:
    """Returns how long it takes until a send is answered SUCCESS, as a producer sees it."""
    began = world.clock.monotonic()
    async with asyncio.timeout(60):
        while (await world.send(master, b"x")).code == ResponseCode.SLAVE_NOT_AVAILABLE:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
    return world.clock.monotonic() - began


@pytest.mark.parametrize("conf", [SLAVE, FIXED], ids=["by name server", "by address"])
@virtual
async def test_a_slave_that_starts_after_its_master_counts_at_once(conf: str) -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(conf)
        await master.start()
        await slave.start()
        assert await seconds_until_counted(world, master) < SOON_S


@pytest.mark.parametrize("early_s", [0.05, 0.3, 1.0])
@virtual
async def test_a_slave_pauses_at_most_twice_as_long_as_it_has_waited_already(early_s: float) -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await slave.start()
        await asyncio.sleep(early_s)
        await master.start()
        assert await seconds_until_counted(world, master) < 2 * (FIRST_S + early_s) + SOON_S


@virtual
async def test_a_slave_that_has_waited_long_asks_the_name_servers_as_often_as_before() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await slave.start()
        await asyncio.sleep(60)
        await master.start()
        assert await seconds_until_counted(world, master) < MAX_REFRESH_S + MAX_S + SOON_S


@virtual
async def test_a_slave_with_a_fixed_master_dials_it_soon_after_its_start() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(FIXED)
        await slave.start()
        await asyncio.sleep(60)
        await master.start()
        assert await seconds_until_counted(world, master) < MAX_S + SOON_S


ALONE = "namesrvAddr=\n"


@virtual
async def test_a_slave_without_a_name_server_finds_a_master_with_the_usual_ports() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER + ALONE), world.node(FIXED + ALONE)
        await master.start()
        await slave.start()
        assert await seconds_until_counted(world, master) < SOON_S


@virtual
async def test_a_slave_that_only_guesses_the_main_port_of_its_master_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It compares the logs over that port: with another haListenPort, the master seemed not to answer."""
    async with pair() as world:
        master = world.node(f"{MASTER}{ALONE}haListenPort=20001\n")
        slave = world.node(f"{SLAVE}{ALONE}haMasterAddress=10.0.0.1:20001\n")
        await master.start()
        await slave.start()
        await asyncio.sleep(10)
        words = "10.0.0.1:20000 is a guess: no name server has told where the master"
        assert words in slave.slave.trouble
        assert "set namesrvAddr on both" in slave.slave.trouble
        assert caplog.text.count(words) == 1
        named = f"namesrvAddr={NAME_SERVER}\n"
        await master.stop()
        await slave.stop()
        await master.start(f"{MASTER}{named}haListenPort=20001\n")
        await slave.start(f"{SLAVE}{named}haMasterAddress=10.0.0.1:20001\n")
        assert await seconds_until_counted(world, master) < 1 + MAX_S


@virtual
async def test_a_master_that_returns_has_its_slave_again_soon() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await slave.start()
        await world.until(lambda: slave.slave.state is SlaveState.FOLLOWING)
        await master.kill()
        await asyncio.sleep(30)
        await master.start()
        assert await seconds_until_counted(world, master) < MAX_S + SOON_S


@virtual
async def test_questions_to_the_name_servers_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, refresh = list[float](), NameServerRegistration.refresh
    async with pair() as world:

        def counted(registration: NameServerRegistration) -> None:
            asked.append(world.clock.monotonic())
            refresh(registration)

        monkeypatch.setattr(NameServerRegistration, "refresh", counted)
        await world.node(SLAVE).start()
        await asyncio.sleep(60)
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert pauses[:2] == pytest.approx([0.1, 0.2])
    assert all(pause >= MAX_REFRESH_S for pause in pauses[5:])
    assert max(pauses) <= MAX_REFRESH_S + MAX_S


# the slave alone


def test_the_delay_doubles_up_to_a_bound_and_begins_again_after_a_success() -> None:
    delay = DialDelay()
    found = [delay.next_s() for _ in range(5)]
    assert found == pytest.approx([0.1, 0.2, 0.4, MAX_S, MAX_S])
    delay.reset()
    assert delay.next_s() == FIRST_S


@virtual
async def test_a_master_that_does_not_answer_is_dialled_at_growing_intervals() -> None:
    bench, dials = Bench(log_of()), list[float]()

    def silent() -> Verdict:
        dials.append(bench.clock.monotonic())
        raise CannotCompare("the master at x cannot be asked: refused")

    bench.verdict = silent
    async with bench:
        began = bench.clock.monotonic()
        await asyncio.sleep(2.05)
    assert [at - began for at in dials] == pytest.approx([0, 0.1, 0.3, 0.7, 1.2, 1.7])


@virtual
async def test_news_of_the_master_end_the_pause() -> None:
    bench, address = Bench(log_of()), list[MasterAddress]()
    bench.address = lambda: address[0] if address else None
    async with bench:
        await asyncio.sleep(10)
        assert bench.slave.state is SlaveState.SEARCHING
        address.append(ADDRESS)
        bench.slave.dial_now()
        await asyncio.sleep(0.01)
        assert bench.slave.state is SlaveState.COPYING


@virtual
async def test_a_master_that_closes_every_connection_is_not_dialled_more_often_than_each_second() -> None:
    async with Bench(log_of()) as bench:
        for count in range(1, 20):
            (await bench.connected(count)).transport.close()
        assert bench.clock.monotonic() >= 18


@virtual
async def test_a_slave_that_followed_dials_again_soon_after_the_connection_ends() -> None:
    async with Bench(log_of()) as bench:
        master = await bench.connected()
        master.send(0, bytes_of(bench.log))
        await bench.until(SlaveState.FOLLOWING)
        ended = bench.clock.monotonic()
        master.transport.close()
        await bench.connected(2)
        assert bench.clock.monotonic() - ended < TICK_S + FIRST_S + SOON_S
