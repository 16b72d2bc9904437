"""Routes as standard JSON: the fast way writes the same bytes as the general one."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from turbopump.namesrv.requests import encode_standard
from turbopump.protocol.bodies import BrokerData, QueueData, TopicRouteData

texts = st.text(st.characters(codec="utf-8") | st.sampled_from('/\\"\x00\x1f\x7f\x80äß漢\u2028'), max_size=6)
brokers = st.builds(
    BrokerData,
    brokerAddrs=st.dictionaries(st.integers(-1, 1 << 40), texts, max_size=4),
    brokerName=texts,
    cluster=texts,
    enableActingMaster=st.booleans(),
    zoneName=st.none() | texts,
)
routes = st.builds(
    TopicRouteData,
    brokerDatas=st.lists(brokers, max_size=3),
    filterServerTable=st.dictionaries(texts, st.lists(texts, max_size=2), max_size=3),
    queueDatas=st.lists(st.builds(QueueData, brokerName=texts, perm=st.integers(0, 7)), max_size=3),
    orderTopicConf=st.none() | texts,
    topicQueueMappingByBroker=st.none() | st.dictionaries(texts, st.floats(allow_nan=False), max_size=2),
)


@given(routes)
def test_both_ways_to_write_a_route_write_the_same(route: TopicRouteData) -> None:
    text = json.dumps(msgspec.to_builtins(route, str_keys=True), sort_keys=True, separators=(",", ":"))
    assert encode_standard(route) == text.replace("/", "\\/").encode()
