"""Commands for access control: what they ask of servers, and what they print.

The servers have fixed answers: those of Apache's brokers 5.5.0 and 4.9.7.
"""

from collections.abc import Mapping

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, Printed, cluster

from turbopump.admin.commands import BY_NAME
from turbopump.admin.unsupported import UNSUPPORTED
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.errors import NoPermission, Refused
from turbopump.remoting.router import Answer, Request

OTHER_PORT, PORT = 10991, 10999
BROKER = f"127.0.0.1:{PORT}"
OTHER = f"127.0.0.1:{OTHER_PORT}"
CLUSTER = (
    f'{{"brokerAddrTable":{{"broker-a":{{"brokerAddrs":{{0:"{BROKER}",1:"{OTHER}"}},"brokerName":"broker-a",'
    '"cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
).encode()
USER = b'{"password":"mqap9","userStatus":"disable","userType":"Normal","username":"mqau1"}'
SUPER = b'{"password":"mqap2","userStatus":"enable","userType":"Super","username":"mqau2"}'
OF_OURS = b'{"userStatus":"enable","userType":"Normal","username":"mqau1"}'
ACL = (
    b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:*",'
    b'"sourceIps":["192.168.1.0/24","10.0.0.1"]},{"actions":["Pub"],"decision":"Deny",'
    b'"resource":"Topic:abc*"}],"policyType":"Custom"}],"subject":"User:mqau1"}'
)
ACCOUNTS = (
    b'{"globalWhiteAddrs":["127.0.0.9"],"plainAccessConfigs":[{"accessKey":"nothing1","admin":false,'
    b'"secretKey":"nothing-secret"},{"accessKey":"RocketMQ","admin":false,"defaultGroupPerm":"SUB",'
    b'"defaultTopicPerm":"DENY","groupPerms":["groupA=DENY","groupB=PUB|SUB"],"secretKey":"12345678"}]}'
)
VERSIONS = {
    "allAclFileVersion": '{"/conf/plain_acl.yml":{"counter":11,"timestamp":1794886393503},'
    '"/conf/acl/team.yml":{"counter":0,"timestamp":1794886017757}}',
    "clusterName": "DefaultCluster",
    "brokerAddr": BROKER,
    "brokerName": "broker-a",
    "version": '{"counter":11,"timestamp":1794886393503}',
}


class Played:
    """A broker of fixed answers that keeps what it was asked: address, code, fields and body."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, dict[str, str], bytes]] = []

    async def start(self, town: MemoryCluster, port: int, answers: Mapping[int, Answer | Exception]) -> None:
        await town.play(port, {code: self._answering(port, answer) for code, answer in answers.items()})

    def _answering(self, port: int, answer: Answer | Exception):  # type: ignore[no-untyped-def]
        def play(request: Request[None]) -> Answer:
            command = request.command
            self.asked.append((f"127.0.0.1:{port}", command.code, command.ext or {}, command.body))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return play


async def run(
    *words: str, answers: Mapping[int, Answer | Exception], other: Mapping[int, Answer | Exception] = {}
) -> tuple[Printed, Played]:
    async with cluster(0) as town:
        played = Played()
        await played.start(town, PORT, answers)
        await played.start(town, OTHER_PORT, other or answers)
        await town.play(9877, {Code.GET_BROKER_CLUSTER_INFO: lambda request: Answer(body=CLUSTER)})
        return await town.mqadmin(*words, "-n", "127.0.0.1:9877"), played


DONE = Answer(remark="not set any response code")


@virtual
async def test_users_are_created_changed_and_deleted_as_by_apaches_tool() -> None:
    answers = dict.fromkeys((Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER), DONE)
    at = ("-b", BROKER)
    printed, played = await run(
        "createUser", *at, "-u", "mqau1", "-p", "mqap1", "-t", "Normal", answers=answers
    )
    assert printed.out == f"create user to {BROKER} success.\n"
    body = b'{"password":"mqap1","userType":"Normal","username":"mqau1"}'
    assert played.asked == [(BROKER, 3001, {"username": "mqau1"}, body)]
    printed, played = await run("updateUser", *at, "-u", "mqau1", "-s", "disable", answers=answers)
    assert printed.out == f"update user to {BROKER} success.\n"
    body = b'{"userStatus":"disable","username":"mqau1"}'
    assert played.asked == [(BROKER, 3002, {"username": "mqau1"}, body)]
    printed, played = await run("deleteUser", *at, "-u", "mqau1", answers=answers)
    assert printed.out == f"delete user to {BROKER} success.\n"
    assert played.asked == [(BROKER, 3003, {"username": "mqau1"}, b"")]


@virtual
async def test_a_change_of_a_cluster_goes_to_masters_and_slaves_and_shows_no_password() -> None:
    words = ("createUser", "-c", "DefaultCluster", "-u", "mqau1", "-p", "Geheim-1")
    printed, played = await run(*words, answers={Code.AUTH_CREATE_USER: DONE})
    assert printed.lines == [f"create user to {BROKER} success.", f"create user to {OTHER} success."]
    assert [asked[0] for asked in played.asked] == [BROKER, OTHER]
    printed, _ = await run(*words, "--json", answers={Code.AUTH_CREATE_USER: DONE})
    assert printed.json == {"brokers": [BROKER, OTHER]}
    assert "Geheim" not in printed.out


@virtual
async def test_users_are_listed_with_what_the_server_tells() -> None:
    answers = {
        Code.AUTH_GET_USER: Answer(body=OF_OURS),
        Code.AUTH_LIST_USER: Answer(body=b"[" + USER + b"," + SUPER + b"]"),
    }
    printed, played = await run("listUser", "-c", "DefaultCluster", "-f", "mqau", answers=answers)
    assert printed.lines == [
        "#UserName         #Password               #UserType               #UserStatus           ",
        "mqau1             mqap9                   Normal                  disable               ",
        "mqau2             mqap2                   Super                   enable                ",
        f"get user from {BROKER} success.",
    ]
    assert played.asked == [(BROKER, 3005, {"filter": "mqau"}, b"")]
    printed, played = await run("getUser", "-b", BROKER, "-u", "mqau1", answers=answers)
    assert printed.lines[1:] == [
        "mqau1             null                    Normal                  enable                "
    ]
    assert played.asked == [(BROKER, 3004, {"username": "mqau1"}, b"")]


@virtual
async def test_a_user_that_does_not_exist_prints_nothing() -> None:
    printed, _ = await run("getUser", "-b", BROKER, "-u", "none", answers={Code.AUTH_GET_USER: DONE})
    assert (printed.status, printed.out) == (0, "")


@virtual
async def test_users_are_copied_and_those_that_exist_are_changed() -> None:
    answers = {Code.AUTH_LIST_USER: Answer(body=b"[" + USER + b"," + SUPER + b"]")}

    def known(request: Request[None]) -> Answer:
        return Answer(body=SUPER if (request.command.ext or {})["username"] == "mqau2" else b"")

    async with cluster(0) as town:
        played = Played()
        await played.start(town, PORT, answers)
        changes = {Code.AUTH_CREATE_USER: DONE, Code.AUTH_UPDATE_USER: DONE}
        other = {code: played._answering(OTHER_PORT, answer) for code, answer in changes.items()}
        await town.play(OTHER_PORT, {**other, Code.AUTH_GET_USER: known})
        printed = await town.mqadmin("copyUser", "-f", BROKER, "-t", OTHER)
    assert printed.lines == [
        f"copy user of mqau1 from {BROKER} to {OTHER} success.",
        f"copy user of mqau2 from {BROKER} to {OTHER} success.",
    ]
    asked = [(code, body) for _, code, _, body in played.asked[1:]]
    assert asked == [
        (3001, b'{"password":"mqap9","userType":"Normal","username":"mqau1"}'),
        (3002, b'{"userStatus":"disable","username":"mqau1"}'),
        (3002, SUPER),
    ]


@virtual
async def test_a_user_whose_password_the_source_does_not_tell_is_not_copied() -> None:
    answers = {Code.AUTH_GET_USER: Answer(body=OF_OURS)}
    printed, played = await run("copyUser", "-f", BROKER, "-t", OTHER, "-u", "mqau1", answers=answers)
    assert printed.status == 1
    assert f"create it at {OTHER} with `mqadmin createUser`" in printed.err
    assert {code for _, code, _, _ in played.asked} == {3004}


@virtual
async def test_unknown_users_are_named_and_nothing_is_copied() -> None:
    printed, _ = await run(
        "copyUser", "-f", BROKER, "-t", OTHER, "-u", "x,y", answers={Code.AUTH_GET_USER: DONE}
    )
    assert printed.status == 1
    assert f"{BROKER} has no user x, y; nothing was copied" in printed.err


@virtual
async def test_policies_are_created_changed_and_deleted_as_by_apaches_tool() -> None:
    answers = dict.fromkeys((Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL), DONE)
    at = ("-b", BROKER, "-s", "User:mqau1")
    words = ("-r", "Topic:*,Group:g1", "-a", "Pub,Sub", "-i", "192.168.1.0/24,10.0.0.1", "-d", "Allow")
    printed, played = await run("createAcl", *at, *words, answers=answers)
    assert printed.out == f"create acl to {BROKER} success.\n"
    assert played.asked == [
        (
            BROKER,
            3006,
            {"subject": "User:mqau1"},
            b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:*",'
            b'"sourceIps":["192.168.1.0/24","10.0.0.1"]},{"actions":["Pub","Sub"],"decision":"Allow",'
            b'"resource":"Group:g1","sourceIps":["192.168.1.0/24","10.0.0.1"]}]}],"subject":"User:mqau1"}',
        )
    ]
    printed, played = await run(
        "updateAcl", *at, "-r", "Topic:abc*", "-a", "Pub", "-d", "Deny", answers=answers
    )
    assert printed.out == f"update acl to {BROKER} success.\n"
    assert played.asked[0][1:] == (
        3007,
        {"subject": "User:mqau1"},
        b'{"policies":[{"entries":[{"actions":["Pub"],"decision":"Deny","resource":"Topic:abc*"}]}],'
        b'"subject":"User:mqau1"}',
    )
    printed, played = await run("deleteAcl", *at, "-r", "Topic:abc*", answers=answers)
    assert printed.out == f"delete acl to {BROKER} success.\n"
    assert played.asked == [(BROKER, 3008, {"subject": "User:mqau1", "resource": "Topic:abc*"}, b"")]


@virtual
async def test_policies_are_listed_one_entry_a_row() -> None:
    answers = {Code.AUTH_GET_ACL: Answer(body=ACL), Code.AUTH_LIST_ACL: Answer(body=b"[" + ACL + b"]")}
    rows = [
        "#Subject          #PolicyType  #Resource               #Actions              #SourceIp        "
        "         #Decision ",
        "User:mqau1        Custom      Topic:*                 [Pub, Sub]            [192.168.1.0/24, "
        "10.0.0.1]  Allow     ",
        "User:mqau1        Custom      Topic:abc*              [Pub]                 null             "
        "         Deny      ",
    ]
    printed, played = await run("getAcl", "-b", BROKER, "-s", "User:mqau1", answers=answers)
    assert printed.lines == rows
    assert played.asked == [(BROKER, 3009, {"subject": "User:mqau1"}, b"")]
    printed, played = await run("listAcl", "-c", "DefaultCluster", "-r", "abc", answers=answers)
    assert printed.lines == rows
    assert played.asked == [(BROKER, 3010, {"resourceFilter": "abc"}, b"")]


@virtual
async def test_policies_are_copied_with_their_types() -> None:
    answers = {Code.AUTH_GET_ACL: Answer(body=ACL)}
    other = {Code.AUTH_GET_ACL: Answer(body=ACL), Code.AUTH_UPDATE_ACL: DONE}
    printed, played = await run(
        "copyAcl", "-f", BROKER, "-t", OTHER, "-s", "User:mqau1", answers=answers, other=other
    )
    assert printed.out == f"copy acl of User:mqau1 from {BROKER} to {OTHER} success.\n"
    assert played.asked[-1] == (OTHER, 3007, {"subject": "User:mqau1"}, ACL)


@virtual
async def test_a_refusal_is_one_line_that_says_what_to_do() -> None:
    answers = {Code.AUTH_LIST_USER: NoPermission("check signature failed.")}
    printed, _ = await run("listUser", "-b", BROKER, answers=answers)
    assert printed.status == 1
    assert printed.err == (
        f"refused by {BROKER}: NO_PERMISSION (16): check signature failed.; secret_key must be the secret of "
        "that access_key at this server, got another one"
    )


@virtual
async def test_accounts_of_4_9_are_changed_as_by_apaches_tool() -> None:
    answers = {50: DONE, 51: DONE, 53: DONE}
    at = ("-b", BROKER)
    words = ("-a", "mqauser1", "-s", "mqasecret1", "-w", "10.0.0.1", "-i", "DENY", "-u", "SUB", "-m", "false")
    perms = ("-t", "topicA=PUB,topicB=SUB", "-g", "groupQ=SUB")
    printed, played = await run("updateAclConfig", *at, *words, *perms, answers=answers)
    assert printed.out == f"create or update plain access config to {BROKER} success.\n"
    fields = {
        "defaultGroupPerm": "SUB",
        "groupPerms": "groupQ=SUB",
        "secretKey": "mqasecret1",
        "accessKey": "mqauser1",
        "whiteRemoteAddress": "10.0.0.1",
        "defaultTopicPerm": "DENY",
        "topicPerms": "topicA=PUB,topicB=SUB",
        "admin": "false",
    }
    assert played.asked == [(BROKER, 50, fields, b"")]
    printed, played = await run("deleteAccessConfig", *at, "-a", "mqauser1", answers=answers)
    told = [
        "delete plain access config account from " + BROKER + " success.",
        "account's accesskey is:mqauser1",
    ]
    assert printed.lines == told
    assert played.asked == [(BROKER, 51, {"accessKey": "mqauser1"}, b"")]
    printed, played = await run("updateGlobalWhiteAddr", *at, "-g", "127.0.0.9", answers=answers)
    assert printed.out == f"update global white remote addresses to {BROKER} success.\n"
    assert played.asked == [(BROKER, 53, {"globalWhiteAddrs": "127.0.0.9"}, b"")]


@virtual
async def test_a_refused_account_is_told_without_the_secret_that_brokers_repeat() -> None:
    remark = "The accessKey=joe and secretKey=Geheim-1 cannot be null and length should longer than 6"
    answers = {50: Refused(209, remark)}
    words = ("updateAclConfig", "-b", BROKER, "-a", "joe", "-s", "Geheim-1")
    printed, _ = await run(*words, answers=answers)
    assert printed.status == 1
    assert printed.err == f"refused by {BROKER}: 209: {remark.replace('Geheim-1', '(hidden)')}"


@virtual
async def test_versions_of_files_with_accounts_are_listed_one_file_a_row() -> None:
    answers = {52: Answer(VERSIONS)}
    printed, _ = await run("clusterAclConfigVersion", "-c", "DefaultCluster", answers=answers)
    head, team, plain, end = printed.lines
    assert head == (
        "#Cluster Name     #Broker Name            #Broker Addr            #AclFilePath          "
        "#AclConfigVersionNum    #AclLastUpdateTime    "
    )
    assert team.split()[:5] == ["DefaultCluster", "broker-a", BROKER, "/conf/acl/team.yml", "0"]
    assert plain.split()[:5] == ["DefaultCluster", "broker-a", BROKER, "/conf/plain_acl.yml", "11"]
    assert end == "get cluster's plain access config version success."
    printed, _ = await run("clusterAclConfigVersion", "-b", BROKER, answers=answers)
    assert len(printed.lines) == 3
    assert printed.lines[-1] == "get broker's plain access config version success."
    older = {name: value for name, value in VERSIONS.items() if name != "allAclFileVersion"}
    printed, _ = await run("clusterAclConfigVersion", "-b", BROKER, "--json", answers={52: Answer(older)})
    assert printed.json["brokers"][0]["files"][""]["counter"] == 11


@virtual
async def test_accounts_of_4_9_are_shown_as_the_server_tells_them() -> None:
    printed, _ = await run("getAclConfig", "-b", BROKER, answers={54: Answer(body=ACCOUNTS)})
    assert printed.lines == [
        "",
        "globalWhiteRemoteAddresses: [127.0.0.9]",
        "",
        "accounts:",
        "  accessKey         : nothing1",
        "  secretKey         : nothing-secret",
        "  whiteRemoteAddress: ",
        "  admin             : false",
        "  defaultTopicPerm  : ",
        "  defaultGroupPerm  : ",
        "  topicPerms        : ",
        "  groupPerms        : ",
        "",
        "  accessKey         : RocketMQ",
        "  secretKey         : 12345678",
        "  whiteRemoteAddress: ",
        "  admin             : false",
        "  defaultTopicPerm  : DENY",
        "  defaultGroupPerm  : SUB",
        "  topicPerms        : ",
        "  groupPerms        : [groupA=DENY, groupB=PUB|SUB]",
        "",
    ]


@virtual
async def test_one_of_each_group_of_options_must_be_given() -> None:
    for words, told in (
        (("updateUser", "-u", "x", "-p", "y"), "missing: -b or -c"),
        (("updateUser", "-u", "x", "-b", BROKER), "missing: -p or -s or -t"),
        (("updateUser", "-u", "x", "-b", BROKER, "-p", "y", "-t", "Super"), "only one of -p or -s or -t"),
        (("createUser", "-u", "x", "-p", "y", "-b", BROKER, "-c", "C"), "only one of -b or -c"),
    ):
        printed, played = await run(*words, answers={})
        assert printed.status == 2
        assert told in printed.err
        assert not played.asked


@virtual
async def test_a_password_that_is_not_text_is_refused_without_showing_it() -> None:
    printed, _ = await run("createUser", "-u", "x", "-p", "Geheim\udcff", "-b", BROKER, answers={})
    assert printed.status == 2
    assert "-p (--password) must be text in UTF-8" in printed.err
    assert "Geheim" not in printed.err


@pytest.mark.parametrize(
    "name", ["createuser", "copyacl", "updateaclconfig", "getaclconfig", "deleteaccessconfig"]
)
def test_commands_of_access_control_are_supported(name: str) -> None:
    assert name in BY_NAME
    assert name not in UNSUPPORTED


@virtual
async def test_a_password_is_added_beside_the_one_before() -> None:
    words = ("updateUser", "-b", BROKER, "-u", "mqau1", "-p", "Geheim-2", "--keepSecret")
    ours = Answer({"validSecrets": "2"})
    printed, played = await run(*words, answers={Code.AUTH_UPDATE_USER: ours})
    assert printed.out == f"update user to {BROKER} success.\n"
    body = b'{"password":"Geheim-2","username":"mqau1"}'
    assert played.asked == [(BROKER, 3002, {"username": "mqau1", "keepSecret": "true"}, body)]
    printed, _ = await run(*words, answers={Code.AUTH_UPDATE_USER: DONE})
    assert f"{BROKER} cannot keep the password before: only the new one of mqau1 is valid" in printed.err
    assert "Geheim" not in printed.out + printed.err


@virtual
async def test_a_password_is_kept_only_beside_a_new_one() -> None:
    words = ("updateUser", "-b", BROKER, "-u", "mqau1", "-s", "disable", "--keepSecret")
    printed, played = await run(*words, answers={Code.AUTH_UPDATE_USER: DONE})
    assert "--keepSecret needs -p" in printed.err
    assert played.asked == []
