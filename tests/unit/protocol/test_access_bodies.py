"""Users, policies and accounts as bodies and headers: the wire's spelling, and no secret in a text."""

from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.display import html_of, short_repr
from turbopump.protocol.headers import access
from turbopump.protocol.headers.table import REQUESTS


def test_a_user_is_written_as_apaches_tool_writes_it() -> None:
    user = bodies.UserInfo(username="mqau1", password="mqap1", userType="Normal")
    assert user.encode() == b'{"password":"mqap1","userType":"Normal","username":"mqau1"}'


def test_policies_are_written_as_apaches_tool_writes_them() -> None:
    entry = bodies.AclEntry(actions=["Pub"], decision="Deny", resource="Topic:abc*")
    acl = bodies.AclInfo(policies=[bodies.AclPolicy(entries=[entry])], subject="User:mqau1")
    assert acl.encode() == (
        b'{"policies":[{"entries":[{"actions":["Pub"],"decision":"Deny","resource":"Topic:abc*"}]}],'
        b'"subject":"User:mqau1"}'
    )
    assert bodies.AclInfo.decode(acl.encode()) == acl


def test_accounts_of_4_9_are_read() -> None:
    body = (
        b'{"globalWhiteAddrs":["127.0.0.9"],"plainAccessConfigs":[{"accessKey":"nothing1","admin":false,'
        b'"secretKey":"nothing-secret"},{"accessKey":"RocketMQ","admin":false,"defaultGroupPerm":"SUB",'
        b'"defaultTopicPerm":"DENY","groupPerms":["groupB=PUB|SUB"],"secretKey":"12345678"}]}'
    )
    found = bodies.AclConfig.decode(body)
    assert found.globalWhiteAddrs == ["127.0.0.9"]
    assert [each.accessKey for each in found.plainAccessConfigs] == ["nothing1", "RocketMQ"]
    assert found.encode() == body


def test_no_secret_is_in_the_text_of_a_body() -> None:
    config = bodies.PlainAccessConfig(accessKey="team", secretKey="Geheim77")
    user = bodies.UserInfo(username="team", password="Geheim77")
    for value in (config, user, bodies.AclConfig(plainAccessConfigs=[config]), [user]):
        for text in (repr(value), short_repr(value), html_of(value)):
            assert "Geheim77" not in text
            assert "team" in text


def test_no_secret_is_in_the_text_of_a_header() -> None:
    header = access.UpdateAclConfigRequest("team", "Geheim77")
    assert "Geheim77" not in repr(header)
    assert "team" in repr(header)


def test_every_request_of_access_control_with_fields_has_a_header() -> None:
    codes = [code for code in RequestCode if 50 <= code <= 54 or 3001 <= code <= 3010]
    without = {RequestCode.GET_BROKER_CLUSTER_ACL_INFO, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG}
    assert {code for code in codes if code not in REQUESTS} == without


def test_absent_fields_are_none_so_that_the_handler_can_say_what_is_missing() -> None:
    for code in (50, 51, 53, *range(3001, 3011)):
        header = REQUESTS[code].from_ext(None)
        assert header.to_ext() == {}
