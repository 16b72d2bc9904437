"""Requests about users and policies at a guarded broker: texts, files, and what is never answered."""

import json

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import letters
from tests.unit.guard.kit import ALICE, NOBODY, ROOT, SECRETS, GuardedDesk, guarded_broker

from turbopump.auth.signature import Credentials
from turbopump.protocol.codes import RequestCode as Code

USERS = "/store/config/users.json"
NO_PERMISSION = 16


@virtual
async def test_users_are_created_shown_changed_and_deleted_with_the_texts_of_apache() -> None:
    async with guarded_broker() as desk:

        async def asked(code: int, ext: dict[str, str], body: object = None) -> tuple[int, str, bytes]:
            answer = await desk.ask(ROOT, code, ext, b"" if body is None else json.dumps(body).encode())
            return answer.code, answer.remark or "", answer.body

        done = "not set any response code"
        create, update, delete = Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER
        assert await asked(create, {"username": "bob"}, {"password": "bob-secret"}) == (0, done, b"")
        assert await asked(create, {"username": "bob"}, {"password": "x"}) == (16, "The user is existed", b"")
        assert await asked(create, {"username": ""}, {"password": "x"}) == (29, "The username is blank", b"")
        assert await asked(create, {"username": "c"}, {}) == (16, "password can not be blank", b"")
        assert await asked(Code.AUTH_GET_USER, {"username": "bob"}) == (
            *(0, done),
            b'{"userStatus":"enable","userType":"Normal","username":"bob"}',
        )
        assert await asked(update, {"username": "bob"}, {"userStatus": "disable"}) == (0, done, b"")
        assert await asked(update, {"username": "nobody2"}, {}) == (16, "The user is not exist", b"")
        listed = json.loads((await asked(Code.AUTH_LIST_USER, {"filter": "ob"}))[2])
        assert [(one["username"], one["userStatus"]) for one in listed] == [
            ("nobody", "enable"),
            ("bob", "disable"),
        ]
        assert await asked(delete, {"username": "bob"}) == (0, done, b"")
        assert await asked(delete, {"username": "bob"}) == (0, done, b"")
        assert await asked(Code.AUTH_GET_USER, {"username": "bob"}) == (0, done, b"")
        assert await asked(Code.AUTH_LIST_USER, {"filter": "bob"}) == (0, done, b"")


@virtual
async def test_policies_are_added_shown_and_deleted() -> None:
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:T", "Pub", "Sub")
        await desk.grant(ALICE, "Group:G", "Sub")
        shown = await desk.done(ROOT, Code.AUTH_GET_ACL, {"subject": "User:alice"})
        assert json.loads(shown.body) == {
            "policies": [
                {
                    "entries": [
                        {"actions": ["Pub", "Sub"], "decision": "Allow", "resource": "Topic:T"},
                        {"actions": ["Sub"], "decision": "Allow", "resource": "Group:G"},
                    ],
                    "policyType": "Custom",
                }
            ],
            "subject": "User:alice",
        }
        gone = {"subject": "User:alice", "policyType": "Custom", "resource": "Topic:T"}
        await desk.done(ROOT, Code.AUTH_DELETE_ACL, gone)
        listed = await desk.done(ROOT, Code.AUTH_LIST_ACL, {"subjectFilter": "alice"})
        assert [entry["resource"] for entry in json.loads(listed.body)[0]["policies"][0]["entries"]] == [
            "Group:G"
        ]
        await desk.done(ROOT, Code.AUTH_DELETE_ACL, {"subject": "User:alice"})
        again = await desk.ask(ROOT, Code.AUTH_DELETE_ACL, {"subject": "User:alice"})
        assert (again.code, again.remark) == (16, "The acl is not exist.")


@virtual
async def test_users_and_policies_survive_a_restart_and_the_file_shows_no_secret() -> None:
    async with guarded_broker() as first:
        await first.grant(ALICE, "Topic:T", "Pub")
        disk = first.desk.disk
    data = disk.read(USERS).decode()
    assert disk.mode(USERS) == 0o600
    assert not [secret for secret in SECRETS if secret in data]
    async with guarded_broker(disk=disk) as second:
        shown = await second.done(ROOT, Code.AUTH_GET_ACL, {"subject": "User:alice"})
        assert b"Topic:T" in shown.body
        assert (await second.ask(NOBODY, Code.AUTH_LIST_USER)).code == 16


@virtual
async def test_a_change_that_cannot_be_written_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded_broker() as desk:

        def full(*args: object, **more: object) -> None:
            raise OSError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(desk.desk.disk, "rename", full)
            answer = await desk.ask(ROOT, Code.AUTH_DELETE_USER, {"username": "alice"})
        assert (answer.code, answer.remark) == (1, f"cannot write {USERS}: no space left")
        await desk.done(ROOT, Code.AUTH_GET_ACL, {"subject": "User:alice"})


@virtual
async def test_a_body_of_more_than_a_megabyte_is_refused() -> None:
    async with guarded_broker() as desk:
        answer = await desk.ask(
            ROOT, Code.AUTH_CREATE_USER, {"username": "x"}, b'{"password":"' + b"x" * (1 << 20)
        )
        assert (answer.code, answer.remark) == (1, "the body must have at most 1048576 bytes, got 1048589")


@virtual
async def test_changes_and_refusals_are_in_the_audit_log_without_a_secret() -> None:
    async with guarded_broker() as desk:
        await desk.ask(ALICE, Code.AUTH_CREATE_USER, {"username": "evil"}, b'{"password":"evil-password"}')
        await desk.done(
            ROOT, Code.AUTH_UPDATE_USER, {"username": "alice"}, b'{"password":"changed-password"}'
        )
        disk = desk.desk.disk
    lines = [json.loads(line) for line in disk.read("/store/config/access-audit.jsonl").splitlines()]
    events = [(line["event"], line["user"], line.get("code"), line["address"]) for line in lines]
    assert ("refused", "alice", 3001, "127.0.0.1") in events
    assert ("changed", "root", 3002, "127.0.0.1") in events
    text = str(lines)
    assert not [secret for secret in (*SECRETS, "evil-password", "changed-password") if secret in text]


async def sends(desk: GuardedDesk, secret: str) -> int:
    who = Credentials("alice", secret)
    return (await desk.ask(who, Code.SEND_MESSAGE_V2, letters("T"), b"x")).code


@virtual
async def test_a_secret_is_replaced_in_three_steps_without_a_refusal() -> None:
    old, new = ALICE.secret_key, "next-secret-of-alice"
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        assert [await sends(desk, one) for one in (old, new)] == [0, NO_PERMISSION]
        body = json.dumps({"password": new}).encode()
        kept = {"username": "alice", "keepSecret": "true"}
        added = await desk.done(ROOT, Code.AUTH_UPDATE_USER, kept, body)
        assert added.ext == {"validSecrets": "2"}
        assert [await sends(desk, one) for one in (old, new)] == [0, 0]
        removed = await desk.done(ROOT, Code.AUTH_UPDATE_USER, {"username": "alice"}, body)
        assert not removed.ext
        assert [await sends(desk, one) for one in (old, new)] == [NO_PERMISSION, 0]
        disk = desk.desk.disk
    assert new.encode() not in disk.read("/store/config/users.json")
    assert b"has another password (2 valid)" in disk.read("/store/config/access-audit.jsonl")


@virtual
async def test_two_valid_secrets_survive_a_restart_and_apaches_update_leaves_one() -> None:
    async with guarded_broker() as desk:
        kept = {"username": "alice", "keepSecret": "true"}
        await desk.done(ROOT, Code.AUTH_UPDATE_USER, kept, b'{"password":"second-secret"}')
        disk = desk.desk.disk
    async with guarded_broker(disk=disk) as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        secrets = (ALICE.secret_key, "second-secret", "third-secret")
        assert [await sends(desk, one) for one in secrets] == [0, 0, NO_PERMISSION]
        await desk.done(ROOT, Code.AUTH_UPDATE_USER, {"username": "alice"}, b'{"password":"third-secret"}')
        assert [await sends(desk, one) for one in secrets] == [NO_PERMISSION, NO_PERMISSION, 0]


@virtual
async def test_a_secret_is_kept_only_beside_a_new_one() -> None:
    async with guarded_broker() as desk:
        kept = {"username": "alice", "keepSecret": "true"}
        refused = await desk.ask(ROOT, Code.AUTH_UPDATE_USER, kept, b'{"userStatus":"disable"}')
        assert "keepSecret needs a password" in (refused.remark or "")
