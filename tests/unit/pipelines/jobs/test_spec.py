import importlib.util
from pathlib import Path

import pytest

from turbopump.pipelines.jobs.catalog import JOBS
from turbopump.pipelines.jobs.endpoint import JobEndpoint, source, target
from turbopump.pipelines.jobs.spec import BadSpec, JobFlag, TypedTime, given_by, read_file
from turbopump.runtime.clock import SystemClock

FLAGS = (
    JobFlag("from", "", source),
    JobFlag("rate", "", int),
    JobFlag("by", "", str, ("keys",), is_list=True),
    JobFlag("follow", "", None, False),
    JobFlag("options", "", is_pairs=True),
)


class StoppedClock(SystemClock):
    def now_ms(self):
        return 1_700_000_000_000


def given(file=None, **line):
    return given_by(FLAGS, file or {}, line, "test", StoppedClock())


def test_a_file_and_a_line_say_the_same():
    text = 'job="test"\nfrom="topic:A"\nrate=5\nby=["a","b"]\nfollow=true\n[options]\ntags="x"\nlatest=true'
    by_file = given(read_file(text, "f"))
    by_line = given(
        None, **{"from": "topic:A"}, rate="5", by="a, b", follow=True, options=["tags=x", "latest=true"]
    )
    assert by_file == by_line
    assert by_file["from"] == JobEndpoint("topic", "A")
    assert by_file["options"] == {"tags": "x", "latest": "true"}


def test_the_line_wins_and_what_nobody_said_has_its_default():
    assert given({"rate": 5}, rate="6") == {
        "from": None,
        "rate": 6,
        "by": ("keys",),
        "follow": False,
        "options": {},
    }
    assert given({"options": {"a": 1, "b": 2}}, options=["a=3"])["options"] == {"a": "3", "b": "2"}


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ({"rat": 5}, {}, "no 'rat': did you mean rate"),
        ({"zzz": 5}, {}, "there are from, rate"),
        ({"rate": "fast"}, {}, "rate='fast'"),
        ({"follow": "yes"}, {}, "follow must be true or false, got 'yes'"),
        ({"options": "a"}, {}, "must be a table, got 'a'"),
        ({}, {"options": ["a"]}, "must be NAME=VALUE, got 'a'"),
        ({}, {"from": "orders"}, "from must be topic:NAME, log:NAME.*got 'orders'"),
    ],
)
def test_what_cannot_be_understood_is_told_with_what_is_wanted(file, line, words):
    with pytest.raises(BadSpec, match=words):
        given(file, **line)


def test_an_age_is_counted_back_from_the_time_of_the_given_clock():
    flags = (JobFlag("since", "", is_time=True),)
    for file, line in (({}, {"since": "10m"}), ({"since": "10m"}, {})):
        found = given_by(flags, file, line, "test", StoppedClock())["since"]
        assert found == TypedTime("10m", 1_700_000_000_000 - 600_000)


def test_what_is_no_toml_is_told_with_its_place():
    with pytest.raises(BadSpec, match=r"job\.toml must be TOML: .*line 1"):
        read_file("a = \n", "job.toml")


def test_files_are_named_from_the_root():
    assert source("log:data/store").name == str(Path("data/store").absolute())
    assert target("delta:s3://bucket/orders").name == "s3://bucket/orders"


def test_a_group_is_its_retry_topic_and_dead_letters_have_theirs():
    assert target("group:billing").topic == "%RETRY%billing"
    assert source("dlq:billing").topic == "%DLQ%billing"
    with pytest.raises(ValueError, match="must be topic:NAME, group:NAME"):
        target("log:x")


@pytest.mark.parametrize("name", JOBS)
def test_flags_of_a_job_have_each_a_name_of_their_own(name):
    keys = [flag.key for flag in JOBS[name].flags]
    assert len(keys) == len(set(keys))
    assert not {"job", "spec", "is_json", "command"} & set(keys)


def test_the_page_about_jobs_is_current():
    script = Path(__file__).parents[4] / "scripts" / "jobs_page.py"
    spec = importlib.util.spec_from_file_location("jobs_page", script)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run python scripts/jobs_page.py"
