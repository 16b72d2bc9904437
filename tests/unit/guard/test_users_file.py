"""The file of users: whole after a crash at any point, and bounded."""

import pytest
from tests.kit import virtual

from turbopump.guard import users
from turbopump.guard.config import AccessConfig
from turbopump.guard.faults import AccessFileFault
from turbopump.guard.users import UserTable
from turbopump.protocol.bodies import UserInfo
from turbopump.protocol.errors import BrokenBody
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock

DIRECTORY = "/store/config"


def a_table(disk: SimulatedDisk) -> UserTable:
    table = UserTable(AccessConfig(authentication=True), DIRECTORY, disk, SimulatedWorkers(disk).run)
    table.open()
    return table


async def create(table: UserTable, name: str) -> None:
    await table.change(lambda book: book.created(name, UserInfo(password=f"{name}-secret"), by_super=True))


@pytest.mark.parametrize("operations", range(12))
@virtual
async def test_a_crash_leaves_the_users_before_or_after_a_change(operations: int) -> None:
    disk = SimulatedDisk(Chance(operations), VirtualClock())
    table = a_table(disk)
    await create(table, "before")
    disk.cut_power_after(operations)
    changed = True
    try:
        await create(table, "after")
    except PowerCut:
        changed = False
    again = a_table(disk.crash())
    names = set(again.book.users)
    assert names in ({"before"}, {"before", "after"})
    assert "after" in names or not changed
    assert again.book.users["before"].secrets == ("before-secret",)


@virtual
async def test_unchanged_secrets_keep_their_text_and_a_change_of_nothing_is_not_written() -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    table = a_table(disk)
    await create(table, "alice")
    before = disk.read(f"{DIRECTORY}/users.json")
    assert await table.change(lambda book: book) == []
    assert disk.read(f"{DIRECTORY}/users.json") == before
    await create(table, "bob")
    text = before[before.index(b"v1:") : before.index(b"v1:") + 40]
    assert text in disk.read(f"{DIRECTORY}/users.json")


@virtual
async def test_a_change_encodes_and_reads_only_the_users_that_changed() -> None:
    """A book of 1,000 users and 10,000 entries takes 60 ms to encode, and 280 ms to read."""
    disk = SimulatedDisk(Chance(1), VirtualClock())
    master = a_table(disk)
    for name in ("alice", "bob"):
        await create(master, name)
    key = disk.read(f"{DIRECTORY}/users.key").decode()
    config = AccessConfig(authentication=True, secret_key=key)
    slave_disk = SimulatedDisk(Chance(1), VirtualClock())
    slave = UserTable(config, DIRECTORY, slave_disk, SimulatedWorkers(slave_disk).run)
    slave.open()
    slave.take(master.contents())
    stored, read = dict(master._stored), dict(slave.book.users)
    await master.change(lambda book: book.updated("bob", UserInfo(userStatus="disable"), by_super=True))
    slave.take(master.contents())
    assert slave.book == master.book
    assert [master._stored[name] is stored[name] for name in ("alice", "bob")] == [True, False]
    assert [slave.book.users[name] is read[name] for name in ("alice", "bob")] == [True, False]
    await master.change(lambda book: book.deleted("alice", by_super=True))
    slave.take(master.contents())
    assert list(slave.book.users) == ["bob"]
    await slave.close()


@virtual
async def test_a_user_that_comes_twice_in_the_contents_of_the_master_is_refused() -> None:
    table = a_table(SimulatedDisk(Chance(1), VirtualClock()))
    await create(table, "alice")
    row = table.contents()[len(b'{"users":[') : -2]
    with pytest.raises(BrokenBody, match="users must have different names, got 'alice' again"):
        table.take(b'{"users":[' + row + b"," + row + b"]}")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"users":[{"name":"a"}]}', "cannot be read"),
        (b'{"\xdf"', "cannot be read"),
        (b'{"users":[{"\xf3":"clear-text"}]}', "cannot be read"),
        (b'{"users":[{"name":"a","secrets":["clear-text"]}]}', "the key is another one"),
        (b'{"users":[],"more":1}', "the book must be an object with users"),
    ],
)
@virtual
async def test_a_file_that_is_none_stops_the_start_and_shows_nothing_of_it(data: bytes, why: str) -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    disk.write(f"{DIRECTORY}/users.json", data, private=True)
    with pytest.raises(AccessFileFault, match=why) as raised:
        a_table(disk)
    assert f"{DIRECTORY}/users.json" in str(raised.value)
    assert "clear-text" not in str(raised.value)


@virtual
async def test_bytes_of_a_master_that_are_no_text_change_nothing() -> None:
    table = a_table(SimulatedDisk(Chance(1), VirtualClock()))
    await create(table, "alice")
    for data in (b'{"\xdf"', b'{"users":[{"\xf3":""}]}', b'{"users":' + b"[" * 100_000):
        with pytest.raises(BrokenBody, match="users of the master cannot be read"):
            table.take(data)
    assert "alice" in table.book.users


@virtual
async def test_a_file_beyond_its_bound_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MAX_FILE_BYTES", 10)
    disk = SimulatedDisk(Chance(1), VirtualClock())
    disk.write(f"{DIRECTORY}/users.json", b'{"users":[]}', private=True)
    with pytest.raises(AccessFileFault, match="must have at most 10 bytes, got 12"):
        a_table(disk)


@virtual
async def test_a_key_file_that_is_named_must_be_there_and_is_never_written_over() -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    config = AccessConfig(authentication=True, secret_key_file="/etc/access.key")
    table = UserTable(config, DIRECTORY, disk, SimulatedWorkers(disk).run)
    with pytest.raises(AccessFileFault, match=r"authSecretKeyFile: /etc/access\.key does not exist"):
        table.open()
    disk.write("/etc/access.key", b"no key")
    with pytest.raises(AccessFileFault, match=r"/etc/access\.key must hold 32 bytes in base64"):
        table.open()
    assert disk.read("/etc/access.key") == b"no key"
