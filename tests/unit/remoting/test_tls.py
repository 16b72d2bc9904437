"""TLS over the network in memory: what is accepted, what is closed, and when."""

import asyncio
import ssl
from typing import cast

import pytest
from tests.kit import virtual
from tests.unit.remoting.kit import asked, commands, turn
from tests.unit.remoting.server_kit import Peer
from tests.unit.remoting.tls_kit import HOST, TlsFiles, certificates, client_context
from tests.unit.remoting.tls_scene import Scene, SecurePeer, ask, scene

from turbopump.protocol.command import Command
from turbopump.remoting import pending
from turbopump.remoting.client import Client
from turbopump.remoting.pending import PendingConnections
from turbopump.remoting.router import Answer, Route, Router
from turbopump.remoting.server import Server
from turbopump.remoting.tls import networks_of
from turbopump.remoting.tls_layer import TlsLayer
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork, NetworkConditions

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the beginning of a ClientHello of 512 bytes


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
@virtual
async def test_a_client_with_tls_is_answered(mode: str) -> None:
    server = await scene(mode)
    assert (await ask(await server.secure())).body == b"hello"
    assert len(server.pending) == 0


@virtual
async def test_a_permissive_port_takes_plain_clients_too_and_gives_them_the_bare_transport() -> None:
    server = await scene()
    peer = await server.plain()
    assert (await ask(peer)).body == b"hello"
    assert (await ask(peer)).body == b"hello"
    (connection,) = server.server.connections
    assert connection._transport._protocol is connection  # type: ignore[union-attr]
    assert connection.reads == 2


@virtual
async def test_an_enforcing_port_closes_plain_clients_without_an_answer() -> None:
    server = await scene("enforcing")
    peer = await server.plain()
    peer.transport.write(asked(1))
    await peer.lost
    assert peer.got == b""
    assert not server.server.connections


@virtual
async def test_named_peers_are_admitted_without_tls() -> None:
    server = await scene("enforcing", plain_peers=("10.0.0.0/24",))
    named, other = await server.plain("10.0.0.9"), await server.plain("10.0.1.9")
    assert (await ask(named)).body == b"hello"
    other.transport.write(asked(1))
    await other.lost


@pytest.mark.parametrize("segment", [1, 7, 1000])
def test_a_handshake_and_requests_in_pieces_of_any_size_are_the_same(segment: int) -> None:
    @virtual
    async def main() -> None:
        server = await scene()
        server.below.conditions = NetworkConditions(segment=segment)
        peer = await server.secure()
        assert (await ask(peer, bytes(range(256)) * 100)).body == bytes(range(256)) * 100

    main()


@virtual
async def test_an_answer_larger_than_a_record_arrives_whole() -> None:
    server = await scene()
    body = bytes(range(256)) * 8000
    assert (await ask(await server.secure(), body)).body == body


@virtual
async def test_requests_that_come_in_one_read_event_are_served_in_one_pass() -> None:
    server = await scene()
    peer = await server.secure()
    peer.transport.write(asked(1) * 500)
    await asyncio.sleep(1)
    (connection,) = server.server.connections
    assert (len(commands(peer.got)), connection.reads) == (500, 1)


@virtual
async def test_both_ends_may_end_a_connection() -> None:
    server = await scene()
    leaving, staying = await server.secure(), await server.secure()
    await ask(leaving)
    leaving.transport.close()
    await asyncio.sleep(1)
    assert len(server.server.connections) == 1
    await server.server.stop(0)
    await staying.lost
    assert staying.error is None


@virtual
async def test_what_a_peer_sends_after_its_close_notify_is_not_served() -> None:
    server = await scene()
    peer = await server.secure()
    layer = cast(TlsLayer, peer.transport)
    layer.close()
    layer._below.write(b"junk after the end")  # type: ignore[union-attr]
    await peer.lost
    await turn()
    assert not server.server.connections


@virtual
async def test_a_broken_record_ends_the_connection() -> None:
    server = await scene()
    peer = await server.secure()
    cast(TlsLayer, peer.transport)._below.write(b"\x17\x03\x03\x00\x20" + bytes(32))  # type: ignore[union-attr]
    await peer.lost
    assert not server.server.connections


@virtual
async def test_a_peer_that_does_not_read_is_bounded_as_a_plain_one() -> None:
    server = await scene()
    peer = await server.secure()
    peer.transport.pause_reading()
    (connection,) = server.server.connections
    for _ in range(200):
        peer.transport.write(asked(1, body=bytes(100_000)))
        await asyncio.sleep(0.1)
    assert connection.saturated
    assert connection.unread < 4 << 20
    peer.transport.resume_reading()
    await asyncio.sleep(5)
    assert len(commands(peer.got)) == 200


# Certificates of clients

MUTUAL = {"need_client_auth": "require", "trust_path": "/pem/ca"}


@virtual
async def test_the_user_of_a_verified_certificate_is_known() -> None:
    server = await scene("enforcing", **MUTUAL)
    peer = await server.secure(client_context(certificates().client))
    assert (await ask(peer)).remark == "alice"


@virtual
async def test_a_client_without_a_certificate_is_nobody_where_it_is_optional() -> None:
    server = await scene("permissive", **{**MUTUAL, "need_client_auth": "optional"})
    assert not (await ask(await server.secure())).remark
    assert not (await ask(await server.plain())).remark
    shown = await server.secure(client_context(certificates().client))
    assert (await ask(shown)).remark == "alice"


@virtual
async def test_a_certificate_that_is_not_asked_for_names_nobody() -> None:
    server = await scene()
    peer = await server.secure(client_context(certificates().client))
    assert not (await ask(peer)).remark


@pytest.mark.parametrize("who", ["nobody", "stranger", "expired"])
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("needed", ["require", "optional"])
def test_a_certificate_that_is_missing_foreign_or_expired_does_not_get_in(
    who: str, version: str, needed: str
) -> None:
    if (who, needed) == ("nobody", "optional"):
        return

    @virtual
    async def main() -> None:
        server = await scene("permissive", **{**MUTUAL, "need_client_auth": needed})
        made = certificates()
        context = client_context({"stranger": made.stranger, "expired": made.expired}.get(who))
        context.maximum_version = ssl.TLSVersion[version]
        peer = await server.secure(context)
        if peer.ready.done() and not peer.lost.done():
            peer.transport.write(asked(1))
        await peer.lost
        assert isinstance(peer.error, ssl.SSLError)
        assert peer.got == b""
        assert not server.server.connections

    main()


@virtual
async def test_a_client_that_trusts_another_authority_leaves() -> None:
    server = await scene()
    peer = await server.secure(client_context(trust=certificates().stranger_root.cert))
    assert isinstance(peer.error, ssl.SSLCertVerificationError)
    await asyncio.sleep(1)
    assert len(server.pending) == 0


@virtual
async def test_older_versions_of_tls_are_refused() -> None:
    server = await scene(protocols=("TLSv1.3",))
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    peer = await server.secure(context)
    assert "ALERT_PROTOCOL_VERSION" in str(peer.error)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_session_is_resumed_with_the_user_that_it_had(version: str) -> None:
    @virtual
    async def main() -> None:
        server = await scene("enforcing", **MUTUAL)
        context = client_context(certificates().client)
        context.maximum_version = ssl.TLSVersion[version]
        first = await server.secure(context)
        await ask(first)
        session = cast(TlsLayer, first.transport).ssl_object.session
        peer = SecurePeer()
        layer = TlsLayer(context, lambda _: peer, peer.failed, server_hostname=HOST)
        layer.ssl_object.session = session
        await server.below.connect(lambda: layer, HOST, server.port)
        await peer.ready
        assert layer.ssl_object.session_reused
        assert (await ask(peer)).remark == "alice"

    main()


@virtual
async def test_a_new_certificate_is_for_new_connections_and_old_ones_go_on() -> None:
    server = await scene()
    old = await server.secure()
    made = certificates()
    server.files.write(cert=made.other.cert, key=made.other.key)
    server.contexts.look()
    new = await server.secure()
    shown = [cast(TlsLayer, one.transport).ssl_object.getpeercert(True) for one in (old, new)]
    assert shown == [ssl.PEM_cert_to_DER_cert(one.cert.decode()) for one in (made.server, made.other)]
    assert (await ask(old)).body == (await ask(new)).body


# Peers that stop halfway


@virtual
async def test_half_a_hello_is_closed_after_ten_seconds() -> None:
    server = await scene()
    peer = await server.plain()
    peer.transport.write(HELLO)
    assert await peer.lost == pytest.approx(10, abs=0.1)
    assert len(server.pending) == 0


@virtual
async def test_a_hello_that_comes_in_drops_is_closed_too() -> None:
    server = await scene()
    peer = await server.plain()
    for at in range(len(HELLO)):
        peer.transport.write(HELLO[at : at + 1])
        await asyncio.sleep(2)
    assert peer.lost.done()


@virtual
async def test_a_silent_connection_is_closed_after_half_a_minute() -> None:
    server = await scene()
    peer = await server.plain()
    assert await peer.lost == pytest.approx(30, abs=0.1)


@virtual
async def test_200_silent_connections_leave_place_for_one_that_speaks() -> None:
    server = await Scene(TlsFiles.of(), "permissive", max_silent=100).start()
    silent = [await server.plain() for _ in range(200)]
    assert len(server.pending) == 100
    assert (await ask(await server.plain())).body == b"hello"
    assert (await ask(await server.secure())).body == b"hello"
    assert all(peer.lost.done() for peer in silent[:100])


@virtual
async def test_half_handshakes_leave_place_for_whole_ones() -> None:
    server = await Scene(TlsFiles.of(), "permissive", max_handshakes=50).start()
    halves = [await server.plain() for _ in range(80)]
    for peer in halves:
        peer.transport.write(HELLO)
    await turn(10)
    assert len(server.pending) == 50
    assert (await ask(await server.secure())).body == b"hello"
    assert sum(peer.lost.done() for peer in halves) == 31  # those that began first, and one for the last
    await asyncio.sleep(pending.HANDSHAKE_TIMEOUT_S)
    assert len(server.pending) == 0


@virtual
async def test_what_is_no_handshake_after_its_first_byte_is_closed_at_once() -> None:
    server = await scene()
    peer = await server.plain()
    peer.transport.write(b"\x16" + bytes(range(100)))
    assert await peer.lost < 1
    assert len(server.pending) == 0


@virtual
async def test_a_server_that_stops_closes_what_is_pending() -> None:
    server = await scene()
    silent, half = await server.plain(), await server.plain()
    half.transport.write(HELLO)
    await turn()
    await server.server.stop(0)
    await silent.lost
    await half.lost
    assert len(server.pending) == 0


@virtual
async def test_no_descriptor_bound_is_larger_than_a_part_of_all() -> None:
    assert pending.MAX_SILENT <= 1024
    assert PendingConnections()._silent._bound <= pending.MAX_SILENT


# Dialling


async def dialling(server: Scene, **changes: object) -> Client:
    settings = {"cert_path": "", "enabled": True, "client_trust_path": "/pem/ca", **changes}
    networks = networks_of(TlsFiles.of(**settings).settings, server.below, server.files.disk)
    return Client(networks.requests, VirtualClock())


@virtual
async def test_a_server_dials_another_one_with_its_certificate() -> None:
    server = await scene("enforcing", **MUTUAL)
    server.files.write(mine=certificates().server.cert, mykey=certificates().server.key)
    client = await dialling(server, client_cert_path="/pem/mine", client_key_path="/pem/mykey")
    answer = await client.call(f"{HOST}:{server.port}", Command(1))
    assert answer.remark == "broker"
    await client.close()


@virtual
async def test_a_server_that_cannot_be_verified_is_not_dialled() -> None:
    server = await scene("enforcing")
    server.files.write(ca=certificates().stranger_root.cert)
    client = await dialling(server)
    with pytest.raises(ssl.SSLCertVerificationError):
        await client.call(f"{HOST}:{server.port}", Command(1))
    await client.close()


@virtual
async def test_dialling_a_plain_server_with_tls_fails_in_time() -> None:
    below = MemoryNetwork()
    plain = Server(Router({1: Route(None, lambda _: Answer())}), below, VirtualClock())
    port = await plain.start(HOST, 0)
    server = Scene(TlsFiles.of(), "permissive")
    server.below = below
    client = await dialling(server)
    with pytest.raises(OSError, match="TLS handshake"):
        await client.call(f"{HOST}:{port}", Command(1))
    await client.close()
    await plain.stop(0)


@virtual
async def test_a_handshake_that_does_not_end_is_given_up_by_the_one_who_dials() -> None:
    below = MemoryNetwork()
    await below.listen(Peer, HOST, 4000)
    server = Scene(TlsFiles.of(), "permissive")
    server.below = below
    client = await dialling(server)
    with pytest.raises(TimeoutError):
        await client.call(f"{HOST}:4000", Command(1), timeout_s=30)
    await client.close()


@virtual
async def test_named_peers_are_dialled_without_tls_for_copies_alone() -> None:
    server = await scene("permissive")
    settings = TlsFiles.of(
        cert_path="", enabled=True, client_trust_path="/pem/ca", plain_peers=(HOST,)
    ).settings
    networks = networks_of(settings, server.below, server.files.disk)
    for network, is_tls in ((networks.copies, False), (networks.requests, True)):
        peer = cast(Peer, await network.connect(Peer, HOST, server.port))
        assert isinstance(peer.transport, TlsLayer) is is_tls


@virtual
async def test_without_settings_the_network_is_the_one_below() -> None:
    below = MemoryNetwork()
    networks = networks_of(TlsFiles.of(cert_path="").settings, below, TlsFiles.of().disk)
    assert networks.requests is below
    assert networks.copies is below
    assert networks.pages is below
    await networks.watch(VirtualClock())


@virtual
async def test_pages_have_a_mode_of_their_own() -> None:
    files = TlsFiles.of(server_mode="enforcing")
    networks = networks_of(files.settings, MemoryNetwork(), files.disk)
    await networks.pages.listen(Peer, HOST, 4001)
    plain = cast(Peer, await networks.pages.connect(Peer, HOST, 4001))
    plain.transport.write(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.sleep(1)
    assert not plain.lost.done()
