"""A broker with the accounts of 4.x: its files, their reload, requests 50 to 54."""

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, running
from tests.unit.guard.accounts_kit import (
    ADMIN,
    DELETE_FAILED,
    MAIN,
    MAIN_TEXT,
    NO_PERMISSION,
    SECRETS,
    TEAM,
    TEAMUSER,
    UPDATE_FAILED,
    USER,
    WHITE_FAILED,
    a_disk,
    accounts_broker,
    sends,
)
from tests.unit.guard.kit import KEY, GuardedDesk

from turbopump.auth.signature import Credentials
from turbopump.guard.account_files import AccountFiles
from turbopump.guard.account_table import AccountTable
from turbopump.guard.config import AccessConfig
from turbopump.guard.extra import ExtraMissing
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.protocol.codes import RequestCode as Code
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork


@virtual
async def test_accounts_of_all_files_send_what_they_may() -> None:
    async with accounts_broker() as desk:
        assert await sends(desk, None) == NO_PERMISSION
        assert await sends(desk, USER) == 0
        assert await sends(desk, USER, "Other") == NO_PERMISSION
        assert await sends(desk, TEAMUSER, "Other") == 0
        assert await sends(desk, ADMIN, "Third") == 0
        assert await sends(desk, Credentials(USER.access_key, "wrong-secret")) == NO_PERMISSION


@virtual
async def test_a_changed_file_counts_after_five_seconds_and_a_broken_one_never(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with accounts_broker() as desk:
        disk = desk.desk.disk
        disk.write(MAIN, MAIN_TEXT.replace("T=PUB", "T=DENY").encode())
        await asyncio.sleep(5.1)
        assert await sends(desk, USER) == NO_PERMISSION
        for broken in ("accounts: [", "", MAIN_TEXT.replace("T=PUB", "T=PBU"), "- 1"):
            disk.write(MAIN, broken.encode())
            caplog.clear()
            await asyncio.sleep(20)
            assert await sends(desk, ADMIN) == 0
            assert caplog.text.count("The accounts before stay") == 1
        disk.write(MAIN, MAIN_TEXT.encode())
        await asyncio.sleep(5.1)
        assert await sends(desk, USER) == 0
        disk.remove(TEAM)
        await asyncio.sleep(5.1)
        assert await sends(desk, TEAMUSER) == NO_PERMISSION


@pytest.mark.parametrize(
    ("main", "why"),
    [
        ("accounts: [", "is not YAML in line"),
        (MAIN_TEXT.replace("T=PUB", "T=PBU"), "PBU"),
        (MAIN_TEXT.replace("defaultGroupPerm: SUB", "defaultGroupPerm: SOME"), "SOME"),
        ("accounts: !!python/object/apply:os.system ['true']", "is not YAML"),
        ("", "the file must be a map"),
        ("[" * 100_000, "must have at most 16 lists and maps in each other"),
        ("- " * 100_000, "must have at most 16 lists and maps in each other"),
    ],
)
@virtual
async def test_a_file_that_cannot_be_used_stops_the_start_and_is_named(main: str, why: str) -> None:
    with pytest.raises(Exception, match=MAIN) as raised:
        async with accounts_broker(a_disk(main)):
            pass
    assert why in str(raised.value)
    assert not [secret for secret in SECRETS if secret in str(raised.value)]


@virtual
async def test_a_missing_file_stops_the_start() -> None:
    with pytest.raises(Exception, match=r"/conf/plain_acl.yml does not exist"):
        async with accounts_broker(SimulatedDisk(Chance(1), VirtualClock())):
            pass


@virtual
async def test_accounts_become_users_of_5x_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    access = AccessConfig(authentication=True, migrates_accounts=True, accounts_dir="/conf")
    disk = a_disk(MAIN_TEXT.replace("Addresses: []", "Addresses: [10.0.0.1]"))
    for run in range(2):
        caplog.clear()
        async with running(replace(CONFIG, access=access), disk) as running_desk:
            desk = GuardedDesk(running_desk)
            assert await sends(desk, USER) == 0
            assert await sends(desk, USER, "Other") == NO_PERMISSION
            assert await sends(desk, TEAMUSER, "Other") == 0
            assert await sends(desk, ADMIN, "Third") == 0
        assert ("Made users of the accounts" in caplog.text) is (run == 0)
        assert "not taken over from the accounts: globalWhiteRemoteAddresses 10.0.0.1" in caplog.text


@virtual
async def test_accounts_are_created_changed_and_deleted_by_administrators() -> None:
    async with accounts_broker() as desk:
        new = Credentials("newaccount", "new-secret-word")
        asked: dict[str, Any] = {
            "accessKey": new.access_key,
            "secretKey": new.secret_key,
            "topicPerms": "A=PUB,B=PUB|SUB",
        }
        await desk.done(ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, asked)
        assert [await sends(desk, new, topic) for topic in ("A", "B", "C")] == [0, 0, NO_PERMISSION]
        written = yaml.safe_load(desk.desk.disk.read(MAIN))
        assert written["accounts"][-1] == {
            "accessKey": new.access_key,
            "secretKey": new.secret_key,
            "topicPerms": ["A=PUB", "B=PUB|SUB"],
        }
        assert written["dataVersion"][0]["counter"] == 1
        assert desk.desk.disk.mode(MAIN) == 0o600
        await desk.done(ADMIN, Code.DELETE_ACL_CONFIG, {"accessKey": new.access_key})
        assert await sends(desk, new, "A") == NO_PERMISSION
        gone = await desk.ask(ADMIN, Code.DELETE_ACL_CONFIG, {"accessKey": new.access_key})
        text = f"The accesskey[{new.access_key}] corresponding to accessConfig has been deleted failed."
        assert (gone.code, gone.remark) == (DELETE_FAILED, text)


@virtual
async def test_requests_that_make_no_account_are_refused_in_the_words_of_apache() -> None:
    async with accounts_broker() as desk:
        new = {"accessKey": "newaccount", "secretKey": "new-secret-word"}
        for ext, remark in (
            (
                {"accessKey": "abc", "secretKey": "1234567"},
                "The accessKey=abc and secretKey cannot be null and length should longer than 6",
            ),
            (
                {"accessKey": "newaccount"},
                "The accessKey=newaccount and secretKey cannot be null and length should longer than 6",
            ),
            (
                new | {"topicPerms": "T1"},
                "Parse Resource format error for T1.\nThe expected resource format is 'Res=Perm'. "
                "For example: topicA=SUB",
            ),
            (
                new | {"groupPerms": "T1=PUB,T2=NO"},
                "Parse resource permission error for T2=NO.\nThe expected permissions are 'SUB' or 'PUB' "
                "or 'SUB|PUB' or 'PUB|SUB'.",
            ),
        ):
            answer = await desk.ask(ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, ext)
            assert (answer.code, answer.remark) == (UPDATE_FAILED, remark)
        gone = await desk.ask(ADMIN, Code.DELETE_ACL_CONFIG)
        text = "The accesskey[null] corresponding to accessConfig has been deleted failed."
        assert (gone.code, gone.remark) == (DELETE_FAILED, text)


@virtual
async def test_white_addresses_are_set_in_the_file_that_is_named() -> None:
    async with accounts_broker() as desk:
        asked = {"globalWhiteAddrs": "10.0.0.{1,2},127.0.0.*", "aclFileFullPath": TEAM}
        await desk.done(ADMIN, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, asked)
        assert await sends(desk, None) == 0
        written = yaml.safe_load(desk.desk.disk.read(TEAM))
        assert written["globalWhiteRemoteAddresses"] == ["10.0.0.{1,2}", "127.0.0.*"]
        outside = {"globalWhiteAddrs": "*", "aclFileFullPath": "/etc/passwd"}
        assert (await desk.ask(ADMIN, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, outside)).code == WHITE_FAILED


@virtual
async def test_versions_of_all_files_are_answered() -> None:
    async with accounts_broker() as desk:
        await desk.done(ADMIN, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": ""})
        answer = await desk.done(ADMIN, Code.GET_BROKER_CLUSTER_ACL_INFO, {})
        assert answer.ext is not None
        assert json.loads(answer.ext["version"])["counter"] == 1
        versions = json.loads(answer.ext["allAclFileVersion"])
        assert {path: version["counter"] for path, version in versions.items()} == {MAIN: 1, TEAM: 0}
        assert (answer.ext["brokerName"], answer.ext["clusterName"]) == ("broker-a", "DefaultCluster")


@virtual
async def test_a_change_that_cannot_be_written_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    async with accounts_broker() as desk:

        def full(*args: object, **more: object) -> None:
            raise OSError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(desk.desk.disk, "rename", full)
            answer = await desk.ask(ADMIN, Code.DELETE_ACL_CONFIG, {"accessKey": USER.access_key})
        assert (answer.code, answer.remark) == (DELETE_FAILED, f"cannot write {MAIN}: no space left")
        assert await sends(desk, USER) == 0


@virtual
async def test_secrets_of_accounts_are_in_no_log_line_and_no_audit_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    async with accounts_broker() as desk:
        asked = {"accessKey": USER.access_key, "secretKey": USER.secret_key, "defaultTopicPerm": "PUB"}
        await desk.done(ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, asked)
        await desk.ask(USER, Code.UPDATE_AND_CREATE_ACL_CONFIG, asked)
        disk = desk.desk.disk
    audit = disk.read("/store/config/access-audit.jsonl").decode()
    assert "account plainuser updated" in audit
    for secret in SECRETS:
        assert secret not in caplog.text
        assert secret not in audit


@virtual
async def test_files_that_others_can_read_are_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    disk = a_disk(MAIN_TEXT.replace("plain-secret-word", "12345678"))
    disk.write("/conf/acl/open.yml", b"accounts: []\n")
    async with accounts_broker(disk):
        pass
    assert "/conf/acl/open.yml can be read by every user of this machine: chmod 600" in caplog.text
    assert f"{MAIN} can be read" not in caplog.text
    assert "accounts with a secret of Apache's examples: plainuser" in caplog.text


@virtual
async def test_the_last_administrator_is_neither_deleted_nor_demoted() -> None:
    remark = "this is the last account with admin: true: create another one first"
    async with accounts_broker() as desk:
        before = desk.desk.disk.read(MAIN)
        own = {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}
        demoted = await desk.ask(ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, own | {"admin": "false"})
        assert (demoted.code, demoted.remark) == (UPDATE_FAILED, remark)
        deleted = await desk.ask(ADMIN, Code.DELETE_ACL_CONFIG, own)
        assert (deleted.code, deleted.remark) == (DELETE_FAILED, remark)
        assert desk.desk.disk.read(MAIN) == before
        user = {"accessKey": USER.access_key, "secretKey": USER.secret_key, "admin": "true"}
        await desk.done(ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, user)
        await desk.done(ADMIN, Code.DELETE_ACL_CONFIG, own)
        refused = await desk.ask(USER, Code.DELETE_ACL_CONFIG, user)
        assert refused.remark == remark


@virtual
async def test_files_are_parsed_in_a_thread_and_never_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 accounts take 0.1 s: the loop must not stand still for it."""
    depth, parsed_in_worker = 0, list[bool]()

    async def run(work: Any, *arguments: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return work(*arguments)
        finally:
            depth -= 1

    def parse(files: AccountFiles, contents: Any) -> Any:
        parsed_in_worker.append(depth > 0)
        return parse_as_ever(files, contents)

    disk, clock, parse_as_ever = a_disk(), VirtualClock(), AccountFiles.parse
    table = AccountTable("/conf", disk, run, clock)
    table.open()
    monkeypatch.setattr(AccountFiles, "parse", parse)
    watching = asyncio.ensure_future(table.watch())
    disk.write(MAIN, MAIN_TEXT.replace("T=PUB", "T=DENY").encode())
    await asyncio.sleep(5.1)
    assert not table.accounts.by_key["plainuser"].topics["T"]
    await table.change(lambda values: next(iter(values)))
    watching.cancel()
    assert parsed_in_worker == [True, True]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"accounts": True}, "aclEnable"),
        ({"authentication": True, "migrates_accounts": True}, "migrateAuthFromV1Enabled"),
    ],
)
@virtual
async def test_a_start_without_pyyaml_stops_and_names_the_extra(
    settings: dict[str, Any], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    access = AccessConfig(accounts_dir="/conf", secret_key=KEY, **settings)
    with pytest.raises(ExtraMissing, match=rf"^{key} needs PyYAML: pip install 'turbopump\[security\]'$"):
        async with running(replace(CONFIG, access=access), a_disk()):
            pass
    with pytest.raises(ExtraMissing, match=f"^{key} needs PyYAML"):
        await NameServer(NamesrvConfig(access=access), MemoryNetwork(), VirtualClock(), a_disk()).start()
