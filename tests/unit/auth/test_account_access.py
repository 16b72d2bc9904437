from typing import Any

import pytest

from turbopump.auth import account_access as limits
from turbopump.auth.access import Identity, Source
from turbopump.auth.account_access import AccountAccess
from turbopump.auth.accounts import read_accounts
from turbopump.auth.resources import Action, Need, cluster, group, topic
from turbopump.auth.signature import Credentials, keyed, signature_of
from turbopump.protocol.command import Command
from turbopump.protocol.errors import NoPermission

SECRET = "secret-of-all"
HERE = Source("127.0.0.1")
ACCOUNTS = read_accounts(
    {
        "globalWhiteRemoteAddresses": ["10.0.0.*"],
        "accounts": [
            {
                "accessKey": "normal1",
                "secretKey": SECRET,
                "topicPerms": ["pub=PUB", "sub=SUB", "both=PUB|SUB", "deny=DENY"],
                "groupPerms": ["own=SUB", "tx=PUB", "deny=DENY"],
                "defaultGroupPerm": "SUB",
            },
            {"accessKey": "office1", "secretKey": SECRET, "whiteRemoteAddress": "10.1.0.*"},
            {"accessKey": "admin11", "secretKey": SECRET, "admin": True},
            {"accessKey": "listed1", "secretKey": SECRET, "admin": True, "topicPerms": ["sub=SUB"]},
        ],
    }
)


def signed(key: str, secret: str = SECRET) -> Command:
    return Command(310, ext=Credentials(key, secret).signed({"b": "T"}, b""))


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(NoPermission) as refused:
        call(*arguments)
    return refused.value.remark


# --- who, in the order of the checks --------------------------------------------------------------------


def test_a_global_white_address_needs_no_key_and_may_do_all_but_what_is_for_administrators() -> None:
    access, white = AccountAccess(ACCOUNTS), Source("10.0.0.7")
    for command in (Command(26), signed("nobody1"), signed("normal1", "wrong-secret"), signed("normal1")):
        identity = access.identify(command, white)
        assert identity == Identity("10.0.0.7", False, "address")
        access.authorize(identity, (topic("deny", Action.PUB), topic("new", Action.CREATE)), white, 17)
        access.authorize(identity, (cluster("C", Action.GET),), white, 26)
        text = "Need admin permission for request code=25, but a white address is not"
        assert refusal(access.authorize, identity, (cluster("C", Action.UPDATE),), white, 25) == text
        text = "Need admin permission for request code=52, but a white address is not"
        assert refusal(access.authorize, identity, (cluster("C", Action.GET),), white, 52) == text


@pytest.mark.parametrize("code", [103, 104, 322, 904])
def test_brokers_at_a_white_address_register_though_those_of_4x_never_sign(code: int) -> None:
    access, white = AccountAccess(ACCOUNTS), Source("10.0.0.7")
    access.authorize(access.identify(Command(code), white), (cluster("C", Action.UPDATE),), white, code)


@pytest.mark.parametrize("key", ["admin11", "listed1"])
def test_an_administrator_at_a_white_address_is_one_by_its_signature_or_certificate(key: str) -> None:
    access = AccountAccess(ACCOUNTS)
    for command, certificate in ((signed(key), ""), (Command(25), key)):
        source = Source("10.0.0.7", certificate)
        identity = access.identify(command, source)
        assert (identity.name, identity.is_super) == (key, True)
        access.authorize(identity, (cluster("C", Action.UPDATE),), source, 50)
    unsigned = access.identify(Command(25, ext={"AccessKey": key}), Source("10.0.0.7"))
    assert not unsigned.is_super


def test_a_white_address_is_one_of_this_request_only() -> None:
    access = AccountAccess(ACCOUNTS)
    access.identify(Command(26), Source("10.0.0.7"))
    assert refusal(access.identify, Command(26), HERE) == "No accessKey is configured"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (Command(26), "No accessKey is configured"),
        (Command(26, ext={"AccessKey": ""}), "No accessKey is configured"),
        (signed("nobody1"), "No acl config for nobody1"),
        (signed("normal1", "wrong-secret"), "Check signature failed for accessKey=normal1"),
        (Command(26, ext={"AccessKey": "normal1"}), "Check signature failed for accessKey=normal1"),
        (Command(26, ext={"AccessKey": "office1"}), "Check signature failed for accessKey=office1"),
    ],
)
def test_who_is_not_certain_is_refused_with_apaches_text(command: Command, text: str) -> None:
    assert refusal(AccountAccess(ACCOUNTS).identify, command, HERE) == text


def test_the_white_address_of_an_account_needs_its_key_alone() -> None:
    identity = AccountAccess(ACCOUNTS).identify(Command(26, ext={"AccessKey": "office1"}), Source("10.1.0.9"))
    assert identity == Identity("office1", False, "address")
    may_all = topic("deny", Action.PUB), group("any", Action.SUB), cluster("C", Action.GET)
    AccountAccess(ACCOUNTS).authorize(identity, may_all, Source("10.1.0.9"), 310)


def test_an_account_at_its_white_address_is_no_administrator() -> None:
    """Whoever has the address and knows the key, which is no secret, would make himself one with 50."""
    access, office = AccountAccess(ACCOUNTS), Source("10.1.0.9")
    for command in (Command(50, ext={"AccessKey": "office1"}), signed("office1")):
        identity = access.identify(command, office)
        assert "Need admin permission" in refusal(
            access.authorize, identity, (cluster("C", Action.UPDATE),), office, 50
        )


def test_plain_sends_are_checked_by_their_signature_where_no_white_address_decides() -> None:
    """White addresses of others must not switch the fast way of plain sends off."""
    access, content = AccountAccess(ACCOUNTS), b"what was signed"
    signature = signature_of(content, keyed(SECRET))
    found = {
        (key, address): access.signer_of(key, signature, content, Source(address)) is not None
        for key, address in (
            ("normal1", "127.0.0.1"),
            ("normal1", "10.0.0.7"),
            ("office1", "127.0.0.1"),
            ("office1", "10.1.0.9"),
        )
    }
    assert list(found.values()) == [True, False, True, False]


def test_a_certificate_names_the_account_of_an_unsigned_request() -> None:
    access = AccountAccess(ACCOUNTS)
    named = access.identify(Command(26), Source("127.0.0.1", "normal1"))
    assert named == Identity("normal1", False, "certificate")
    assert (
        refusal(access.identify, Command(26), Source("127.0.0.1", "nobody1")) == "No acl config for nobody1"
    )


def test_only_administrators_without_lists_are_super_users() -> None:
    access = AccountAccess(ACCOUNTS)
    found = {key: access.identify(signed(key), HERE).is_super for key in ("normal1", "admin11", "listed1")}
    assert found == {"normal1": False, "admin11": True, "listed1": False}


# --- what -----------------------------------------------------------------------------------------------


def may(key: str, need: Need, code: int | None = None) -> str:
    """Returns the refusal of a need, "" if it is met."""
    access = AccountAccess(ACCOUNTS)
    try:
        access.authorize(access.identify(signed(key), HERE), (need,), HERE, code)
    except NoPermission as refused:
        return refused.remark
    return ""


@pytest.mark.parametrize(
    ("need", "text"),
    [
        (topic("pub", Action.PUB), ""),
        (topic("both", Action.PUB), ""),
        (topic("sub", Action.SUB), ""),
        (topic("sub", Action.SUB, Action.UPDATE), ""),
        (topic("sub", Action.GET), ""),
        (topic("pub", Action.PUB, Action.SUB, Action.GET), ""),
        (group("own", Action.UPDATE), ""),
        (group("any", Action.SUB), ""),
        (group("tx", Action.PUB), ""),
        (topic("RMQ_SYS_TRACE_TOPIC", Action.PUB), ""),
        (topic("sub", Action.PUB), "No default permission for topic:sub"),
        (topic("pub", Action.SUB), "No default permission for topic:pub"),
        (topic("pub", Action.GET), "No default permission for topic:pub"),
        (topic("deny", Action.PUB, Action.SUB), "No default permission for topic:deny"),
        (topic("other", Action.PUB), "No default permission for topic:other"),
        (topic("RMQ_SYS_TRACE_TOPIC", Action.SUB), "No default permission for topic:RMQ_SYS_TRACE_TOPIC"),
        (group("deny", Action.SUB), "No default permission for group:deny"),
        (group("tx", Action.SUB), "No default permission for group:tx"),
        (
            topic("both", Action.CREATE),
            "Need admin permission for request code=17, but accessKey=normal1 is not",
        ),
        (
            group("own", Action.CREATE),
            "Need admin permission for request code=17, but accessKey=normal1 is not",
        ),
        (cluster("C", Action.GET), "Need admin permission for request code=17, but accessKey=normal1 is not"),
    ],
)
def test_an_account_may_do_what_its_lists_say(need: Need, text: str) -> None:
    assert may("normal1", need, 17) == text


def test_a_refusal_without_a_code_names_the_request() -> None:
    text = may("normal1", cluster("C", Action.GET))
    assert text == "Need admin permission for this request, but accessKey=normal1 is not"


def test_an_administrator_with_a_list_is_checked_for_sends_and_pulls_only() -> None:
    assert may("listed1", topic("sub", Action.SUB)) == ""
    assert may("listed1", topic("sub", Action.PUB)) == "No default permission for topic:sub"
    assert may("listed1", topic("other", Action.SUB)) == "No default permission for topic:other"
    for need in (topic("other", Action.CREATE), topic("other", Action.GET), cluster("C", Action.UPDATE)):
        assert may("listed1", need) == ""


def test_all_needs_must_be_met() -> None:
    access = AccountAccess(ACCOUNTS)
    needs = topic("sub", Action.SUB), group("deny", Action.SUB)
    text = refusal(access.authorize, Identity("normal1"), needs, HERE)
    assert text == "No default permission for group:deny"


def test_changed_accounts_count_from_the_next_request_on() -> None:
    access = AccountAccess(ACCOUNTS)
    identity = access.identify(signed("normal1"), HERE)
    access.identify(Command(26), Source("10.0.0.7"))
    access.accounts = read_accounts({})
    assert refusal(access.identify, signed("normal1"), HERE) == "No acl config for normal1"
    assert (
        refusal(access.authorize, identity, (topic("pub", Action.PUB),), HERE) == "No acl config for normal1"
    )
    assert refusal(access.identify, Command(26), Source("10.0.0.7")) == "No accessKey is configured"


def test_remembered_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 2)
    access = AccountAccess(ACCOUNTS)
    for number in range(5):
        access.identify(Command(26), Source(f"10.0.0.{number}"))
        assert len(access._white) <= 2


# --- why ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "need", "source", "text"),
    [
        (
            "nobody1",
            topic("pub", Action.PUB),
            HERE,
            "nobody1 may not Pub on Topic:pub: there is no such account",
        ),
        ("normal1", topic("pub", Action.PUB), HERE, "normal1 may Pub on Topic:pub: topicPerms says PUB"),
        (
            "normal1",
            topic("x", Action.PUB),
            HERE,
            "normal1 may not Pub on Topic:x: defaultTopicPerm says DENY",
        ),
        (
            "normal1",
            group("deny", Action.SUB),
            HERE,
            "normal1 may not Sub on Group:deny: groupPerms says DENY",
        ),
        (
            "normal1",
            cluster("C", Action.GET),
            HERE,
            "normal1 may not Get on Cluster:C: that is for administrators",
        ),
        (
            "admin11",
            cluster("C", Action.GET),
            HERE,
            "admin11 may Get on Cluster:C: an administrator without lists may do everything",
        ),
        (
            "office1",
            topic("x", Action.PUB),
            Source("10.1.0.1"),
            "office1 may Pub on Topic:x from 10.1.0.1: its whiteRemoteAddress",
        ),
        (
            "normal1",
            topic("x", Action.PUB),
            Source("10.0.0.1"),
            "10.0.0.1 may Pub on Topic:x: it is among globalWhiteRemoteAddresses",
        ),
    ],
)
def test_a_decision_is_explained(key: str, need: Need, source: Source, text: str) -> None:
    found = AccountAccess(ACCOUNTS).explain(key, need, source)
    assert (found.text, found.is_allowed) == (text, "may not" not in text)
    assert SECRET not in repr(found)


# --- who is it now --------------------------------------------------------------------------------------


def test_an_identity_of_before_has_the_rights_of_now_or_none() -> None:
    access = AccountAccess(ACCOUNTS)
    white, office = Source("10.0.0.7"), Source("10.1.0.7")
    found = [
        (access.identify(Command(26), white), white),
        (access.identify(signed("office1"), office), office),
        (access.identify(signed("admin11"), HERE), HERE),
    ]
    assert [access.current(*one) for one in found] == [one for one, _ in found]
    demoted = {"accounts": [{"accessKey": key, "secretKey": SECRET} for key in ("office1", "admin11")]}
    access.accounts = read_accounts(demoted)
    assert access.current(*found[2]) == Identity("admin11")
    for one in found[:2]:
        assert "no white address any more" in refusal(access.current, *one)
    access.accounts = read_accounts({})
    assert refusal(access.current, *found[2]) == "No acl config for admin11"


def test_an_account_whose_list_names_the_trace_topic_sends_traces_by_its_list() -> None:
    trace = topic("RMQ_SYS_TRACE_TOPIC", Action.PUB)
    for perm, is_allowed in (("DENY", False), ("SUB", False), ("PUB", True)):
        row = {"accessKey": "normal1", "secretKey": SECRET, "topicPerms": [f"RMQ_SYS_TRACE_TOPIC={perm}"]}
        access = AccountAccess(read_accounts({"accounts": [row]}))
        assert access.explain("normal1", trace, HERE).is_allowed is is_allowed
        identity = access.identify(signed("normal1"), HERE)
        if is_allowed:
            access.authorize(identity, (trace,), HERE)
        else:
            text = "No default permission for topic:RMQ_SYS_TRACE_TOPIC"
            assert refusal(access.authorize, identity, (trace,), HERE) == text


def test_what_was_allowed_is_forgotten_when_the_accounts_change() -> None:
    row = {"accessKey": "normal1", "secretKey": SECRET, "topicPerms": ["T=PUB"]}
    access = AccountAccess(read_accounts({"accounts": [row]}))
    identity, need = access.identify(signed("normal1"), HERE), topic("T", Action.PUB)
    for _ in range(2):
        access.authorize(identity, (need,), HERE)
    access.accounts = read_accounts({"accounts": [row | {"topicPerms": ["T=DENY"]}]})
    assert refusal(access.authorize, identity, (need,), HERE) == "No default permission for topic:T"
    access.accounts = read_accounts({"accounts": []})
    assert refusal(access.authorize, identity, (need,), HERE) == "No acl config for normal1"


def test_the_number_of_remembered_permissions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 3)
    row = {"accessKey": "normal1", "secretKey": SECRET, "defaultTopicPerm": "PUB"}
    access = AccountAccess(read_accounts({"accounts": [row]}))
    for number in range(10):
        access.authorize(Identity("normal1"), (topic(f"T{number}", Action.PUB),), HERE)
        assert len(access._allowed) <= 3
    access.authorize(Identity("normal1"), (topic("x" * 256, Action.PUB),), HERE)
    assert len(access._allowed) <= 3
