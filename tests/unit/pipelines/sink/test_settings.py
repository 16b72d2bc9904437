import pickle

import pytest

from turbopump.pipelines.options import BadOption
from turbopump.pipelines.sink.settings import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions, sink_of

BODY = [("body", "binary")]
GIVEN = {"nameServer": "a:9876,b:9876", "topic": "T"}


def made(overwrite: bool = False, default: str = EXACTLY_ONCE, **given: str) -> SinkOptions:
    return sink_of({**GIVEN, **given}, BODY, overwrite, default)


def test_the_delivery_is_as_given_or_else_the_default():
    assert made().delivery == EXACTLY_ONCE
    assert made(default=AT_LEAST_ONCE).delivery == AT_LEAST_ONCE
    assert made(delivery="At-Least-Once").delivery == AT_LEAST_ONCE


@pytest.mark.parametrize("delivery", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_rows_may_have_a_time_with_either_delivery(delivery):
    columns = [*BODY, ("delayLevel", "int"), ("deliverTime", "timestamp")]
    assert sink_of(GIVEN, columns, False, delivery).delivery == delivery


def test_settings_of_the_client_are_those_that_were_given():
    sink = made(useTls="true", namespace="N", sendTimeoutMs="1500")
    assert sink.client_options == {"use_tls": True, "namespace": "N"}
    assert sink.patience_s == 1.5
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_topics_are_appended_to():
    with pytest.raises(BadOption, match=r"mode\('append'\)"):
        made(overwrite=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nameServer": ""}, "nameServer must be host:port"),
        ({"topic": "a b"}, "only letters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "brokers' own"),
        ({"delivery": "twice"}, "must be one of exactly-once, at-least-once"),
        ({"delivery": "at-least-once", "transactionalId": "x"}, "is for delivery=exactly-once"),
        ({"txnVersion": "1"}, "give transactionalId too"),
        ({"transactionalId": "x", "txnVersion": "-1"}, "must be 0 or more"),
        ({"transactionalid": "x", "sendtimeout": "1"}, "did you mean sendTimeoutMs"),
    ],
)
def test_a_wrong_option_is_named_with_the_fix(given, words):
    with pytest.raises(BadOption, match=words):
        made(**given)


def test_a_name_server_has_to_be_given():
    with pytest.raises(BadOption, match="nameServer is missing"):
        sink_of({"topic": "T"}, BODY, False, EXACTLY_ONCE)
