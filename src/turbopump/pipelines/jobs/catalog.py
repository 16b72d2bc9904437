"""The table of all jobs, with the flags of each. Pure: Spark is imported when a job runs."""

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
    """Converts a duration such as `10m` to Spark's form, always in milliseconds."""
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
    "topic:A  group:G (the retry topic of this group alone)  delta:DIR  parquet:DIR",
    target,
    metavar="WHERE",
)
SERVER = JobFlag(
    "namesrv", "name servers, separated by ; (default: NAMESRV_ADDR or 127.0.0.1:9876)", metavar="ADDR"
)
OPTIONS = JobFlag("options", "an option of the source's format, NAME=VALUE", is_pairs=True, metavar="N=V")
TO_OPTIONS = JobFlag(
    "to-options", "an option of the target's format, NAME=VALUE", is_pairs=True, metavar="N=V"
)
MASTER = JobFlag("master", "Spark's master (default: local[*])", default="local[*]", metavar="URL")
CONF = JobFlag("conf", "a setting of Spark, NAME=VALUE", is_pairs=True, metavar="N=V")
SINCE = JobFlag(
    "since",
    "begin with messages stored at this time or later: 2026-11-01T12:00 (local time; a file must give the "
    "zone), "
    "2026-11-01T12:00Z, milliseconds since 1970, or an age such as 10m",
    metavar="TIME",
    is_time=True,
)
UNTIL = JobFlag(
    "until",
    "end before messages stored at this time or later, written as for --since",
    metavar="TIME",
    is_time=True,
)
WHERE = JobFlag("where", "only rows for which this SQL condition is true", metavar="SQL")
FOLLOW = JobFlag("follow", "do not end: continue with messages that arrive, until Ctrl-C", None, False)
EVERY = JobFlag(
    "every",
    "interval between batches of --follow, and in the charts of stats",
    _duration,
    _duration("1m"),
    "SPAN",
)
CHECKPOINT = JobFlag("checkpoint", "directory in which a stream records its progress", metavar="DIR")
NAME = JobFlag("name", "name of this run, by which its checkpoint is found again")
KEEP = JobFlag(
    "keep-checkpoint",
    "continue from the checkpoint although the job has changed since it was made",
    None,
    False,
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
    "print the source, what is pushed down to it, and Spark's plan; run nothing",
    None,
    False,
)
PARTS = JobFlag(
    "partition-by",
    "partition columns of a table: topic, date, hour (default: topic,date)",
    str,
    ("topic", "date"),
    is_list=True,
)
REPORT = JobFlag("report", "write an HTML page with charts to this file", metavar="FILE.html")

SHIP = JobFlag("ship", "send the packages of turbopump to executors that do not have them", None, False)

EVERYWHERE = (FROM, SERVER, OPTIONS, MASTER, CONF, SHIP, EXPLAIN)
CHOOSING = (SINCE, UNTIL, WHERE)
STREAMING = (TO, TO_OPTIONS, FOLLOW, EVERY, CHECKPOINT, NAME, KEEP, ALLOW)


@dataclass(frozen=True, slots=True)
class Job:
    """One job: its summary, the function that runs it, its flags and its checks."""

    summary: str
    module: str
    function: str
    flags: tuple[JobFlag, ...]
    check: Callable[[Given], None] = checks.nothing_more
    """Checks the arguments before Spark starts. Raises BadSpec."""

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
            JobFlag("compact", "afterwards merge small files into large ones", None, False),
        ),
        checks.archive,
    ),
    "replay": Job(
        "messages of a table, store or topic into a topic, or to one group alone",
        "transfer",
        "replay",
        (
            *EVERYWHERE,
            *CHOOSING,
            *STREAMING,
            JobFlag("rate", "largest number of messages per second", _count, metavar="N"),
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
            JobFlag("sql-file", "a file with the query", metavar="FILE"),
            JobFlag(
                "json-body",
                "fields of JSON bodies as columns: names and types such as `id long, city string`",
                metavar="DDL",
            ),
            JobFlag(
                "avro-body", "fields of Avro bodies as columns: a file with the schema", metavar="FILE.avsc"
            ),
        ),
        checks.transform,
    ),
    "dedupe": Job(
        "drops repeated messages: of those with the same key within a time, the first is kept",
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
                "messages with the same key stored no further apart than this are repeated (default: 10 "
                "minutes)",
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
        "dead letters: which failed alike; send some again; export them",
        "analysis",
        "dead_letters",
        (
            *EVERYWHERE,
            *CHOOSING,
            TO,
            TO_OPTIONS,
            REPORT,
            JobFlag(
                "redrive", "send again the dead letters for which this SQL condition is true", metavar="SQL"
            ),
            JobFlag(
                "to-topic", "send them to their original topic instead of to the group alone", None, False
            ),
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
            JobFlag("top", "number of the slowest messages to show (default: 20)", _count, 20, "N"),
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
        "compares the consume queues of a store with its log, on all cores",
        "analysis",
        "verify",
        (*EVERYWHERE, *CHOOSING),
        checks.verify,
    ),
}
"""Name of a job → the job."""
