"""Access control where bytes come in: files of accounts and users, signed sends, the first bytes of TLS."""

import asyncio
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tests.compat.security import ACCOUNTS
from tests.fuzz.targets import Target
from tests.unit.broker.desk import letters
from tests.unit.guard.accounts_kit import MAIN, MAIN_TEXT, TEAM_TEXT
from tests.unit.guard.accounts_kit import SECRETS as ACCOUNT_SECRETS
from tests.unit.guard.kit import ALICE, SECRETS, guarded
from tests.unit.remoting.kit import RecordingTransport
from tests.unit.remoting.tls_kit import TlsFiles, client_context

from turbopump.auth.book import UserBook
from turbopump.auth.book_values import from_plain, to_plain
from turbopump.auth.signature import Credentials, sign
from turbopump.compiled import twins
from turbopump.guard.account_files import AccountFiles
from turbopump.guard.account_table import AccountTable, accounts_of
from turbopump.guard.faults import AccessFileFault
from turbopump.guard.users import UserTable
from turbopump.protocol import command
from turbopump.protocol.bodies import AclEntry, AclInfo, AclPolicy, UserInfo
from turbopump.protocol.frame import MAX_FRAME, Frame, cut
from turbopump.remoting.pending import PendingConnections
from turbopump.remoting.tls import UndecidedConnection, _Gate
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import Disk
from turbopump.testing.memory import MemoryDisk

DIRECTORY = "/conf"
SECRET = ALICE.secret_key


@contextmanager
def showing_no_secret() -> Iterator[None]:
    """Fails when a fault shows a secret, those of the seeds."""
    try:
        yield
    except AccessFileFault as fault:
        shown = [one for one in (*ACCOUNT_SECRETS, *SECRETS) if one in str(fault)]
        raise AssertionError(f"a fault shows a secret: {fault}") if shown else fault from None


async def no_thread(work: Any, *arguments: Any) -> Any:
    return work(*arguments)


# --- accounts of 4.x ------------------------------------------------------------------------------------


def yaml_accounts(data: bytes) -> None:
    """A file that can be used gives the same accounts when it is written and read again."""
    disk = MemoryDisk(SystemClock())
    disk.make_dirs(DIRECTORY)
    disk.write(MAIN, data)
    table = AccountTable(DIRECTORY, disk, no_thread, SystemClock())
    with showing_no_secret():
        table.open()
    table.versions()
    files = AccountFiles(DIRECTORY, disk)
    files.write(MAIN, table.values[MAIN])
    again, _ = accounts_of(files.parse(files.read()))
    assert again == table.accounts


# --- users of 5.x ---------------------------------------------------------------------------------------


def users_file(data: bytes) -> None:
    """A file that can be used is written and read again as it was; one that cannot shows no secret."""
    disk = MemoryDisk(SystemClock())
    disk.make_dirs(DIRECTORY)
    disk.write(f"{DIRECTORY}/users.json", data)
    with showing_no_secret():
        table = opened(disk)
    assert from_plain(to_plain(table.book)) == table.book
    assert opened(disk).book == table.book
    contents = table.contents()
    assert not [one for one in SECRETS if one.encode() in contents]


def opened(disk: Disk) -> UserTable:
    table = UserTable(guarded().access, DIRECTORY, disk, no_thread)
    table.open()
    return table


def _books() -> Iterator[bytes]:
    disk = MemoryDisk(SystemClock())
    disk.make_dirs(DIRECTORY)
    table = opened(disk)
    yield table.contents()
    entry = AclEntry(resource="Topic:T*", actions=["Pub"], sourceIps=["10.0.0.0/8"], decision="Allow")
    book: UserBook = table.book.created("alice", UserInfo(password=SECRET), True)
    book = book.updated("alice", UserInfo(password="another"), True, keeps_secret=True)
    table.book = book.granted("User:alice", AclInfo(policies=[AclPolicy(entries=[entry])]), True)
    yield table.contents()


# --- signed sends, read by the compiled reader ------------------------------------------------------------

USER = Credentials("user-1", SECRET)


def signed_sends(data: bytes) -> None:
    """What the compiled reader takes is a whole send, and what it signs is what Python signs."""
    compiled = twins()
    if compiled is None:
        return
    at = 0
    while (row := compiled.signed_send(data, at, MAX_FRAME)) is not None:
        size, name, signature, topic, content, body_size = row
        assert 0 < size <= len(data) - at
        frames: list[Frame] = []
        assert cut(data[at : at + size], frames) == size
        (one,) = frames
        found = command.decode(one)
        ext = dict(found.ext or {})
        assert found.code in (10, 310)
        assert not found.is_response
        assert (name, topic) == (ext["AccessKey"], ext["b" if found.code == 310 else "topic"])
        assert signature.decode() == ext["Signature"]
        assert body_size == len(found.body)
        assert sign({}, content, SECRET) == sign(ext, found.body, SECRET)
        at += size
    compiled.signed_send(data, len(data), MAX_FRAME)


def _sends() -> Iterator[bytes]:
    fields = {name: str(value) for name, value in letters("T").items()}
    long = {"topic": "T", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"}
    made = [
        command.encode(command.Command(code, 1, ext=USER.signed(ext, body), body=body))
        for code, ext in ((310, fields), (10, long), (310, {**fields, "z": "ä"}))
        for body in (b"", b"body")
    ]
    yield from made
    yield b"".join(made)


# --- the first bytes of a connection ----------------------------------------------------------------------


class Behind(asyncio.Protocol):
    """What a permissive port gives a connection to."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


class FirstBytesTransport(RecordingTransport):
    def __init__(self) -> None:
        super().__init__()
        self.above: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.above = protocol

    def get_protocol(self) -> Any:
        return self.above


@cache
def loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _contexts() -> Any:
    return TlsFiles.of().contexts()


def first_bytes(data: bytes) -> None:
    """A permissive port gives plain bytes on as they came, and takes nothing for data before a handshake."""
    loop().run_until_complete(_first_bytes(data))


async def _first_bytes(data: bytes) -> None:
    pieces = [data[:1], data[1:7], data[7:]] if len(data) % 2 else [data]
    pieces = [piece for piece in pieces if piece]
    pending, served = PendingConnections(10, 10), list[Behind]()

    def factory() -> asyncio.Protocol:
        served.append(Behind())
        return served[-1]

    gate = _Gate(_contexts(), pending, factory, lambda peer: True)
    connection, transport = UndecidedConnection(gate), FirstBytesTransport()
    transport.above = connection
    connection.connection_made(transport)
    for piece in pieces:
        if not transport.is_closing():
            transport.above.data_received(piece)
    if data and data[0] != 0x16:
        assert [one.data for one in served] == [data]
        assert not transport.writes
        assert len(pending) == 0
    else:
        assert served == [], "no handshake can have ended"
        assert not gate.undecided or len(pending) == 1
    transport.above.connection_lost(None)
    assert len(pending) == 0
    assert not gate.undecided


def _hellos() -> Iterator[bytes]:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context()
        context.maximum_version = version
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            yield outgoing.read()
    yield b"GET / HTTP/1.1\r\n\r\n"
    yield next(iter(_sends()))
    yield b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"


YAML_WORDS = (
    *(
        b"accounts:",
        b"- accessKey: ",
        b"secretKey: ",
        b"&a [*a]",
        b"*a",
        b"<<: *a",
        b"!!python/object:os.system",
    ),
    *(b"!!binary ", b"dataVersion:", b"topicPerms: [T=PUB]", b"globalWhiteRemoteAddresses: ['*']", b"? "),
)
JSON_WORDS = (
    b'"secrets":["v1:',
    b'"policies":[',
    b'"type":"Super"',
    b'"name":"',
    b'"status":"enable"',
    b"v1:",
)

TARGETS = {
    "access-accounts-yaml": Target(
        yaml_accounts,
        lambda: [MAIN_TEXT.encode(), TEAM_TEXT.encode(), json.dumps(ACCOUNTS).encode()],
        (AccessFileFault,),
        YAML_WORDS,
        taste=300,
    ),
    "access-users-file": Target(users_file, _books, (AccessFileFault,), JSON_WORDS, taste=300),
    "access-signed-sends": Target(signed_sends, _sends, (), (b"Signature", b"AccessKey", b'"extFields":{')),
    "access-first-bytes": Target(
        first_bytes, _hellos, (), (b"\x16\x03\x01", b"\x16\x03\x03", b"\x00\x2b", b"\x01\x00")
    ),
}
