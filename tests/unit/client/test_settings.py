"""Settings: what is given, what is configured, and what is refused with which words."""

import dataclasses
from typing import Any

import pytest

from turbopump.client import settings
from turbopump.client.errors import InvalidArgument
from turbopump.client.group.running_info import settings_as_text
from turbopump.client.settings import (
    NOT_NEEDED,
    NOT_OFFERED,
    SECRETS,
    ConsumeFromWhere,
    ConsumerSettings,
    MessageModel,
    ProducerSettings,
    PullSettings,
    made,
)


def test_what_is_given_counts_more_than_what_is_configured() -> None:
    configured = {"send_msg_timeout": 5, "compress_level": 9, "consume_thread_min": 3}
    found = made(ProducerSettings, {"send_msg_timeout": 7.0}, configured)
    assert (found.send_msg_timeout, found.compress_level, found.max_in_flight) == (7.0, 9, 1024)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (
            ProducerSettings,
            {"send_timeout": 3},
            "there is no setting send_timeout; did you mean send_msg_timeout?",
        ),
        (
            ProducerSettings,
            {"send_msg_timeout": 3000},
            "must be seconds, got 3000, which looks like milliseconds: write 3.0",
        ),
        (ProducerSettings, {"send_msg_timeout": "3"}, "send_msg_timeout must be a number, got '3'"),
        (ProducerSettings, {"compress_level": 10}, "compress_level must be between 0 and 9, got 10"),
        (ProducerSettings, {"unit_mode": 1}, "unit_mode must be True or False, got 1"),
        (ProducerSettings, {"max_in_flight": 1.5}, "max_in_flight must be a whole number, got 1.5"),
        (ProducerSettings, {"namespace": None}, "namespace must be a text, got None"),
        (ProducerSettings, {"clientCallbackExecutorThreads": 4}, "is not needed here: callbacks run on"),
        (ProducerSettings, {"client_rebalance": True}, "is not offered: there is no POP"),
        (ConsumerSettings, {"consume_from_where": "begin"}, "must be one of 'last', 'first', 'timestamp'"),
        (ConsumerSettings, {"pull_batch_size": 0}, "pull_batch_size must be between 1 and 1024, got 0"),
        (PullSettings, {"auto_commit": "no"}, "auto_commit must be True or False, got 'no'"),
    ],
)
def test_what_cannot_be_right_is_refused_with_what_would_be(
    kind: type[Any], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        made(kind, given)
    assert words in str(refused.value)


def test_a_choice_is_given_by_its_word_or_by_apaches_name() -> None:
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    for text in ("first", "CONSUME_FROM_FIRST_OFFSET", first):
        assert made(ConsumerSettings, {"consume_from_where": text}).consume_from_where is first
    broadcasting = made(ConsumerSettings, {"message_model": "broadcasting"})
    assert broadcasting.message_model is MessageModel.BROADCASTING


def test_every_default_is_within_its_own_bounds() -> None:
    for kind in (ProducerSettings, ConsumerSettings, PullSettings):
        settings.check(kind())


def test_no_setting_of_apaches_is_in_two_tables() -> None:
    kinds = (ProducerSettings, ConsumerSettings, PullSettings)
    offered = {field.metadata["java"] for kind in kinds for field in dataclasses.fields(kind)}
    assert not offered & set(NOT_NEEDED)
    assert not offered & set(NOT_OFFERED)
    assert not set(NOT_NEEDED) & set(NOT_OFFERED)


def test_tools_are_told_no_secrets() -> None:
    given = {"tls_key_password": "secret-1", "socks_proxy_config": '{"0.0.0.0/0": {"password": "secret-2"}}'}
    told = settings_as_text(made(ConsumerSettings, given))
    assert told["consume_thread_min"] == "20"
    assert not any("secret" in text for text in told.values())
    hidden = {field.name for field in dataclasses.fields(ConsumerSettings)} - told.keys()
    assert hidden == SECRETS
