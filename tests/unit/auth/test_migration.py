from hypothesis import given
from hypothesis import strategies as st

from turbopump.auth.access import Identity, Source, UserAccess
from turbopump.auth.account_access import AccountAccess
from turbopump.auth.accounts import Accounts, read_accounts
from turbopump.auth.book import UserBook
from turbopump.auth.migration import migrated
from turbopump.auth.resources import Action, Need, group, topic
from turbopump.auth.users import UserType
from turbopump.protocol.bodies import UserInfo
from turbopump.protocol.errors import NoPermission

HERE = Source("127.0.0.1")
SECRET = "secret-of-all"


def accounts(**fields: object) -> Accounts:
    return read_accounts({"accounts": [{"accessKey": "migrate1", "secretKey": SECRET, **fields}]})


def test_accounts_become_users_with_their_lists_and_defaults() -> None:
    old = accounts(
        topicPerms=["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"],
        groupPerms=["groupA=DENY", "groupB=PUB|SUB"],
        defaultGroupPerm="SUB",
    )
    found = migrated(old, UserBook())
    user = found.book.users["migrate1"]
    assert (user.secrets, user.type, found.created, found.dropped) == (
        (SECRET,),
        UserType.NORMAL,
        ("migrate1",),
        (),
    )
    assert [f"{kind.text} {entry}" for kind, entry in found.book.policies_of("migrate1")] == [
        "Custom Deny All on Topic:topicA",
        "Custom Allow Pub, Sub on Topic:topicB",
        "Custom Allow Sub on Topic:topicC",
        "Custom Deny All on Group:groupA",
        "Custom Allow Pub, Sub on Group:groupB",
        "Default Deny All on Topic:*",
        "Default Allow Sub on Group:*",
    ]


def test_a_user_that_exists_is_left_as_it_is() -> None:
    book = UserBook().created("migrate1", UserInfo(password="own"), True)
    found = migrated(accounts(defaultTopicPerm="PUB"), book)
    assert (found.book, found.created) == (book, ())


def test_an_administrator_becomes_a_super_user_and_its_lists_are_named_as_dropped() -> None:
    found = migrated(accounts(admin=True, topicPerms=["a=SUB"]), UserBook())
    assert found.book.users["migrate1"].is_super
    assert found.dropped == ("topicPerms and groupPerms of migrate1: as an administrator it is a super user",)


def test_white_addresses_are_named_as_dropped() -> None:
    old = read_accounts(
        {
            "globalWhiteRemoteAddresses": ["10.0.0.*", ""],
            "accounts": [{"accessKey": "migrate1", "secretKey": SECRET, "whiteRemoteAddress": "10.1.0.1"}],
        }
    )
    assert migrated(old, UserBook()).dropped == (
        "globalWhiteRemoteAddresses 10.0.0.*",
        "whiteRemoteAddress 10.1.0.1 of migrate1",
    )


PERMS = st.sampled_from(["DENY", "PUB", "SUB", "PUB|SUB"])
LISTS = st.dictionaries(st.sampled_from(["a", "b", "ab"]), PERMS)
NEEDS = st.builds(
    lambda kind, name, action: kind(name, action),
    st.sampled_from([topic, group]),
    st.sampled_from(["a", "b", "ab", "c"]),
    st.sampled_from([Action.PUB, Action.SUB]),
)


def _may(access: AccountAccess | UserAccess, need: Need) -> bool:
    try:
        access.authorize(Identity("migrate1"), (need,), HERE)
    except NoPermission:
        return False
    return True


@given(LISTS, LISTS, PERMS, PERMS, NEEDS)
def test_a_user_may_send_and_consume_where_its_account_could(
    topics: dict[str, str], groups: dict[str, str], topic_default: str, group_default: str, need: Need
) -> None:
    old = accounts(
        topicPerms=[f"{name}={perm}" for name, perm in topics.items()],
        groupPerms=[f"{name}={perm}" for name, perm in groups.items()],
        defaultTopicPerm=topic_default,
        defaultGroupPerm=group_default,
    )
    found = migrated(old, UserBook())
    assert _may(UserAccess(found.book), need) == _may(AccountAccess(old), need)
