from typing import Any

import pytest

from turbopump.auth import accounts as limits
from turbopump.auth.accounts import PERMS, Account, merged, perm_of, read_account, read_accounts
from turbopump.auth.addresses import AddressPattern
from turbopump.auth.resources import Action
from turbopump.protocol.conf import ConfigError

PUB, SUB = frozenset({Action.PUB}), frozenset({Action.SUB})
ROW = {"accessKey": "RocketMQ", "secretKey": 12345678}


def account(**fields: Any) -> Account:
    return read_account(ROW | fields)


def test_an_account_has_what_its_fields_say() -> None:
    found = account(
        whiteRemoteAddress="10.0.0.*",
        admin=True,
        defaultTopicPerm="PUB",
        defaultGroupPerm="SUB|PUB",
        topicPerms=["topicA=DENY", " topicB = PUB|SUB "],
        groupPerms=["groupA=SUB"],
    )
    assert (found.access_key, found.secret_key, found.is_admin) == ("RocketMQ", "12345678", True)
    assert found.white_address == AddressPattern.parse("10.0.0.*")
    assert (found.on_topic("topicA"), found.on_topic("topicB"), found.on_topic("x")) == (
        frozenset(),
        PUB | SUB,
        PUB,
    )
    assert (found.on_group("groupA"), found.on_group("x")) == (SUB, PUB | SUB)


def test_what_is_missing_or_empty_is_denied() -> None:
    for fields in ({}, dict.fromkeys(("admin", "defaultTopicPerm", "topicPerms", "whiteRemoteAddress"))):
        found = account(**fields)
        assert (found.on_topic("t"), found.on_group("g"), found.is_admin) == (frozenset(), frozenset(), False)
        assert not found.white_address.matches("127.0.0.1")


def test_a_retry_topic_among_the_topics_is_its_group() -> None:
    assert account(topicPerms=["%RETRY%G=SUB"]).groups == {"G": SUB}


def test_only_an_administrator_without_lists_is_unlimited() -> None:
    assert account(admin="true").is_unlimited
    assert not account(admin=True, topicPerms=["t=PUB"]).is_unlimited
    assert not account(admin=True, groupPerms=["g=SUB"]).is_unlimited
    assert not account().is_unlimited


@pytest.mark.parametrize("text", PERMS)
def test_every_permission_is_read_by_its_name(text: str) -> None:
    assert perm_of(f" {text} ", "x") == PERMS[text]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topicPerms": ["t=NO"]}, "must be DENY, PUB, SUB, PUB"),
        ({"topicPerms": ["t=pub"]}, "must be DENY, PUB, SUB, PUB"),
        ({"topicPerms": ["t=PUB|SUB|PUB"]}, "must be DENY, PUB, SUB, PUB"),
        ({"topicPerms": ["t="]}, "must be DENY, PUB, SUB, PUB"),
        ({"defaultTopicPerm": "DENIED"}, "must be DENY, PUB, SUB, PUB"),
        ({"defaultGroupPerm": "ANY"}, "must be DENY, PUB, SUB, PUB"),
        ({"topicPerms": ["t"]}, "entries such as topicA=SUB"),
        ({"topicPerms": ["t=PUB=SUB"]}, "entries such as topicA=SUB"),
        ({"topicPerms": ["=PUB"]}, "entries such as topicA=SUB"),
        ({"topicPerms": ["t=PUB", "t=DENY"]}, "two different permissions"),
        ({"topicPerms": ["%RETRY%g=PUB"], "groupPerms": ["g=DENY"]}, "two different permissions"),
        ({"topicPerms": ["*=PUB"]}, "must have exact names"),
        ({"groupPerms": ["g*=PUB"]}, "must have exact names"),
        ({"topicPerms": "t=PUB"}, "must be a list"),
        ({"topicPerm": ["t=DENY"]}, "got 'topicPerm'"),
        ({"admin": "maybe"}, "must be true or false"),
        ({"admin": 1}, "must be true or false"),
        ({"whiteRemoteAddress": "10.0.0"}, "cannot be read"),
        ({"whiteRemoteAddress": ["10.0.0.1"]}, "must be a text"),
        ({"accessKey": "short6"}, "must have 7 to 255 characters, got 6"),
        ({"accessKey": None}, "must have 7 to 255 characters, got 0"),
        ({"secretKey": "s" * 256}, "must have 7 to 255 characters, got 256"),
        ({"secretKey": True}, "must be a text"),
        ({"secretKey": 1.5}, "must be a text"),
    ],
)
def test_what_cannot_be_read_is_an_error(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        account(**fields)
    assert words in error.value.message


def test_keys_have_bounds() -> None:
    account(accessKey="7letter", secretKey="s" * 255)
    with pytest.raises(ConfigError):
        account(secretKey="6chars")


def test_an_error_never_has_the_secret() -> None:
    for secret in ("tiny", "x" * 300, ["listed-secret"]):
        with pytest.raises(ConfigError) as error:
            account(secretKey=secret)
        assert str(secret) not in str(error.value)
        assert "listed-secret" not in str(error.value)
    assert "12345678" not in repr(account())


@pytest.mark.parametrize("value", [None, [], "text", {"account": []}, {"accounts": {}}, {"accounts": [7]}])
def test_a_file_that_is_no_map_of_accounts_is_an_error(value: Any) -> None:
    with pytest.raises(ConfigError):
        read_accounts(value)


def test_a_file_has_accounts_and_white_addresses() -> None:
    found = read_accounts(
        {
            "globalWhiteRemoteAddresses": ["10.10.103.*", None],
            "accounts": [ROW],
            "dataVersion": [{"counter": 1, "timestamp": 2}],
        }
    )
    assert list(found.by_key) == ["RocketMQ"]
    assert found.is_white("10.10.103.7")
    assert not found.is_white("10.10.104.7")
    assert read_accounts({}).by_key == read_accounts({"accounts": None}).by_key == {}


def test_an_access_key_comes_once_in_a_file() -> None:
    with pytest.raises(ConfigError, match="must be unique"):
        read_accounts({"accounts": [ROW, ROW]})


def test_the_first_of_several_files_counts_for_a_key() -> None:
    first = read_accounts({"accounts": [ROW | {"admin": True}], "globalWhiteRemoteAddresses": ["10.0.0.1"]})
    second = read_accounts({"accounts": [ROW, ROW | {"accessKey": "another"}]})
    found, repeated = merged([first, second])
    assert found.by_key["RocketMQ"].is_admin
    assert sorted(found.by_key) == ["RocketMQ", "another"]
    assert repeated == ["RocketMQ"]
    assert found.is_white("10.0.0.1")


def test_numbers_of_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ACCOUNTS", 1)
    monkeypatch.setattr(limits, "MAX_PERMISSIONS", 1)
    monkeypatch.setattr(limits, "MAX_PATTERNS", 1)
    read_accounts({"accounts": [ROW | {"topicPerms": ["a=PUB"]}], "globalWhiteRemoteAddresses": ["*"]})
    for value in (
        {"accounts": [ROW, ROW | {"accessKey": "another"}]},
        {"accounts": [ROW | {"topicPerms": ["a=PUB", "b=PUB"]}]},
        {"globalWhiteRemoteAddresses": ["*", "*"]},
    ):
        with pytest.raises(ConfigError, match="at most 1 entries"):
            read_accounts(value)
    with pytest.raises(ConfigError, match="at most 1 accounts"):
        merged(
            [
                read_accounts({"accounts": [ROW]}),
                read_accounts({"accounts": [ROW | {"accessKey": "another"}]}),
            ]
        )
