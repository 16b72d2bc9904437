"""The servers' own credentials count on the ports between brokers, whatever the users say."""

import pytest
from tests.unit.auth.requests_kit import request_of

from turbopump.auth.access import BY_CERTIFICATE, Access, Source, UserAccess
from turbopump.auth.book import UserBook
from turbopump.auth.peer_proof import SignedGreeting, greeting_proof
from turbopump.auth.server_access import ServerAccess
from turbopump.auth.signature import Credentials
from turbopump.auth.users import User, UserStatus
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.errors import NoPermission

OWN = Credentials("servers", "own-secret")
BOOK = UserBook(
    {
        "servers": User("servers", ("another-secret",), status=UserStatus.DISABLE),
        "alice": User("alice", ("alice-secret",)),
    }
)
HERE = Source("10.0.0.1")


def access(own: Credentials | None = OWN) -> Access:
    users = UserAccess(BOOK)
    return ServerAccess(lambda: users, own)


def signed(who: Credentials) -> Command:
    command = request_of(Code.GET_BROKER_RUNTIME_INFO)
    command.ext = who.signed(command.ext, command.body)
    return command


def greeting(who: Credentials, nonce: bytes = b"n") -> SignedGreeting:
    return SignedGreeting(
        who.access_key, greeting_proof(who.secret_key, b"n", b"greeting"), nonce, b"greeting"
    )


def test_the_configured_pair_is_a_super_user_and_others_are_what_the_users_say() -> None:
    found = access().identify(signed(OWN), HERE)
    assert (found.name, found.is_super) == ("servers", True)
    assert not access().identify(signed(Credentials("alice", "alice-secret")), HERE).is_super
    for who in (Credentials("servers", "another-secret"), Credentials("servers", ""), Credentials("x", "y")):
        with pytest.raises(NoPermission):
            access().identify(signed(who), HERE)


def test_a_certificate_of_the_servers_is_enough() -> None:
    found = access().identify(Command(0), Source("10.0.0.1", "servers"))
    assert (found.is_super, found.by) == (True, BY_CERTIFICATE)
    assert not access().identify(Command(0), Source("10.0.0.1", "alice")).is_super
    with pytest.raises(NoPermission):
        access(None).identify(Command(0), Source("10.0.0.1", ""))


def test_a_greeting_is_signed_by_the_servers_or_by_a_user_and_holds_for_one_challenge() -> None:
    servers = access().greeter(greeting(OWN))
    assert servers is not None
    assert servers.is_super
    alice = access().greeter(greeting(Credentials("alice", "alice-secret")))
    assert alice is not None
    assert not alice.is_super
    assert access().greeter(greeting(OWN, nonce=b"of another connection")) is None
    assert access().greeter(greeting(Credentials("servers", "another-secret"))) is None
    assert access(None).greeter(greeting(Credentials("", ""))) is None


def test_only_names_with_a_secret_can_be_guessed_at() -> None:
    assert [access().has_secret(name) for name in ("servers", "alice", "nobody", "")] == [
        True,
        True,
        False,
        False,
    ]
    assert not access(None).has_secret("")


def test_no_text_of_a_signed_greeting_shows_its_proof() -> None:
    assert repr(greeting(OWN)) == "SignedGreeting(user='servers')"
