"""Any request, however odd, is answered with a code, and none is answered by a bug."""

import json
import logging

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.integration.namesrv.kit import World
from tests.integration.namesrv.registration_kit import registration
from tests.properties import examples

from turbopump.protocol.command import Command
from turbopump.testing.loop import run_virtual

CODES = (
    *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313),
    *(318, 319, 322, 327, 901, 904),
)
WORDS = st.one_of(
    st.sampled_from(["", "0", "-1", "true", "T", "a", "C", "10.0.0.5:10911", str(2**31), str(-(2**63))]),
    st.text(max_size=8),
)
FIELDS = (
    *("namespace", "key", "value", "brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId"),
    *("compressed", "bodyCrc32", "heartbeatTimeoutMillis", "enableActingMaster", "topic", "cluster"),
    *("acceptStandardJsonOnly", "__ZONE_NAME", "__ZONE_MODE"),
)
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = (
    "topicConfigSerializeWrapper",
    "topicConfigTable",
    "dataVersion",
    "filterServerList",
    "queueDatas",
    "T",
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Noise, JSON of the wrong shape, or a right table with one value replaced."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=40))
    body = json.loads(registration("T", "U").body)
    place = body
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)):
        if isinstance(place.get(key), dict) and draw(st.booleans()):
            place = place[key]
        else:
            place[key] = draw(JSON_VALUES)
    return json.dumps(body).encode()


@examples(60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(
        st.builds(
            Command,
            code=st.sampled_from(CODES),
            ext=st.dictionaries(st.sampled_from(FIELDS), WORDS),
            body=bodies(),
            version=st.sampled_from([0, 36, 317, 401, 407, 413, 513]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_request_is_answered_and_the_table_still_works(
    requests: list[Command], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        world = World()
        _, address = await world.name_server()
        peer = await world.peer(address)
        await peer.ask(registration("T", "U"))
        for request in requests:
            answer = await peer.ask(request)
            assert answer.is_response
        for code in (106, 206, 304):
            assert (await peer.ask(Command(code))).code == 0

    caplog.clear()
    with caplog.at_level(logging.ERROR):
        run_virtual(main())
    assert not caplog.records, caplog.text
