"""Users and policies are changed on a master; its slaves and the members of its group have them too."""

import pytest
from tests.kit import virtual
from tests.unit.broker_group.kit import Group, conf
from tests.unit.guard.kit import ALICE, INNER, ROOT, SECRETS, SETTINGS
from tests.unit.replication.kit import Node, Pair, pair
from tests.unit.replication.users_kit import CONF, SLAVE, ask, create_alice

from turbopump.protocol.codes import RequestCode as Code

NO_PERMISSION, SERVICE_NOT_AVAILABLE = 16, 14
OTHER_KEY = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="
USERS = "/store/config/users.json"


async def knows_alice(world: Pair, node: Node) -> bool:
    answer = await ask(world, node, ALICE, Code.AUTH_LIST_USER)
    assert answer.code == NO_PERMISSION
    return "has no permission to access" in (answer.remark or "")


@virtual
async def test_a_slave_has_the_users_of_its_master_those_before_and_those_after_it_came() -> None:
    async with pair() as world:
        master, slave = world.node(CONF), world.node(CONF + SLAVE)
        await master.start()
        assert (await create_alice(world, master)).code == 0
        await slave.start()
        await world.until(lambda: slave.disk.exists(USERS) and b"alice" in slave.disk.read(USERS))
        assert await knows_alice(world, slave)
        disable = b'{"userStatus":"disable"}'
        changed = await ask(world, master, ROOT, Code.AUTH_UPDATE_USER, {"username": "alice"}, disable)
        assert changed.code == 0
        await world.until(lambda: slave.disk.read(USERS) == master.disk.read(USERS))
        refused = await ask(world, slave, ALICE, Code.AUTH_LIST_USER)
        assert refused.remark == "User:alice is disabled."
        assert slave.disk.mode(USERS) == 0o600


@virtual
async def test_users_are_not_changed_on_a_slave() -> None:
    async with pair() as world:
        master, slave = world.node(CONF), world.node(CONF + SLAVE)
        await master.start()
        await slave.start()
        refused = await create_alice(world, slave)
        assert refused.code == SERVICE_NOT_AVAILABLE
        assert "this broker is a slave, ask its master" in (refused.remark or "")


@virtual
async def test_a_slave_with_another_key_keeps_its_users_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as world:
        master = world.node(CONF)
        slave = world.node(CONF.replace(SETTINGS["authKey"], OTHER_KEY) + SLAVE)
        await master.start()
        await slave.start()
        assert (await create_alice(world, master)).code == 0
        await world.until(lambda: "set authKey or authSecretKeyFile to the key that wrote it" in caplog.text)
        answer = await ask(world, slave, INNER, Code.AUTH_LIST_USER)
        assert (answer.code, b"alice" in answer.body) == (0, False)


@virtual
async def test_no_secret_is_in_what_a_master_sends_and_a_slave_writes() -> None:
    async with pair() as world:
        master, slave = world.node(CONF), world.node(CONF + SLAVE)
        await master.start()
        await slave.start()
        await create_alice(world, master)
        await world.until(lambda: b"alice" in slave.disk.read(USERS))
        for node in (master, slave):
            written = b"".join(bytes(file.pages) for file in node.disk._names.nodes.values())
            assert not [secret for secret in SECRETS if secret.encode() in written]


@virtual
async def test_the_next_leader_of_a_group_has_the_users_and_their_secrets_are_not_in_the_log() -> None:
    world = Group()
    await world.name_server.start()
    try:
        for member in ("n0", "n1", "n2"):
            await world.node(conf(member, CONF)).start()
        await world.joined()
        leader = await world.leader()
        assert (await create_alice(world, leader)).code == 0
        for node in world.nodes:
            if node is not leader:
                await world.until(lambda node=node: b"alice" in node.disk.read(USERS))  # type: ignore[misc]
                assert await knows_alice(world, node)
            assert ALICE.secret_key.encode() not in node.log
        await leader.kill()
        after = await world.leader()
        assert after is not leader
        assert await knows_alice(world, after)
        disable = b'{"userStatus":"disable"}'
        changed = await ask(world, after, ROOT, Code.AUTH_UPDATE_USER, {"username": "alice"}, disable)
        assert changed.code == 0, changed.remark
    finally:
        await world.close()
