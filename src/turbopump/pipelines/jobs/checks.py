"""Checks the arguments of a job before Spark starts. Pure, except for reading files.

In: the arguments of a job. Out: nothing, or BadSpec, whose text says what must be given.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turbopump.pipelines.jobs.endpoint import PARTS, JobEndpoint
from turbopump.pipelines.jobs.spec import BadSpec, Given

INPUT = "messages"
"""The name of the source in SQL."""
GROUPS = {"topic": "topic", "queue": "queueId", "tag": "tags", "key": "key", "broker": "brokerName"}
"""Word of `stats --by` → column."""
SPLITS = ("minpartitions", "maxrecordsperpartition")


def nothing_more(given: Given) -> None:
    """Checks nothing: for a job whose flags need no further check."""


def check(job: str, given: Given, more: Callable[[Given], None]) -> None:
    """Raises BadSpec for wrong arguments of a job: the ones of all jobs, then by `more` those of this one."""
    needed(job, given, "from")
    if "to" in given and "redrive" not in given:
        needed(job, given, "to")
    _times(given)
    more(given)
    _options(given)


def needed(job: str, given: Given, key: str) -> JobEndpoint:
    """Returns the endpoint that flag `key` gives. Raises BadSpec if the flag is not given."""
    end: JobEndpoint | None = given[key]
    if end is None:
        raise BadSpec(f"job {job} needs --{key}: turbopump pipeline {job} --help")
    return end


def _times(given: Given) -> None:
    since, until = given.get("since"), given.get("until")
    if since is not None and until is not None and since.ms >= until.ms:
        raise BadSpec(f"--since ({since.with_zone()}) must be before --until ({until.with_zone()})")
    if not given.get("follow"):
        return
    if until is not None:
        raise BadSpec("--follow and --until are both given, but --follow never ends: give one of them")
    if not given["from"].is_topic:
        raise BadSpec(f"--follow must read a topic, got {given['from']}, which is read once")


def _options(given: Given) -> None:
    """Raises BadSpec for options that the source's format refuses; Spark would do so 15 seconds later."""
    from turbopump.pipelines.log import options as log
    from turbopump.pipelines.options import BadOption, FormatOptions
    from turbopump.pipelines.source import settings

    tables: Mapping[str, tuple[Any, str]] = {
        "log": (log.TABLE, log.FORMAT),
        "topic": (settings.OPTIONS, settings.FORMAT),
        "dlq": (settings.OPTIONS, settings.FORMAT),
    }
    if given["from"].kind in tables:
        table, name = tables[given["from"].kind]
        try:
            FormatOptions(table, given["options"], name)
        except BadOption as error:
            raise BadSpec(str(error)) from None


def archive(given: Given) -> None:
    if given["to"].is_topic:
        raise BadSpec(
            f"archive writes delta:DIR or parquet:DIR, got {given['to']}: `transform` and `replay` write "
            "topics"
        )
    _parts(given)


def _parts(given: Given) -> None:
    wrong = [part for part in given["partition_by"] if part not in PARTS]
    if wrong:
        raise BadSpec(f"partition-by must be some of {', '.join(PARTS)}, got {','.join(wrong)}")


def replay(given: Given) -> None:
    if not given["to"].is_topic:
        raise BadSpec(f"replay writes topic:NAME, or group:NAME for one group alone, got {given['to']}")
    if given["from"].is_topic and given["from"].topic == given["to"].topic:
        raise BadSpec(f"{given['from']} would be replayed into itself without end")
    splits = [name for name in given["options"] if name.lower() in SPLITS]
    if given["from"].is_topic and splits:
        raise BadSpec(f"replay keeps the order of each queue, and option {splits[0]} would split queues")


def transform(given: Given) -> None:
    texts = texts_of(given)
    if not texts.get("sql"):
        raise BadSpec(f"transform needs --sql or --sql-file: a query over {INPUT}")
    if given["json_body"] and given["avro_body"]:
        raise BadSpec("--json-body and --avro-body are both given: give one of them")


def texts_of(given: Given) -> dict[str, str]:
    """Returns the SQL under `sql` and the Avro schema under `avro_body`, read from files that flags name.

    SQL may also be given by a flag itself.
    """
    found = {}
    if given.get("sql") or given.get("sql_file"):
        found["sql"] = _file("sql-file", given["sql_file"]) if given["sql_file"] else given["sql"]
    if given.get("avro_body"):
        found["avro_body"] = _json("avro-body", given["avro_body"])
    return found


def _file(flag: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSpec(f"{flag}={path}: {getattr(error, 'strerror', None) or error}") from None


def _json(flag: str, path: str) -> str:
    text = _file(flag, path)
    try:
        json.loads(text)
    except ValueError as error:
        raise BadSpec(f"{flag} must be a file with JSON, got {path}: {error}") from None
    return text


def dedupe(given: Given) -> None:
    if not given["to"].is_topic:
        _parts(given)


def dead_letters(given: Given) -> None:
    if given["from"].kind not in ("dlq", "log", "delta", "parquet"):
        raise BadSpec(
            "dlq reads dlq:GROUP, or files that hold its topic (log:DIR, delta:DIR, parquet:DIR), got "
            f"{given['from']}"
        )
    _report(given)


def trace(given: Given) -> None:
    _report(given)


def stats(given: Given) -> None:
    wrong = [word for word in given["by"] if word not in GROUPS]
    if wrong:
        raise BadSpec(f"by must be some of {', '.join(GROUPS)}, got {','.join(wrong)}")
    _report(given)


def verify(given: Given) -> None:
    if given["from"].kind != "log":
        raise BadSpec(f"verify reads log:DIR, a store directory, got {given['from']}")


def _report(given: Given) -> None:
    where = given["report"]
    if where and not Path(where).absolute().parent.is_dir():
        raise BadSpec(f"report={where}: the directory {Path(where).absolute().parent} does not exist")
