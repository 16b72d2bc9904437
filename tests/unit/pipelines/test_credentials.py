"""Credentials of the Spark formats: from options or the driver, sent to tasks, and in no text."""

import pickle

import pytest

from turbopump.pipelines.credentials import HIDDEN, SECRET_WORDS, credentials_among, shown
from turbopump.pipelines.jobs.fingerprint import fingerprint
from turbopump.pipelines.options import BadOption
from turbopump.pipelines.sink.settings import EXACTLY_ONCE, SINK, sink_of
from turbopump.pipelines.source.settings import OPTIONS, query_of
from turbopump.pipelines.tables import with_options

SECRET = "Geheim-4711"
SOURCE = {"nameServer": "a:9876", "subscribe": "T"}
BODY = [("body", "binary")]
SPELLINGS = [
    {"accessKey": "joe", "secretKey": SECRET},
    {"rocketmq.access_key": "joe", "rocketmq.secret_key": SECRET},
    {"rocketmq.access.key": "joe", "rocketmq.secret.key": SECRET},
    {"accesskey": "joe", "secretkey": SECRET},
]
SETTINGS = {"access_key": "joe", "secret_key": SECRET}


@pytest.mark.parametrize("given", SPELLINGS)
def test_source_and_sink_get_them_under_all_names(given):
    access = query_of({**SOURCE, **given}, False).access
    assert dict(access.credentials) == SETTINGS
    sink = sink_of({"nameServer": "a:9876", "topic": "T", **given}, BODY, False, EXACTLY_ONCE)
    assert sink.client_options == SETTINGS
    assert credentials_among({**given, "useTls": "true", "other": "1"}) == access.credentials


def test_tasks_get_them_and_texts_do_not():
    given = {**SPELLINGS[0], "securityToken": SECRET + "t"}
    query = query_of({**SOURCE, **given}, False)
    sink = sink_of({"nameServer": "a:9876", "topic": "T", **given}, BODY, False, EXACTLY_ONCE)
    for value in (query, query.access, sink):
        assert pickle.loads(pickle.dumps(value)) == value
        assert SECRET not in repr(value)
        assert SECRET not in str(value)
    assert query.access != query_of(SOURCE, False).access, "another user has connections of its own"


def test_the_driver_finds_them_in_its_environment_and_in_a_file(monkeypatch, tmp_path):
    file = tmp_path / "key"
    file.write_text(f"AccessKey=joe\nSecretKey={SECRET}\n")
    assert dict(query_of({**SOURCE, "credentialsFile": str(file)}, False).access.credentials) == SETTINGS
    assert query_of(SOURCE, False).access.credentials == ()
    monkeypatch.setenv("TURBOPUMP_ACCESS_KEY", "joe")
    monkeypatch.setenv("TURBOPUMP_SECRET_KEY", SECRET)
    assert dict(query_of(SOURCE, False).access.credentials) == SETTINGS
    sink = sink_of({"nameServer": "a:9876", "topic": "T"}, BODY, False, EXACTLY_ONCE)
    assert sink.client_options == SETTINGS


def test_half_of_them_is_refused_without_showing_it():
    for given in ({"secretKey": SECRET}, {"accessKey": "joe"}):
        with pytest.raises(BadOption, match=r"accessKey and secretKey: .* must be given together") as caught:
            query_of({**SOURCE, **given}, False)
        assert SECRET not in str(caught.value)
    with pytest.raises(BadOption, match="secretKey must not be empty, got '\\(hidden\\)'"):
        query_of({**SOURCE, "accessKey": "joe", "secretKey": "  "}, False)


@pytest.mark.parametrize("name", ["secretkey", "rocketmq.secret_key", "securitytoken", "tlskeypassword"])
def test_a_table_does_not_keep_a_secret(name):
    given = {"provider": "rocketmq", "option.nameserver": "a:1", f"option.{name}": SECRET}
    with pytest.raises(BadOption, match="to each query instead") as caught:
        with_options(None, given, (OPTIONS, SINK), "rocketmq")
    assert SECRET not in str(caught.value)


def test_a_checkpoint_does_not_keep_them():
    for given in SPELLINGS:
        options = {**given, "securityToken": SECRET, "credentialsFile": "/key", "groupId": "G"}
        found = fingerprint("copy", {"options": options}, "a:9876", {})
        assert found == {"job": "copy", "cluster": "a:9876", "options groupid": "G"}


def test_what_people_read_hides_the_values():
    assert shown({"secretKey": SECRET, "accessKey": "joe"}) == {"secretKey": HIDDEN, "accessKey": "joe"}
    declared = {
        word.lower() for option in SINK if option.is_secret for word in (option.name, *option.aliases)
    }
    assert declared == SECRET_WORDS
