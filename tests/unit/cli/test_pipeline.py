"""Arguments of `turbopump pipeline`, parsed before Spark is started."""

import argparse
import subprocess
import sys

import pytest

from turbopump.cli import pipeline
from turbopump.cli.failures import USAGE_ERROR, CommandFailure

FILE = 'job = "archive"\nfrom = "topic:A"\nto = "delta:lake"\nwhere = "tags = 1"\n[options]\ntags = "paid"\n'


def parsed(*words):
    parser = argparse.ArgumentParser()
    pipeline.add_arguments(parser)
    return pipeline._told(parser.parse_args(words))


def test_a_file_is_run_with_flags_of_the_line_over_it(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text(FILE)
    name, given = parsed(
        "run", str(file), "--to", "parquet:/files", "--option", "tags=sent", "--since", "1h", "--follow"
    )
    assert name == "archive"
    assert str(given["to"]) == "parquet:/files"
    assert given["options"] == {"tags": "sent"}
    assert given["where"] == "tags = 1"
    assert given["since"].text == "1h"
    assert given["follow"] is True


def test_a_flag_of_another_job_is_refused(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text(FILE)
    with pytest.raises(
        ValueError, match="job archive has no --redrive; see turbopump pipeline archive --help"
    ):
        parsed("run", str(file), "--redrive", "true")


@pytest.mark.parametrize("text", ["no/such.toml"])
def test_a_file_that_is_not_there_is_named(text):
    with pytest.raises(ValueError, match=r"no/such\.toml: No such file"):
        parsed("run", text)


def test_wrong_arguments_do_not_start_spark(monkeypatch):
    monkeypatch.setattr(pipeline, "session", lambda *words: pytest.fail("Spark was started"))
    parser = argparse.ArgumentParser()
    pipeline.add_arguments(parser)
    with pytest.raises(CommandFailure, match="writes delta:DIR") as wrong:
        pipeline.run(parser.parse_args(["archive", "--from", "topic:A", "--to", "topic:B"]))
    assert wrong.value.status == USAGE_ERROR


PROGRAM = r"""
import subprocess, sys, time
from turbopump.cli.pipeline import spark_errors

with spark_errors() as errors:
    child = subprocess.Popen(["sh", "-c", "cat >&2"], stdin=subprocess.PIPE, text=True)
child.stdin.write("Traceback of a worker\n")
child.stdin.close()
child.wait()
while not errors.received:
    time.sleep(0.01)
print("own words", file=sys.stderr, flush=True)
if "fails" in sys.argv:
    errors.show()
"""


@pytest.mark.parametrize(
    ("words", "lines"), [([], ["own words"]), (["fails"], ["own words", "Traceback of a worker"])]
)
def test_what_workers_print_is_shown_only_when_the_job_fails(words, lines):
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True)
    assert done.stderr.splitlines() == lines
