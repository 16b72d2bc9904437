"""What a slave and a follower refuse: everything that their master's log or tables decide."""

from tests.kit import virtual
from tests.unit.auth.requests_kit import handlers, name_of, request_of
from tests.unit.broker_group.kit import group
from tests.unit.replication.kit import TOPIC, Node, Pair, pair
from tests.unit.replication.operation_kit import followed

from turbopump.broker.replicas.slave_rules import RULES, SlaveRule
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.codes import ResponseCode

OF_NAME_SERVERS = "turbopump.namesrv"
OF_MEMBERS = "turbopump.replication.dledger"  # on the port of their group, behind another router
OF_ACCOUNTS = range(50, 55)
REFUSED = [code for code, rule in RULES.items() if rule is SlaveRule.REFUSED]


def test_every_request_code_has_a_rule() -> None:
    assert [code.name for code in Code if code not in RULES] == []


def test_every_handler_of_a_broker_is_served_or_refused_by_a_slave() -> None:
    found = {
        code: module
        for module, table in handlers()
        if not module.startswith((OF_NAME_SERVERS, OF_MEMBERS))
        for code in table
    }
    with_rule = {code for code, rule in RULES.items() if rule is not SlaveRule.NO_HANDLER}
    assert {module: name_of(code) for code, module in found.items() if code not in with_rule} == {}
    of_access_control = {
        code for code in with_rule if code in OF_ACCOUNTS or name_of(code).startswith("AUTH_")
    }
    assert with_rule - set(found) - of_access_control == set()


@virtual
async def test_a_slave_refuses_every_request_that_its_master_decides() -> None:
    async with pair() as world:
        _, slave = await followed(world)
        await _refuses_all(world, slave)


@virtual
async def test_a_follower_refuses_every_request_that_its_leader_decides() -> None:
    async with group() as world:
        await world.leader()
        await _refuses_all(world, world.followers()[0])


async def _refuses_all(world: Pair, node: Node) -> None:
    for code in REFUSED:
        answer = await world.tool.call(node.address, request_of(code, TOPIC, "CG"), 10.0)
        assert (name_of(code), answer.code) == (name_of(code), ResponseCode.SERVICE_NOT_AVAILABLE)


@virtual
async def test_queues_of_a_topic_that_a_slave_does_not_know_yet_are_kept() -> None:
    async with pair() as world:
        master, slave = await followed(world, messages=20)
        known = (await world.call(master, Code.GET_ALL_TOPIC_CONFIG)).body
        nothing = b'{"topicConfigTable":{},"dataVersion":{"counter":1,"timestamp":1}}'
        slave.slave.take_table("topics.json", nothing)  # as long as its master's table has not come
        for code in (Code.CLEAN_UNUSED_TOPIC, Code.CLEAN_EXPIRED_CONSUMEQUEUE):
            assert (await world.call(slave, code)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        slave.slave.take_table("topics.json", known)
        assert await world.pull(slave) == await world.pull(master)
        assert len(await world.pull(slave)) == 20
