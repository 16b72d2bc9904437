"""The question whether a user may do something, asked of a running server (9720)."""

import json
from typing import Any

from tests.kit import virtual
from tests.unit.guard.accounts_kit import ADMIN, USER, accounts_broker
from tests.unit.guard.accounts_kit import SECRETS as ACCOUNT_SECRETS
from tests.unit.guard.kit import ALICE, NOBODY, ROOT, SECRETS, GuardedDesk, guarded, guarded_broker

from turbopump.auth.signature import Credentials
from turbopump.protocol.codes import RequestCode as Code


async def explained(
    desk: GuardedDesk, who: Credentials, user: str, action: str, resource: str, **more: str
) -> Any:
    fields = {"user": user, "action": action, "resource": resource} | more
    return json.loads((await desk.done(who, Code.AUTH_EXPLAIN, fields)).body)


@virtual
async def test_a_server_says_which_entry_of_a_user_decides() -> None:
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:orders*", "Pub")
        assert await explained(desk, ROOT, "alice", "Pub", "Topic:orders1") == {
            "action": "Pub",
            "allowed": True,
            "decidedBy": "Custom Allow Pub on Topic:orders*",
            "kind": "users",
            "lookedAt": ["Custom Allow Pub on Topic:orders*: decides"],
            "resource": "Topic:orders1",
            "source": "127.0.0.1",
            "user": "alice",
            "why": "User:alice may Pub on Topic:orders1 from 127.0.0.1: "
            "decided by Custom Allow Pub on Topic:orders*",
        }
        denied = await explained(desk, ROOT, "alice", "Sub", "Topic:orders1", source="10.0.0.7")
        assert (denied["allowed"], denied["source"]) == (False, "10.0.0.7")
        assert denied["lookedAt"] == ["Custom Allow Pub on Topic:orders*: not for this action"]
        assert "decidedBy" not in denied


@virtual
async def test_a_server_says_which_permission_of_an_account_decides() -> None:
    async with accounts_broker() as desk:
        found = await explained(desk, ADMIN, USER.access_key, "Pub", "Topic:T")
        assert (found["allowed"], found["kind"], found["decidedBy"]) == (True, "accounts", "topicPerms")
        assert found["lookedAt"] == ["admin: false", "topicPerms: PUB", "defaultTopicPerm: DENY"]
        found = await explained(desk, ADMIN, USER.access_key, "Pub", "Topic:Other")
        assert (found["allowed"], found["decidedBy"]) == (False, "defaultTopicPerm")
        found = await explained(desk, ADMIN, USER.access_key, "Update", "Cluster:DefaultCluster")
        assert (found["allowed"], found["decidedBy"]) == (False, "admin")


@virtual
async def test_who_may_read_users_may_ask_and_nobody_else() -> None:
    async with guarded_broker(guarded(authenticationWhitelist="310")) as desk:
        fields = {"user": "root", "action": "Pub", "resource": "Topic:T"}
        for who in (None, NOBODY, Credentials("root", "guessed")):
            assert (await desk.ask(who, Code.AUTH_EXPLAIN, fields)).code == 16
        await desk.grant(NOBODY, "Cluster:DefaultCluster", "Get")
        assert (await desk.ask(NOBODY, Code.AUTH_EXPLAIN, fields)).code == 0


@virtual
async def test_no_answer_has_a_secret() -> None:
    async with guarded_broker() as desk:
        for user in ("root", "alice", "none"):
            await explained(desk, ROOT, user, "Pub", "Topic:T")
        heard = b"".join(answer.body for answer in desk.heard)
    async with accounts_broker() as accounts:
        for user in (ADMIN.access_key, USER.access_key):
            await explained(accounts, ADMIN, user, "Pub", "Topic:T")
        heard += b"".join(answer.body for answer in accounts.heard)
    assert not [secret for secret in (*SECRETS, *ACCOUNT_SECRETS) if secret.encode() in heard]


@virtual
async def test_a_dry_run_is_named_and_wrong_words_are_refused() -> None:
    async with guarded_broker(guarded(authDryRun="true")) as desk:
        assert "dry run" in (await explained(desk, ROOT, "alice", "Pub", "Topic:T"))["note"]
        assert (await desk.ask(NOBODY, Code.AUTH_EXPLAIN, {})).code == 16
        wrong = await desk.ask(ROOT, Code.AUTH_EXPLAIN, {"user": "alice", "action": "write"})
        assert "action must be one of" in (wrong.remark or "")


@virtual
async def test_without_access_control_there_is_nothing_to_explain() -> None:
    from tests.unit.broker.desk import running

    async with running() as desk:
        assert (await desk.ask(Code.AUTH_EXPLAIN, {})).code == 3
