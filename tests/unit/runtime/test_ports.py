"""A reserved port is for the server that was given it, also after a restart, and for nobody else."""

import errno
import socket

import pytest

from turbopump.runtime.ports import reserved_port

HOST = "127.0.0.1"


def test_a_server_listens_on_reserved_ports_and_again_after_it_stopped() -> None:
    with reserved_port(HOST, (-2, 1)) as port:
        for _ in range(2):
            for step in (0, -2, 1):
                address = (HOST, port + step)
                with socket.create_server(address) as server, socket.create_connection(address) as client:
                    accepted, _ = server.accept()
                    accepted.close()
                    assert client.recv(1) == b""


def test_nobody_is_given_a_reserved_port() -> None:
    with reserved_port(HOST) as port, socket.socket() as other:
        with pytest.raises(OSError) as failed:
            other.bind((HOST, port))
        assert failed.value.errno == errno.EADDRINUSE
    with socket.create_server((HOST, port)):
        pass


def test_other_ports_are_tried_until_the_neighbours_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [40_001, 40_011, 65_535, 40_021]
    bound: list[int] = []

    def bind(host: str, port: int, stack: object) -> int:
        port = port or given.pop(0)
        bound.append(port)
        if port > 65_535:
            raise OverflowError
        if port in (40_002, 40_009):
            raise OSError(errno.EADDRINUSE, "in use")
        return port

    monkeypatch.setattr("turbopump.runtime.ports._bound", bind)
    with reserved_port(HOST, (1, -2)) as port:
        assert port == 40_021
    assert bound == [40_001, 40_002, 40_011, 40_012, 40_009, 65_535, 65_536, 40_021, 40_022, 40_019]


def test_another_error_is_raised_at_once() -> None:
    with pytest.raises(OSError) as failed, reserved_port("192.0.2.1"):
        pass
    assert failed.value.errno == errno.EADDRNOTAVAIL
