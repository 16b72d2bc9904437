"""Brokers that encrypt what they send to each other: master and slave, a DLedger group, name servers."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.kit import virtual
from tests.unit.remoting.tls_kit import certificates
from tests.unit.replication.tls_kit import SecureWorld, conf

from turbopump.protocol.codes import ResponseCode
from turbopump.testing.network import _Transport

MASTER, SLAVE = "brokerRole=SYNC_MASTER\n", "brokerRole=SLAVE\nbrokerId=1\n"
SECRET = b"nobody on the way may read this"


@contextmanager
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Gives all that is written to any connection of the network, in pieces."""
    written: list[bytes] = []
    write = _Transport.write

    def noted(transport: _Transport, data: bytes) -> None:
        written.append(bytes(data))
        write(transport, data)

    with monkeypatch.context() as patched:
        patched.setattr(_Transport, "write", noted)
        yield written


def test_a_master_its_slave_and_the_name_server_say_nothing_in_clear_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @virtual
    async def main() -> None:
        async with SecureWorld() as world:
            master, slave = world.node(MASTER + conf()), world.node(SLAVE + conf())
            await master.start()
            await world.send(master, b"first")
            await slave.start()
            await world.copied(master, slave)
            answer = await world.send(master, SECRET)
            assert answer.code == ResponseCode.SUCCESS
            assert (answer.ext or {})["replicas"] == "2"
            assert (await world.pull(slave))[-1] == SECRET

    with wire(monkeypatch) as written:
        main()
    assert len(written) > 50
    assert {piece[0] for piece in written} <= {0x14, 0x15, 0x16, 0x17}, "all are records of TLS"
    assert not [piece for piece in written if SECRET in piece]


def test_a_group_elects_and_replicates_in_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    @virtual
    async def main() -> None:
        async with SecureWorld() as world:
            await world.start(conf())
            leader = await world.leader()
            assert (await world.send(leader, SECRET)).code == ResponseCode.SUCCESS
            await world.equal()
            await leader.kill()
            successor = await world.leader()
            assert await world.pull(successor) == [SECRET]

    with wire(monkeypatch) as written:
        main()
    assert {piece[0] for piece in written} <= {0x14, 0x15, 0x16, 0x17}
    assert not [piece for piece in written if SECRET in piece]


@virtual
async def test_a_plain_slave_gets_nothing_from_a_master_that_enforces_tls() -> None:
    async with SecureWorld() as world:
        master = world.node(MASTER + conf())
        plain = world.node(f"{SLAVE}haMasterAddress={master.ip}:10912\n")
        await master.start()
        await world.send(master, SECRET)
        await plain.start()
        await plain._pair.clock.sleep(30)
        assert plain.store.log.end == 0


def test_a_named_peer_is_replicated_in_clear_text_and_a_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with an Apache slave: its requests can be encrypted, its replication cannot."""

    @virtual
    async def main() -> None:
        async with SecureWorld() as world:
            master = world.node(MASTER + conf(tlsPlainPeers="10.0.0.2"))
            slave = world.node(SLAVE + conf(tlsPlainPeers="10.0.0.1"))
            await master.start()
            await world.send(master, b"first")
            await slave.start()
            await world.copied(master, slave)
            assert (await world.send(master, SECRET)).code == ResponseCode.SUCCESS

    with caplog.at_level(logging.WARNING):
        main()
    assert "replication and DLedger are not encrypted with 10.0.0.2" in caplog.text


@virtual
async def test_a_broker_goes_on_with_new_certificates() -> None:
    async with SecureWorld() as world:
        master, slave = world.node(MASTER + conf()), world.node(SLAVE + conf())
        await master.start()
        await world.send(master, b"first")
        await slave.start()
        await world.copied(master, slave)
        made = certificates()
        for node in (master, slave):
            node.disk.write("/pem/cert", made.other.cert)
            node.disk.write("/pem/key", made.other.key)
        await world.clock.sleep(1)
        await slave.stop()
        await slave.start()
        assert (await world.send(master, b"after")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        await world.copied(master, slave)
        assert (await world.send(master, b"later")).code == ResponseCode.SUCCESS


def test_a_broker_that_enforces_tls_and_dials_without_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @virtual
    async def main() -> None:
        async with SecureWorld() as world:
            await world.node(conf(tlsEnable="false")).start()

    main()
    assert "but tlsEnable=false" in caplog.text


@virtual
async def test_a_broker_without_tls_does_not_register_with_a_name_server_that_enforces_it() -> None:
    async with SecureWorld() as world:
        plain, secure = world.node("brokerName=plain\n"), world.node(conf(brokerName="secure"))
        await plain.start()
        await secure.start()
        names = world.name_server._routes.clusters().brokerAddrTable
        assert set(names) == {"secure"}
