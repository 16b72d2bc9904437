"""Access control: signed requests, accounts, users and policies."""

import contextlib
from collections.abc import Iterator

import msgspec
from tests.compat.security import ACCOUNTS, decoded, exchanges, signed_frames
from tests.fuzz.targets import Target
from tests.unit.auth.requests_kit import codes, request_of

from turbopump.auth.access import Source, UserAccess
from turbopump.auth.account_access import AccountAccess
from turbopump.auth.accounts import read_accounts
from turbopump.auth.addresses import AddressPattern
from turbopump.auth.book import UserBook
from turbopump.auth.book_values import from_plain, to_plain
from turbopump.auth.migration import migrated
from turbopump.auth.needs import needs_of
from turbopump.auth.policies import Policies, decide
from turbopump.auth.resources import Action, topic
from turbopump.auth.signature import Credentials
from turbopump.protocol import command, frame
from turbopump.protocol.bodies import AclInfo, UserInfo
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.conf import ConfigError
from turbopump.protocol.errors import BrokenBody, BrokenFrame, Refused

SOURCE = Source("127.0.0.1")
USER = UserInfo(password="12345678")
BOOK = (
    UserBook().created("root", UserInfo(password="s", userType="Super"), True).created("RocketMQ", USER, True)
)
CLIENT = Credentials("RocketMQ", "12345678")
USERS, ACCOUNT_ACCESS = UserAccess(BOOK), AccountAccess(read_accounts(ACCOUNTS))
NEED = topic("topicB", Action.PUB)
SUBJECT = "User:RocketMQ"
EVERY = 9  # of the captured frames
WORDS = (
    b'"AccessKey":"RocketMQ"',
    b'"Signature":"',
    b"%RETRY%",
    b"%LMQ%a",
    b"Deny",
    b"Allow",
    b"Topic:*",
    b"User:",
)

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError)  # of the reader, which is not this package's


def requests(data: bytes) -> None:
    """A request is decided alike by both kinds of access each time, or it is refused."""
    frames: list[frame.Frame] = []
    frame.cut(data, frames)
    for one in frames:
        found = command.decode(one)
        with contextlib.suppress(Refused):
            needs_of(found, "C")  # also of a request whose signature is wrong
        outcomes = {_outcome(access, found) for access in (USERS, ACCOUNT_ACCESS) for _ in range(2)}
        assert len(outcomes) <= 2


def _outcome(access: UserAccess | AccountAccess, found: command.Command) -> str:
    try:
        identity = access.identify(found, SOURCE)
        access.authorize(identity, needs_of(found, "C"), SOURCE, found.code)
    except Refused as refused:
        return f"{type(access).__name__} {refused.remark}"
    return f"{type(access).__name__} {identity}"


def accounts(data: bytes) -> None:
    """Accounts that can be read can be migrated, and the book of users has them all."""
    found = read_accounts(msgspec.json.decode(data))
    book = migrated(found, UserBook()).book
    assert set(book.users) == set(found.by_key)
    assert from_plain(to_plain(book)) == book


def policies(data: bytes) -> None:
    """Entries that are taken decide alike in any order, and are read back as they were."""
    book = BOOK.granted(SUBJECT, AclInfo.decode(data), by_super=True)
    assert from_plain(to_plain(book)) == book
    shown = book.acl(SUBJECT)
    assert shown is not None
    assert BOOK.granted(SUBJECT, shown, by_super=True) == book
    found = book.policies_of("RocketMQ")
    reverse = Policies(found.custom[::-1], found.default[::-1])
    assert decide(found, NEED, "10.0.0.1").reason == decide(reverse, NEED, "10.0.0.1").reason
    USERS.explain("RocketMQ", NEED, SOURCE)


def books(data: bytes) -> None:
    book = from_plain(msgspec.json.decode(data))
    assert from_plain(to_plain(book)) == book


def addresses(data: bytes) -> None:
    pattern = AddressPattern.parse(data.decode("utf-8", "replace"))
    assert AddressPattern.parse(str(pattern)) == pattern
    pattern.matches("10.0.0.1")
    pattern.matches("2001:db8::1")


def _frames() -> Iterator[bytes]:
    for one in signed_frames()[::EVERY]:
        yield one.data
    for code in codes():
        request = request_of(code, "topicB", "groupB")
        request.ext = CLIENT.signed(request.ext, request.body)
        yield command.encode(request)


def _acls() -> Iterator[bytes]:
    for one in exchanges("5.5.0"):
        found = decoded(one.request)
        if found.code in (RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL) and found.body:
            yield found.body


def _books() -> Iterator[bytes]:
    yield msgspec.json.encode(to_plain(BOOK))
    for body in _acls():
        try:
            yield msgspec.json.encode(to_plain(BOOK.granted(SUBJECT, AclInfo.decode(body), by_super=True)))
        except Refused:
            continue


def _patterns() -> Iterator[bytes]:
    yield from (
        b"*",
        b"10.1.2.3,10.1.2.4",
        b"10.1.2.{3,4}",
        b"10.1.*.*",
        b"10.1.2.5-9",
        b"2::5:1-200:*",
        b"2::{5,a}",
    )


TARGETS = {
    "auth-requests": Target(requests, _frames, (BrokenFrame,), WORDS),
    "auth-accounts": Target(
        accounts, lambda: [msgspec.json.encode(ACCOUNTS)], (ConfigError, *NOT_JSON, Refused), WORDS
    ),
    "auth-policies": Target(policies, _acls, (BrokenBody, Refused), WORDS),
    "auth-books": Target(books, _books, (BrokenBody, *NOT_JSON), WORDS),
    "auth-addresses": Target(addresses, _patterns, (ConfigError,)),
}
