import asyncio
import errno
import os
import socket

import pytest

from turbopump.cli import connect
from turbopump.cli.connect import explaining_no_answer
from turbopump.cli.failures import CommandFailure
from turbopump.client.errors import InvalidArgument, NoNameServer, SendFailed, TopicUnknown, Try, Unreachable
from turbopump.protocol.addresses import split_address
from turbopump.protocol.errors import NoPermission


def sent(failure: Exception) -> SendFailed:
    return SendFailed("t", [Try("a", 0.1, failure)], 1, "")


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("nobody"),
        NoNameServer("none"),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        TimeoutError("late"),
        socket.gaierror(-2, "unknown"),
        sent(ConnectionResetError("gone")),
    ],
)
def test_where_nobody_answers_a_line_says_what_to_do(error: OSError) -> None:
    with pytest.raises(
        CommandFailure, match=r"no answer from the name server 10\.0\.0\.1:9876.*turbopump up"
    ):
        fail_with(error)


@pytest.mark.parametrize(
    "error",
    [
        sent(NoPermission("no sends")),
        TopicUnknown("t"),
        OSError(errno.ENOSPC, "stdout is full"),
        BrokenPipeError(errno.EPIPE, "nobody reads"),
        PermissionError(errno.EACCES, "no", "file.parquet"),
    ],
)
def test_other_errors_are_not_taken_for_silence(error: OSError) -> None:
    with pytest.raises(type(error)):
        fail_with(error)


def fail_with(error: OSError) -> None:
    with explaining_no_answer(["10.0.0.1:9876"]):
        raise error


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:65535", ("127.0.0.1", 65535)),
        ("[::1]:9876", ("::1", 9876)),
        (f"{'a' * 63}.example.:1", (f"{'a' * 63}.example.", 1)),
        ("bücher.example:1", ("bücher.example", 1)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address", ["127.0.0.1:65536", "a..b:1", ".a:1", f"{'a' * 64}:1", "a\udcff:1", "a:b", "a"]
)
def test_what_no_resolver_and_no_socket_takes_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="an address must be host:port"):
        split_address(address)


def test_commands_sign_with_the_credentials_of_settings_and_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TURBOPUMP_CONFIG", os.devnull)

    async def signer_of_a_client() -> object:
        client = connect.client()
        await client.close()
        return client._sign

    assert asyncio.run(signer_of_a_client()) is None
    monkeypatch.setenv("TURBOPUMP_ACCESS_KEY", "joe")
    monkeypatch.setenv("TURBOPUMP_SECRET_KEY", "Geheim-1")
    assert repr(asyncio.run(signer_of_a_client())) == "Signer('joe')"
    monkeypatch.delenv("TURBOPUMP_ACCESS_KEY")
    with pytest.raises(InvalidArgument, match="TURBOPUMP_ACCESS_KEY is missing") as caught:
        asyncio.run(signer_of_a_client())
    assert "Geheim" not in str(caught.value)
