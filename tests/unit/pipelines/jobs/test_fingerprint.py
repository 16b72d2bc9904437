import json

import pytest

from turbopump.pipelines.jobs.checkpoints import check_parquet, claim
from turbopump.pipelines.jobs.endpoint import JobEndpoint
from turbopump.pipelines.jobs.fingerprint import FILE, decoded, differences, encoded, fingerprint
from turbopump.pipelines.jobs.spec import BadSpec, TypedTime

GIVEN = {
    "from": JobEndpoint("topic", "A"),
    "to": JobEndpoint("delta", "/lake"),
    "where": None,
    "options": {"tags": "paid", "pullBatchSize": "10"},
    "to_options": {},
    "since": TypedTime("1h", 1_700_000_000_000),
    "partition_by": ("topic", "date"),
    "follow": True,
    "sql_file": "q.sql",
    "keep_checkpoint": False,
}


def made(name_server="a:1;b:2", job="transform", texts=None, **changes):
    return fingerprint(job, GIVEN | changes, name_server, texts or {"sql": "SELECT 1"})


def test_what_matters_is_in_it_and_what_does_not_is_not():
    assert made() == {
        "job": "transform",
        "cluster": "a:1;b:2",
        "from": "topic:A",
        "to": "delta:/lake",
        "options tags": "paid",
        "since": "1h",
        "partition-by": "topic,date",
        "sql": "SELECT 1",
    }


def test_the_same_job_on_another_day_has_the_same_one():
    tomorrow = made(
        "b:2, a:1",
        since=TypedTime("1h", 1_700_086_400_000),
        follow=False,
        options={"TAGS": "paid", "failOnDataLoss": "false"},
    )
    assert differences(made(), tomorrow) == []
    assert decoded(encoded(made())) == made()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"name_server": "c:3"}, "cluster: was 'a:1;b:2', now 'c:3'"),
        ({"job": "archive"}, "job: was 'transform', now 'archive'"),
        ({"texts": {"sql": "SELECT 2"}}, "sql: was 'SELECT 1', now 'SELECT 2'"),
        ({"where": "tags = 'x'"}, "where: was not given, now \"tags = 'x'\""),
        ({"to": JobEndpoint("delta", "/other")}, "to: was 'delta:/lake', now 'delta:/other'"),
        ({"options": {}}, "options tags: was 'paid', now not given"),
        ({"since": TypedTime("2h", 1)}, "since: was '1h', now '2h'"),
    ],
)
def test_each_difference_is_named(changes, line):
    assert differences(made(), made(**changes)) == [line]


class Files:
    """A folder in memory."""

    def __init__(self, **files):
        self.path = "/checkpoint"
        self.files = {name.replace("_of_", "/"): text for name, text in files.items()}

    def has(self, name):
        return name in self.files

    def has_files(self, name):
        return any(one.startswith(f"{name}/") for one in self.files)

    def read(self, name):
        return self.files[name]

    def write(self, name, text):
        self.files[name] = text


def test_a_checkpoint_of_another_job_is_refused_with_what_to_do():
    folder, notes = Files(), []
    claim(folder, made(), False, notes.append)
    assert json.loads(folder.files[FILE])["sql"] == "SELECT 1"
    changed = made(texts={"sql": "SELECT 2"})
    claim(folder, changed, False, notes.append)  # nothing was read yet: there is nothing to lose
    folder.files["offsets/0"] = ""
    with pytest.raises(BadSpec, match=r"(?s)sql: was 'SELECT 2', now 'SELECT 1'.*--name.*--keep-checkpoint"):
        claim(folder, made(), False, notes.append)
    assert not notes
    claim(folder, made(), True, notes.append)
    assert notes == ["checkpoint kept although the job has changed: sql: was 'SELECT 2', now 'SELECT 1'"]
    claim(folder, made(), False, notes.append)


def test_a_checkpoint_from_before_is_taken_over_with_a_warning():
    folder, notes = Files(offsets_of_0=""), []
    claim(folder, made(), False, notes.append)
    assert notes[0].startswith("warning: the checkpoint /checkpoint was made by an earlier version")
    assert FILE in folder.files


def test_a_checkpoint_from_before_is_refused_where_its_state_was_of_another_kind():
    with pytest.raises(BadSpec, match="whose state for dedupe cannot be read: give --name"):
        claim(Files(offsets_of_0=""), made(job="dedupe"), True, print)


def test_a_parquet_directory_of_another_stream_is_refused():
    target = Files(_spark_metadata_of_0="")
    check_parquet(Files(offsets_of_0=""), target)
    check_parquet(Files(), Files())
    with pytest.raises(BadSpec, match="Spark would skip the first batches"):
        check_parquet(Files(), target)
