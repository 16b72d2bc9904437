"""All jobs, with the flags that each takes. Pure: Spark is imported when a job runs."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from turbopump.pipelines.jobs import checks
from turbopump.pipelines.jobs.counts import DROPS
from turbopump.pipelines.jobs.endpoint import source, target
from turbopump.pipelines.jobs.spec import Given, JobFlag
from turbopump.runtime.times import parse_duration_s


def _duration(text: str) -> str:
    """In Spark's words, always the same for the same time."""
    return f"{round(parse_duration_s(text) * 1000)} milliseconds"


def _drop(text: str) -> str:
    if text not in DROPS:
        raise ValueError(f"must be some of {', '.join(DROPS)}")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError("must be a number above 0")
    return int(text)


FROM = JobFlag("from", "topic:A,B  log:STORE  delta:DIR  parquet:DIR  dlq:GROUP", source, metavar="WHERE")
TO = JobFlag(
    "to",
    "topic:A  group:G (its retry topic: it alone)  delta:DIR  parquet:DIR",
    target,
    metavar="WHERE",
)
SERVER = JobFlag(
    "namesrv", "name server, several with ; between (default: NAMESRV_ADDR or 127.0.0.1:9876)", metavar="ADDR"
)
OPTIONS = JobFlag("options", "an option of the source's format, NAME=VALUE", is_pairs=True, metavar="N=V")
TO_OPTIONS = JobFlag(
    "to-options", "an option of the target's format, NAME=VALUE", is_pairs=True, metavar="N=V"
)
MASTER = JobFlag("master", "Spark's master (default: local[*])", default="local[*]", metavar="URL")
CONF = JobFlag("conf", "a setting of Spark's, NAME=VALUE", is_pairs=True, metavar="N=V")
SINCE = JobFlag(
    "since",
    "begin with what was stored then or later: 2026-11-01T12:00 (local time; a file must give the zone), "
    "2026-11-01T12:00Z, milliseconds since 1970, or an age such as 10m",
    metavar="TIME",
    is_time=True,
)
UNTIL = JobFlag(
    "until",
    "end before what was stored then or later, written as for --since",
    metavar="TIME",
    is_time=True,
)
WHERE = JobFlag("where", "only rows of which this SQL condition is true", metavar="SQL")
FOLLOW = JobFlag("follow", "do not end: go on with what arrives, until Ctrl-C", None, False)
EVERY = JobFlag(
    "every",
    "a span of time: between batches of --follow, in charts of stats",
    _duration,
    _duration("1m"),
    "SPAN",
)
CHECKPOINT = JobFlag("checkpoint", "where a stream keeps how far it is", metavar="DIR")
NAME = JobFlag("name", "of this run of the job, by which its checkpoint is found again")
KEEP = JobFlag(
    "keep-checkpoint", "go on from the checkpoint although the job has changed since it was made", None, False
)
ALLOW = JobFlag(
    "allow",
    f"kinds of rows that may be dropped without exit status 1: {', '.join(DROPS)}",
    _drop,
    (),
    "KINDS",
    is_list=True,
)
EXPLAIN = JobFlag(
    "explain",
    "print what is read, what is pushed down to the source and Spark's plan; run nothing",
    None,
    False,
)
PARTS = JobFlag(
    "partition-by",
    "folders of a table: topic, date, hour (default: topic,date)",
    str,
    ("topic", "date"),
    is_list=True,
)
REPORT = JobFlag("report", "write a page with charts there", metavar="FILE.html")

SHIP = JobFlag("ship", "send our packages to executors that do not have them", None, False)

EVERYWHERE = (FROM, SERVER, OPTIONS, MASTER, CONF, SHIP, EXPLAIN)
CHOOSING = (SINCE, UNTIL, WHERE)
STREAMING = (TO, TO_OPTIONS, FOLLOW, EVERY, CHECKPOINT, NAME, KEEP, ALLOW)


@dataclass(frozen=True, slots=True)
class Job:
    summary: str
    module: str
    function: str
    flags: tuple[JobFlag, ...]
    check: Callable[[Given], None] = checks.nothing_more
    """What can be said about the arguments before Spark starts. Raises BadSpec."""

    def load(self) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = getattr(
            import_module(f"turbopump.pipelines.jobs.{self.module}"), self.function
        )
        return found


JOBS = {
    "archive": Job(
        "topics or a store directory into a Delta or Parquet table",
        "transfer",
        "archive",
        (
            *EVERYWHERE,
            *CHOOSING,
            *STREAMING,
            PARTS,
            JobFlag("compact", "then make few large files of many small ones", None, False),
        ),
        checks.archive,
    ),
    "replay": Job(
        "messages of a table or store into a topic again, or to one group alone",
        "transfer",
        "replay",
        (
            *EVERYWHERE,
            *CHOOSING,
            *STREAMING,
            JobFlag("rate", "at most so many messages a second", _count, metavar="N"),
        ),
        checks.replay,
    ),
    "transform": Job(
        "Spark SQL from topics to topics or tables",
        "transfer",
        "transform",
        (
            *EVERYWHERE,
            *CHOOSING,
            *STREAMING,
            PARTS,
            JobFlag("sql", "a query over `messages`", metavar="SQL"),
            JobFlag("sql-file", "the same, in a file", metavar="FILE"),
            JobFlag(
                "json-body",
                "fields of JSON bodies as columns: their names and types, as `id long, who string`",
                metavar="DDL",
            ),
            JobFlag(
                "avro-body", "fields of Avro bodies as columns: a file with the schema", metavar="FILE.avsc"
            ),
        ),
        checks.transform,
    ),
    "dedupe": Job(
        "of messages with one key within a time, the first",
        "transfer",
        "drop_repeated",
        (
            *EVERYWHERE,
            *CHOOSING,
            *STREAMING,
            PARTS,
            JobFlag("by", "columns that make the key (default: keys)", str, ("keys",), is_list=True),
            JobFlag(
                "within",
                "messages with one key that were stored no further apart are repeated (default: 10 minutes)",
                _duration,
                _duration("10 minutes"),
                "SPAN",
            ),
            JobFlag(
                "remember",
                "how long a stream remembers a key after it was last seen (default: twice --within)",
                _duration,
                None,
                "SPAN",
            ),
        ),
        checks.dedupe,
    ),
    "dlq": Job(
        "dead letters: what failed together; redrive some; export them",
        "analysis",
        "dead_letters",
        (
            *EVERYWHERE,
            *CHOOSING,
            TO,
            TO_OPTIONS,
            REPORT,
            JobFlag("redrive", "send again those of which this SQL condition is true", metavar="SQL"),
            JobFlag("to-topic", "to the topic they were first sent to, not to the group alone", None, False),
        ),
        checks.dead_letters,
    ),
    "trace": Job(
        "how long messages took from producer to store to consumer, by their traces",
        "analysis",
        "trace",
        (
            *EVERYWHERE,
            *CHOOSING,
            REPORT,
            ALLOW,
            JobFlag("top", "how many of the slowest are shown (default: 20)", _count, 20, "N"),
        ),
        checks.trace,
    ),
    "stats": Job(
        "rates, sizes and skew by topic, queue, tag or key",
        "analysis",
        "count",
        (
            *EVERYWHERE,
            *CHOOSING,
            REPORT,
            EVERY,
            JobFlag(
                "by", "some of topic, broker, queue, tag, key (default: topic)", str, ("topic",), is_list=True
            ),
        ),
        checks.stats,
    ),
    "verify": Job(
        "consume queues of a store against its log, on as many cores as there are",
        "analysis",
        "verify",
        (*EVERYWHERE, *CHOOSING),
        checks.verify,
    ),
}
