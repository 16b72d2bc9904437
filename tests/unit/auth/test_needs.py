import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.auth.decisions import CLUSTER, FILE, SOURCE, accounts, may, table, users
from tests.unit.auth.requests_kit import codes, handlers, name_of, request_of

from turbopump.auth.access import Access, Identity, UserAccess
from turbopump.auth.account_access import AccountAccess
from turbopump.auth.accounts import read_accounts
from turbopump.auth.book import UserBook
from turbopump.auth.needs import NEEDS, OF_STORED, OPEN_AT_NAME_SERVER, needs_of, needs_of_stored
from turbopump.auth.resources import Action, Need, ResourceType, cluster, group, topic
from turbopump.protocol import batch, bodies, properties
from turbopump.protocol.bodies import AclEntry, AclInfo, AclPolicy, UserInfo
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.errors import NoPermission, SystemFailure
from turbopump.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC

NAMES = st.text("abcXYZ019%_-|", min_size=1, max_size=20)
LIGHTS = properties.pack({properties.INNER_MULTI_DISPATCH: "%LMQ%a,%LMQ%b"})


def ask(code: int, body: bytes = b"", **ext: str) -> tuple[Need, ...]:
    return needs_of(Command(code, ext=ext, body=body), CLUSTER)


# --- the table ------------------------------------------------------------------------------------------


def test_every_request_code_has_a_row() -> None:
    assert [name_of(code) for code in codes() if code not in NEEDS] == []


def test_every_handler_of_every_router_has_a_row() -> None:
    found = {code: module for module, table in handlers() for code in table}
    assert len(found) > 90  # otherwise the walk misses handlers
    assert {module: code for code, module in found.items() if code not in NEEDS} == {}


def test_the_table_has_no_row_of_an_unknown_code() -> None:
    assert set(NEEDS) == set(codes())


def test_a_code_without_a_row_is_refused() -> None:
    with pytest.raises(NoPermission, match="request code 9999 is not permitted"):
        ask(9999)


def test_the_decisions_are_those_of_the_table_that_people_read() -> None:
    assert table() == FILE.read_text()


@pytest.mark.parametrize("code", codes())
def test_nobody_may_send_anything(code: int) -> None:
    assert not may(users(), "", request_of(code))
    assert not may(accounts(), "", request_of(code))


def test_a_name_server_with_open_reads_answers_reads_only() -> None:
    assert {
        code
        for code in OPEN_AT_NAME_SERVER
        if Action.UPDATE in {a for n in NEEDS[code](Command(code), "C") for a in n.any_of}
    } == set()


def test_an_unreadable_body_is_refused_as_the_handler_would() -> None:
    with pytest.raises(SystemFailure, match="BrokenBody"):
        ask(Code.HEART_BEAT, b"{")


# --- a denied name is denied by every code --------------------------------------------------------------


def _denied(resource: str) -> UserAccess:
    """Returns the access of a user who may do everything but with one resource."""
    entries = [
        AclEntry(resource="*", actions=["All"], decision="Allow"),
        AclEntry(resource=resource, actions=["All"], decision="Deny"),
    ]
    book = UserBook().created("u", UserInfo(password="p"), by_super=True)
    return UserAccess(book.granted("User:u", AclInfo(policies=[AclPolicy(entries=entries)]), by_super=True))


def _is_refused(access: Access, command: Command, name: str = "u") -> bool:
    try:
        access.authorize(Identity(name), needs_of(command, CLUSTER), SOURCE)
    except NoPermission:
        return True
    return False


NAMING = {
    kind: [c for c in codes() if kind in {n.resource.type for n in needs_of(request_of(c), CLUSTER)}]
    for kind in (ResourceType.TOPIC, ResourceType.GROUP)
}


def test_the_codes_that_name_topics_and_groups_are_many() -> None:
    assert len(NAMING[ResourceType.TOPIC]) > 40
    assert len(NAMING[ResourceType.GROUP]) > 35


@given(NAMES, st.sampled_from(NAMING[ResourceType.TOPIC]))
def test_a_denied_topic_is_denied_by_every_code_that_names_it(name: str, code: int) -> None:
    if not name.startswith("%RETRY%") and name != "TBW102":
        assert _is_refused(_denied(f"Topic:{name}"), request_of(code, topic=name))


@given(NAMES, st.sampled_from(NAMING[ResourceType.GROUP]))
def test_a_denied_group_is_denied_by_every_code_that_names_it(name: str, code: int) -> None:
    assert _is_refused(_denied(f"Group:{name}"), request_of(code, group=name))


@given(NAMES, st.sampled_from(NAMING[ResourceType.TOPIC]))
def test_a_denied_group_is_denied_by_every_code_that_names_its_retry_topic(name: str, code: int) -> None:
    request = request_of(code, topic=f"%RETRY%{name}", group=f"not-{name}")
    assert _is_refused(_denied(f"Group:{name}"), request)


def _account_denied(**lists: list[str]) -> AccountAccess:
    """Returns the access of an account that may send and consume everything but what its lists deny."""
    row = {"accessKey": "account", "secretKey": "secret-1", "defaultTopicPerm": "PUB|SUB"}
    return AccountAccess(read_accounts({"accounts": [row | {"defaultGroupPerm": "PUB|SUB"} | lists]}))


@pytest.mark.parametrize("code", NAMING[ResourceType.TOPIC])
def test_a_topic_that_an_account_denies_is_denied_by_every_code_that_names_it(code: int) -> None:
    access = _account_denied(topicPerms=["T=DENY"])
    assert _is_refused(access, request_of(code), "account")


@pytest.mark.parametrize("code", NAMING[ResourceType.GROUP])
def test_a_group_that_an_account_denies_is_denied_by_every_code_that_names_it(code: int) -> None:
    access = _account_denied(groupPerms=["G=DENY"])
    assert _is_refused(access, request_of(code), "account")


@given(NAMES, st.sampled_from(codes()))
def test_a_denied_cluster_is_denied_by_every_code_that_needs_it(name: str, code: int) -> None:
    request = request_of(code)
    if any(need.resource.type is ResourceType.CLUSTER for need in needs_of(request, CLUSTER)):
        assert _is_refused(_denied(f"Cluster:{CLUSTER}"), request)


# --- sends ----------------------------------------------------------------------------------------------


def test_a_send_needs_pub_on_the_topic_of_its_own_header_form() -> None:
    assert ask(Code.SEND_MESSAGE, topic="T", b="other") == (topic("T", Action.PUB),)
    for code in (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE):
        assert ask(code, b="T", topic="other") == (topic("T", Action.PUB),)


def test_a_reply_needs_pub_on_the_reply_topic_of_the_cluster_whatever_it_names() -> None:
    replies = topic(f"{CLUSTER}_REPLY_TOPIC", Action.PUB)
    for code, field in ((Code.SEND_REPLY_MESSAGE, "topic"), (Code.SEND_REPLY_MESSAGE_V2, "b")):
        assert ask(code, **{field: replies.resource.name}) == (replies,)
        assert ask(code, **{field: "T"}) == (topic("T", Action.PUB), replies)
        in_namespace = f"ns%{CLUSTER}_REPLY_TOPIC"
        assert ask(code, **{field: in_namespace}) == (topic(in_namespace, Action.PUB),)


def test_a_send_to_a_retry_topic_needs_the_group_of_the_topic_and_not_the_one_in_another_field() -> None:
    own = {"a": "own", "group": "own", "producerGroup": "own"}
    assert ask(Code.SEND_MESSAGE_V2, b="%RETRY%victim", **own) == (group("victim", Action.SUB),)
    assert ask(Code.SEND_MESSAGE, topic="%RETRY%victim", **own) == (group("victim", Action.SUB),)


def test_a_dead_letter_topic_is_an_ordinary_topic() -> None:
    assert ask(Code.SEND_MESSAGE_V2, b="%DLQ%G") == (topic("%DLQ%G", Action.PUB),)


def test_a_message_needs_pub_on_the_light_queues_that_it_names() -> None:
    lights = topic("%LMQ%a", Action.PUB), topic("%LMQ%b", Action.PUB)
    assert ask(Code.SEND_MESSAGE_V2, b="T", i=LIGHTS) == (topic("T", Action.PUB), *lights)
    assert ask(Code.SEND_MESSAGE, topic="T", properties=LIGHTS) == (topic("T", Action.PUB), *lights)


@pytest.mark.parametrize("flag", ["true", "TRUE", " true", "1", "yes"])
def test_the_messages_of_a_batch_need_pub_on_their_light_queues(flag: str) -> None:
    body = batch.join([(0, b"one", b""), (0, b"two", LIGHTS.encode())])
    lights = topic("%LMQ%a", Action.PUB), topic("%LMQ%b", Action.PUB)
    assert ask(Code.SEND_BATCH_MESSAGE, body, b="T", m=flag) == (topic("T", Action.PUB), *lights)


def test_a_message_whose_body_only_mentions_light_queues_needs_no_more() -> None:
    assert ask(Code.SEND_MESSAGE_V2, LIGHTS.encode(), b="T", m="false") == (topic("T", Action.PUB),)


def test_half_messages_of_a_ledger_need_pub_on_each_of_their_topics() -> None:
    own = [properties.pack({properties.REAL_TOPIC: name}).encode() for name in ("T1", "T2", "T1")]
    body = batch.join([(0, b"x", one) for one in own])
    expected = group("tx", Action.PUB), topic("T1", Action.PUB), topic("T2", Action.PUB)
    assert ask(Code.LEDGER_SEND, body, id="tx") == expected


def test_half_messages_without_a_topic_need_pub_on_a_topic_that_nobody_has() -> None:
    assert topic("", Action.PUB) in ask(Code.LEDGER_SEND, batch.join([(0, b"x", b"")]), id="tx")


# --- the topic of a message that a handler finds --------------------------------------------------------


def test_topics_with_messages_of_others_need_rights_to_the_cluster_as_well() -> None:
    pulled = ask(Code.PULL_MESSAGE, topic=SCHEDULE_TOPIC, consumerGroup="G")
    assert pulled == (topic(SCHEDULE_TOPIC, Action.SUB), cluster("C", Action.GET), group("G", Action.SUB))
    assert cluster("C", Action.UPDATE) in ask(Code.SEND_MESSAGE_V2, b=TIMER_TOPIC)


def test_a_stored_message_needs_a_right_on_its_own_topic() -> None:
    assert needs_of_stored(Code.VIEW_MESSAGE_BY_ID, "T", None, "C") == (topic("T", Action.GET),)
    assert needs_of_stored(Code.VIEW_MESSAGE_BY_ID, "T", "other", "C") == (topic("T", Action.GET),)


def test_a_stored_message_that_waits_needs_a_right_on_its_destination() -> None:
    assert needs_of_stored(Code.END_TRANSACTION, "RMQ_SYS_TRANS_HALF_TOPIC", "T", "C") == (
        topic("T", Action.PUB),
    )
    assert needs_of_stored(Code.CONSUMER_SEND_MSG_BACK, SCHEDULE_TOPIC, "%RETRY%G", "C") == (
        group("G", Action.SUB),
    )
    unknown = needs_of_stored(Code.VIEW_MESSAGE_BY_ID, SCHEDULE_TOPIC, None, "C")
    assert cluster("C", Action.GET) in unknown


@pytest.mark.parametrize("code", OF_STORED)
def test_a_request_that_names_a_message_says_what_it_needs_on_its_topic(code: int) -> None:
    assert needs_of_stored(code, "T", None, "C") == (topic("T", OF_STORED[code]),)


# --- fields and bodies ----------------------------------------------------------------------------------


def test_the_topic_of_the_other_header_field_counts_for_nothing() -> None:
    assert ask(Code.PULL_MESSAGE, b="other", topic="T", group="other", consumerGroup="G") == (
        topic("T", Action.SUB),
        group("G", Action.SUB),
    )


def test_a_retry_topic_is_pulled_with_rights_to_its_group_and_the_group_that_pulls() -> None:
    for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
        needs = ask(code, topic="%RETRY%victim", consumerGroup="own")
        assert needs == (group("victim", Action.SUB), group("own", Action.SUB))


def test_the_route_of_the_template_topic_needs_an_identity_only() -> None:
    assert ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="TBW102") == ()


def test_a_producer_needs_nothing_to_come_and_go() -> None:
    beat = bodies.HeartbeatData(producerDataSet=[bodies.ProducerData(groupName="P")])
    assert ask(Code.HEART_BEAT, beat.encode()) == ()
    assert ask(Code.UNREGISTER_CLIENT, clientID="c", producerGroup="P") == ()
    assert ask(Code.CHECK_CLIENT_CONFIG) == ()


def test_progress_is_asked_for_the_topics_that_the_handler_reads() -> None:
    both = ask(Code.GET_CONSUME_STATS, consumerGroup="G", topic="T", topicList="A;;B;A")
    assert both == (group("G", Action.GET), topic("A", Action.GET), topic("B", Action.GET))
    assert ask(Code.GET_CONSUME_STATS, consumerGroup="G", topic=" ") == (group("G", Action.GET),)


def test_offsets_are_cloned_with_get_on_one_group_and_update_on_the_other() -> None:
    needs = ask(Code.CLONE_GROUP_OFFSET, srcGroup="A", destGroup="B", topic=" T ")
    assert needs == (group("A", Action.GET), group("B", Action.UPDATE), topic("T", Action.UPDATE))


@pytest.mark.parametrize(
    "code",
    [
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.BATCH_ACK_MESSAGE,
    ],
)
def test_a_list_that_names_nothing_needs_rights_to_the_cluster(code: int) -> None:
    assert ask(code) == (cluster("C", Action.UPDATE),)
    if code != Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
        assert ask(code, b"{}") == (cluster("C", Action.UPDATE),)


def test_every_topic_of_a_list_is_needed() -> None:
    configs = [bodies.TopicConfig(topicName=name) for name in ("A", "%RETRY%G")]
    body = bodies.CreateTopicListRequestBody(topicConfigList=configs).encode()
    assert ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body) == (
        topic("A", Action.CREATE),
        group("G", Action.CREATE),
    )
