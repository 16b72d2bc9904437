"""Who may work on global transactions: coordinators by rights to their group, operators to the cluster."""

import asyncio
import json
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.guard.kit import ALICE, NOBODY, ROOT, GuardedDesk, guarded_broker

from turbopump.auth.signature import Credentials
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.global_transactions import ledger_id

GID, GROUP, HOME = "g", "bank", "broker-a"
OK, REFUSED = 0, ResponseCode.NO_PERMISSION
OPEN = {"kind": "tcc", "owner": "tm", "leaseMs": 30_000}
DECIDE = OPEN | {"decision": "commit"}
CLAIM = {"owner": "tm", "leaseMs": 30_000}
APPEND = {"lease": 1, "length": 0, "leaseMs": 30_000}
RESOLVE = {"action": "retry", "who": "ann", "because": "ticket 17"}
AUDIT = "/store/config/access-audit.jsonl"


async def asked(desk: GuardedDesk, who: Credentials, code: int, ext: dict[str, Any], **more: Any) -> int:
    fields = {"gid": GID, "group": GROUP} | ext | more
    return (await desk.ask(who, code, fields)).code


async def opened_by_alice(desk: GuardedDesk) -> None:
    await desk.grant(ALICE, f"Group:{GROUP}", "Pub")
    await desk.done(ALICE, Code.LEDGER_OPEN, {"id": ledger_id(GROUP), "run": "home", "home": HOME})
    assert await asked(desk, ALICE, Code.GLOBAL_OPEN, OPEN) == OK


@virtual
async def test_a_coordinator_with_pub_on_its_group_may_all_but_resolve_and_read_other_groups() -> None:
    async with guarded_broker() as desk:
        await opened_by_alice(desk)
        assert await asked(desk, ALICE, Code.GLOBAL_APPEND, APPEND) == OK
        assert await asked(desk, ALICE, Code.GLOBAL_DECIDE, DECIDE) == OK
        assert await asked(desk, ALICE, Code.GLOBAL_CLAIM, CLAIM) == OK
        assert await asked(desk, ALICE, Code.GLOBAL_READ, {}) == OK
        assert await asked(desk, ALICE, Code.GLOBAL_READ, {}, group="") == REFUSED
        assert await asked(desk, ALICE, Code.GLOBAL_RESOLVE, RESOLVE) == REFUSED
        for code, fields in ((Code.GLOBAL_OPEN, OPEN), (Code.GLOBAL_CLAIM, CLAIM), (Code.GLOBAL_READ, {})):
            assert await asked(desk, ALICE, code, fields, group="shop") == REFUSED


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (Code.GLOBAL_OPEN, OPEN),
        (Code.GLOBAL_APPEND, APPEND),
        (Code.GLOBAL_DECIDE, DECIDE),
        (Code.GLOBAL_CLAIM, CLAIM),
        (Code.GLOBAL_READ, {}),
        (Code.GLOBAL_RESOLVE, RESOLVE),
    ],
)
@virtual
async def test_who_has_no_right_may_nothing(code: Code, fields: dict[str, Any]) -> None:
    async with guarded_broker() as desk:
        await opened_by_alice(desk)
        assert await asked(desk, NOBODY, code, fields) == REFUSED


@virtual
async def test_an_operator_lists_with_get_and_resolves_with_update_on_the_cluster_which_leaves_a_line() -> (
    None
):
    async with guarded_broker() as desk:
        await opened_by_alice(desk)
        await desk.grant(NOBODY, "Cluster:DefaultCluster", "Get")
        assert await asked(desk, NOBODY, Code.GLOBAL_READ, {}, group="") == OK
        assert await asked(desk, NOBODY, Code.GLOBAL_RESOLVE, RESOLVE) == REFUSED
        assert await asked(desk, NOBODY, Code.GLOBAL_DECIDE, DECIDE) == REFUSED
        assert await asked(desk, ROOT, Code.GLOBAL_RESOLVE, RESOLVE) == OK
        await asyncio.sleep(1)
        lines = [json.loads(line) for line in desk.desk.disk.read(AUDIT).splitlines()]
        (line,) = [one for one in lines if one["event"] == "changed" and one["code"] == Code.GLOBAL_RESOLVE]
        assert line["user"] == "root"
        assert "GLOBAL_RESOLVE: Update on Cluster:DefaultCluster" in line["what"]
        for words in (f"gid={GID}", "action=retry", "because=ticket 17", "who=ann"):
            assert words in line["what"]
