"""Writes docs/pipelines-jobs.md from the catalog of jobs.

Run `python scripts/jobs_page.py` after a change of the catalog. A unit test fails when the page is not
current.
"""

from pathlib import Path

from turbopump.pipelines.jobs.catalog import JOBS

PAGE = Path(__file__).parent.parent / "docs" / "pipelines-jobs.md"

HEAD = """\
# Jobs on Spark

<!-- Written by scripts/jobs_page.py; change the catalog in src/turbopump/pipelines/jobs, not this page. -->

`turbopump pipeline JOB` reads messages at one end, does something to them on Spark, and writes at the other.
In a clone `pip install '.[spark]'` installs PySpark; Java 17 or newer is required.

    turbopump pipeline archive --from topic:OrderTopic --to delta:lake/orders
    turbopump pipeline stats --from log:data/store --by topic,tag --report stats.html
    turbopump pipeline replay --from delta:lake/orders --since 2026-11-01 --to group:billing --rate 500
    turbopump pipeline transform --from topic:OrderTopic --json-body "id long, amount double" \\
        --sql "SELECT keys, body FROM messages WHERE amount > 100" --to topic:LargeOrders
    turbopump pipeline dlq --from dlq:billing --redrive "tags = 'paid'"

A source or target is one word: `topic:A` (for reading, several with commas), `group:G` (the group's retry
topic: only that group gets the messages), `dlq:G` (its dead letters), `log:DIR` (a store directory, no broker
needed), `delta:DIR`, `parquet:DIR`.

A job that reads a topic is a stream with a checkpoint under `.turbopump/pipelines`: started again, it
continues where it ended. It processes the existing messages and ends; with `--follow` it runs until Ctrl-C.
From a topic to a topic or to Delta each row arrives exactly once. A job that reads files is one batch.

Progress goes to stderr, the result to stdout: tables for people, one document with `--json`. The exit status
is 1 when the job failed, found damage or dropped rows that `--allow` does not name, 2 when it was called
wrongly. Arguments, options and Java's version are checked before Spark starts.

## Rows that were read, written and dropped

The summary of a job that moves rows counts them over all micro-batches, for streams and batches alike:

| word | rows |
|---|---|
| `read` | from the source, within `--since`, `--until` and `--where` |
| `written` | passed to the target |
| `duplicate` | dropped by `dedupe` because one with the same key was kept |
| `late` | dropped by Spark because a watermark had passed them |
| `malformed` | with a body that `--json-body` or `--avro-body` cannot read, or a trace that cannot be read |
| `filtered` | for which `--where` is not true (counted for streams) |

`late` and `malformed` rows make the exit status 1, unless `--allow late,malformed` names them. A query that
names `bodyError` decides about malformed rows itself, and they are counted only.

## Whose checkpoint it is

A checkpoint holds the progress of one job. Beside Spark's files it has `turbopump-job.json`: job, source and
target, name servers, SQL, conditions, times as typed, and options of source and target. A job that differs in
any of these is refused, naming the difference, since it would use the progress of the other job and skip
rows. Then

- use `--name` or `--checkpoint`: a separate job, which begins at the start;
- or run the job as it was;
- or add `--keep-checkpoint`: the change applies from here on.

Options that do not change which rows arrive where may differ: `--follow`, `--every`, `--rate`, `--conf`,
`--master`, `failOnDataLoss`, `allowMissingBrokers`, and options about connections, timeouts and batch sizes.
A checkpoint of an earlier version, which has no such file, is accepted with a warning (that of `dedupe` is
refused: its state had another format). A Parquet directory that a stream with another checkpoint has written
is refused: Spark would skip the first batches without an error.

## Times

`--since` and `--until` are positions: the source begins and ends there and reads nothing else. On the command
line a time without a zone is local time, in a file it must have one; the job prints the zone it used. In
`delta:` and `parquet:` they are conditions on `storeTimestamp`. A stream that has a checkpoint continues from
there; `--since` counts only in its first run. `--explain` prints what is pushed down to the source, what
Spark does, and Spark's plan, and runs nothing.

## Repeated messages

`dedupe` keeps a message unless it already kept one with the same key that was stored within `--within`,
before or after it. A stream remembers keys for `--remember` after they were last seen, by the clock
(default: twice `--within`); a repeated message that comes later than that is written. How far queues lag
behind one another does not matter: no message is dropped because it is late. Messages without a key are
always written. The state of a stream has as many partitions as the session has cores when it first runs
(`--conf spark.sql.shuffle.partitions=N` changes that).

## Order

`replay` keeps the order of each queue: the messages of one queue go to one queue again. A message without a
sharding key gets the name of its queue as one. Rows of files from different queues are ordered by time.

## From a file

`turbopump pipeline run job.toml`, with the same names as the flags; flags on the command line win over the
file:

    job = "archive"
    from = "topic:OrderTopic"
    to = "delta:lake/orders"
    partition-by = ["topic", "date", "hour"]

    [options]          # of the source's format; to-options for the target's, conf for Spark's
    tags = "paid"

## In a program

The jobs consist of functions from DataFrame to DataFrame in `turbopump.pipelines.transforms`:
`dedupe.dedupe`, `bodies.json_body` and `avro_body`, `statistics.stats`, `rates` and `skew`,
`traces.deliveries` and `latencies`, `dead_letters.with_origin`, `failures` and `to_resend`.

## On a cluster

Only `--master spark://host:7077`, `yarn` or `k8s://...` changes for the job. Executors need our
packages: either they are installed there, or `--ship` sends them along; the executors' Python must then be of
the same version, on the same system. For your own program, `turbopump pipeline pack turbopump.tgz` creates
the archive and prints the options for `spark-submit`:

    spark-submit --master yarn --deploy-mode cluster \\
        --archives turbopump.tgz#turbopump --conf spark.executorEnv.PYTHONPATH=./turbopump \\
        --conf spark.yarn.appMasterEnv.PYTHONPATH=./turbopump JOB.py
    spark-submit --master k8s://https://cluster:6443 --deploy-mode cluster \\
        --conf spark.kubernetes.container.image=spark:4.2.0-python3 \\
        --archives s3a://bucket/turbopump.tgz#turbopump \\
        --conf spark.executorEnv.PYTHONPATH=./turbopump \\
        --conf spark.kubernetes.driverEnv.PYTHONPATH=./turbopump JOB.py

A program calls `turbopump.pipelines.register(spark)` before it names our formats: Spark does not find
packages from an archive by name. The standalone master is tested; YARN and Kubernetes are recipes.

## The jobs
"""


def page() -> str:
    parts = [HEAD]
    for name, job in JOBS.items():
        summary = job.summary[0].upper() + job.summary[1:]
        parts.append(f"\n### {name}\n\n{summary}.\n\n| flag | what it does |\n|---|---|\n")
        for flag in job.flags:
            word = f"--{flag.name.removesuffix('s') if flag.is_pairs else flag.name}"
            value = f" {flag.metavar or flag.key.upper()}" if flag.read is not None else ""
            parts.append(f"| `{word}{value}` | {flag.help} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
