"""The exchanges with Apache's servers are decided as there, but for the differences listed here."""

import re

from tests.compat.security import ACCOUNTS, Exchange, decoded, exchanges

from turbopump.auth.access import Source, UserAccess
from turbopump.auth.account_access import AccountAccess
from turbopump.auth.accounts import read_accounts
from turbopump.auth.book import UserBook
from turbopump.auth.needs import needs_of
from turbopump.protocol.bodies import AclInfo, UserInfo, decode
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import Refused

ANSWERED = ""
"""Outcome of a request that passes access control, whatever its handler answers."""

# --- 5.5.0 ----------------------------------------------------------------------------------------------

CLOSED_55 = {
    "reply 325 denied topic",
    "pull foreign retry topic with own group",
    "retry topic of a foreign group pulled with own group",
    "lite pull 361 of a foreign topic and group",
    "create group 200 by a normal user",
    "create topic list 18 by a normal user",
    "broker config read by a normal user",
    "now give itself everything",  # policies about everything are for super users
    "and then",
    "source rule, same client after a PROXY line that claims 10.1.2.3",
    "stateful: same connection, wrong signature",
}
"""Holes of 5.5.0: answered there, refused here."""

OPENED_55 = {
    "binary header, empty value signed as empty",  # both ways to sign it are right here
    "stateful: same connection, good signature within 60 s",  # a bad request refuses no good one
    "25 blacklisted key",  # refused by the handler, not by access control
}
"""Refused by 5.5.0, not here."""

OTHER_WORDS_55 = {"create, no body"}  # the names of Java's classes


def test_5_5_0_decides_alike() -> None:
    access = UserAccess(_book_at_start())
    assert _compared(access, exchanges("5.5.0")) == (CLOSED_55, OPENED_55, OTHER_WORDS_55)


def _compared(access: UserAccess, rows: tuple[Exchange, ...]) -> tuple[set[str], set[str], set[str]]:
    """Returns the names of what is refused here only, there only, and with other words."""
    closed, opened, other = set(), set(), set()
    for one in rows:
        if one.peer == "name server":  # not guarded by Apache
            continue
        ours, theirs = _outcome(access, one), _theirs(one, one.command)
        if ours != theirs:
            (closed if theirs == ANSWERED else opened if ours == ANSWERED else other).add(one.name)
    return closed, opened, other


def _book_at_start() -> UserBook:
    """Returns the users and policies that the server listed first."""
    users, acls = (one.answer for one in exchanges("5.5.0")[:2])
    assert users is not None
    assert acls is not None
    book = UserBook()
    for user in decode(list[UserInfo], decoded(users).body):
        book = book.created(user.username or "", user, by_super=True)
    for info in decode(list[AclInfo], decoded(acls).body):
        book = book.granted(info.subject, info, by_super=True)
    return book


def _outcome(access: UserAccess, one: Exchange) -> str:
    """Returns the refusal of a request, or `ANSWERED`, and makes the change that it asks for."""
    command, source = one.command, Source("127.0.0.1")
    try:
        identity = access.identify(command, source)
        access.authorize(identity, needs_of(command, "DefaultCluster"), source, command.code)
        access.book = _changed(access.book, command, identity.is_super)
    except Refused as refused:
        return refused.remark
    return ANSWERED


def _changed(book: UserBook, command: Command, by_super: bool) -> UserBook:
    ext, body = command.ext or {}, command.body
    name = ext.get("username", "")
    user = UserInfo.decode(body) if body and command.code in CHANGES_OF_USERS else None
    if command.code == Code.AUTH_CREATE_USER:
        return book.created(name, user, by_super)
    if command.code == Code.AUTH_UPDATE_USER:
        return book.updated(name, user, by_super)
    if command.code == Code.AUTH_DELETE_USER:
        return book.deleted(name, by_super)
    if command.code in (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL):
        info = AclInfo.decode(body) if body else None
        subject = (info.subject if info is not None else None) or ext.get("subject")
        return book.granted(subject, info, by_super)
    if command.code == Code.AUTH_DELETE_ACL:
        return book.revoked(ext.get("subject"), ext.get("policyType"), ext.get("resource"), by_super)
    if command.code == Code.AUTH_GET_ACL:
        book.acl(ext.get("subject"))
    return book


CHANGES_OF_USERS = (Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER)


def _theirs(one: Exchange, command: Command) -> str:
    """Returns the refusal of Apache's server without the names of its classes, or `ANSWERED`."""
    is_change = command.code >= Code.AUTH_CREATE_USER
    if one.code != ResponseCode.NO_PERMISSION and not (is_change and one.code):
        return ANSWERED
    return re.sub(r"^(?:[a-z]+\.)+|, org\.apache.*", "", one.remark, flags=re.DOTALL)


# --- 4.x ------------------------------------------------------------------------------------------------

ADDRESSES = {
    "global white 127.0.0.9 unsigned": "127.0.0.9",
    "global white 127.0.1.77 unsigned admin 26": "127.0.1.77",
    "global white range 127.0.2.6": "127.0.2.6",
    "outside range 127.0.2.10": "127.0.2.10",
    "global white list {4,6}: .6": "127.0.3.6",
    "global white list {4,6}: .5": "127.0.3.5",
    "white": "127.0.0.9",
    "account white address: only key, no signature": "127.0.4.1",
    "account white address: wrong signature": "127.0.4.1",
}

CLOSED_4 = {
    # Sends, replies and batches that 4.x does not check.
    "send code 320 (batch) to DENY topic",
    "batch 320 to DENY topic",
    "batch 320 denied topic",
    "send reply 325 DENY topic",
    "reply 325 to DENY topic",
    "one-way send refused: silence",
    # The retry topic of a denied group, with another group in the field that 4.9 looks at.
    "retry topic send, field a names own group",
    "send code 10 to retry topic of a denied group",
    # Whatever 4.x leaves to everybody with a key.
    "lite pull 361 DENY topic",
    "query offset 14 denied group: no check",
    "max offset 30 DENY topic: no check",
    "lock 41 of a denied group",
    "consume stats in broker by non-admin",
    "get broker config by non-admin",
    "all topics by non-admin",
    "all offsets by non-admin",
    "reset offset by non-admin",
    "unknown code signed",
    "50",
    "52",
    "52 by non-admin",
    "54 by non-admin (secrets)",
    "JSON null value signed as the text null",  # no client sends null in a JSON header
}
"""Answered by 4.x, refused here."""

OPENED_4 = {
    # Signed in the way of another client.
    "good, binary header",
    "SecurityToken sent but not signed",
    "JSON null value signed as nothing",
    "query 12 with _UNIQUE_KEY_QUERY signed (4.9.4+ client)",
    "query 12 with _UNIQUE_KEY_QUERY unsigned",
    # Checked by 4.5 otherwise than by 4.9, which is followed.
    "retry topic send: needs default SUB? (4.5: PUB on the topic)",
    "send back 36: needs PUB on originTopic",
    "trace topic",
}
"""Refused by 4.x, not here."""

OTHER_WORDS_4 = {"heartbeat with broken body"}


def test_4_x_decides_alike() -> None:
    access = AccountAccess(read_accounts(ACCOUNTS))
    closed, opened, other = set(), set(), set()
    for one in (*_before_changes("4.9.7"), *exchanges("4.5.1")):
        ours, theirs = _old_outcome(access, one), _their_old(one)
        if ours != theirs:
            (closed if theirs == ANSWERED else opened if ours == ANSWERED else other).add(one.name)
    assert (closed, opened, other) == (CLOSED_4, OPENED_4, OTHER_WORDS_4)


def _before_changes(version: str) -> list[Exchange]:
    """Returns the exchanges before the first that changes accounts: there the files are the state."""
    rows = [one for one in exchanges(version) if one.peer != "name server"]
    first = next(number for number, one in enumerate(rows) if one.name == "50 short key")
    return rows[:first]


def _old_outcome(access: AccountAccess, one: Exchange) -> str:
    command, source = one.command, Source(ADDRESSES.get(one.name, "127.0.0.1"))
    try:
        identity = access.identify(command, source)
        access.authorize(identity, needs_of(command, "DefaultCluster"), source, command.code)
    except Refused as refused:
        return refused.remark
    return ANSWERED


def _their_old(one: Exchange) -> str:
    found = re.match(
        r"org\.apache\.rocketmq\.acl\.common\.AclException: (.*?)(?:, org\.apache.*)?$", one.remark, re.DOTALL
    )
    return ANSWERED if found is None else found[1]
