"""Jobs that analyse messages: stats, trace, dlq, verify.

Their result is a table, a page with charts, or JSON.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.pipelines.jobs import endpoint_io
from turbopump.pipelines.jobs.checks import GROUPS
from turbopump.pipelines.jobs.counts import RowCounts
from turbopump.pipelines.jobs.display import JobResult, ResultTable, Row
from turbopump.pipelines.jobs.job_run import JobRun
from turbopump.pipelines.jobs.report import BarChart, Chart, LineChart, page
from turbopump.pipelines.transforms.dead_letters import failures, to_resend, with_origin
from turbopump.pipelines.transforms.statistics import one_by_key, rates, skew, stats
from turbopump.pipelines.transforms.traces import UNREADABLE, deliveries, latencies, traces

MAX_REPORT_ROWS = 1000  # of a table
UNSETTLED_INTERVAL = (
    "INTERVAL 30 SECONDS"  # messages that a running broker may not have in its queue files yet
)


def count(run: JobRun) -> JobResult:
    """Runs the job `stats`: counts messages by the columns that `by` names, with sizes, rates and skew."""
    names = [GROUPS[word] for word in run.given["by"]]
    if run.given["explain"]:
        return run.explained(lambda rows: stats(one_by_key(rows) if "key" in names else rows, names), {})
    rows = run.rows()
    if "key" in names:
        rows = one_by_key(rows)
    rows = rows.cache()
    try:
        with run.progress():
            counted = stats(rows, names).cache()
            groups = run.table("groups", f"By {', '.join(run.given['by'])}", counted, MAX_REPORT_ROWS)
            evenness = run.table("skew", "Skew", skew(counted))
            over_time = run.table("rates", "Over time", rates(rows, run.given["every"], names[:1]))
    finally:
        rows.unpersist()
    whole = {name: value for name, value in evenness.rows[0].items() if name in ("groups", "messages")}
    outcome = JobResult({"from": str(run.source()), **whole}, [groups, evenness, over_time])
    bars = BarChart("Messages", [(_name(row, names), row["messages"]) for row in groups.rows])
    _report(run, outcome, [bars, _lines(over_time, names[0])])
    return outcome


def _name(row: Row, names: Sequence[str]) -> str:
    return " ".join(str(row[name]) for name in names)


def _lines(table: ResultTable, name: str) -> LineChart:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in table.rows:
        series.setdefault(str(row[name]), []).append((row["start"].timestamp(), row["messages"]))
    largest = sorted(series.items(), key=lambda one: -sum(value for _, value in one[1]))
    return LineChart("Messages over time", largest)


def trace(run: JobRun) -> JobResult:
    """Runs the job `trace`: measures how long messages took, from what clients wrote into the trace topic."""
    if run.given["explain"]:
        return run.explained(lambda rows: latencies(deliveries(traces(rows))), {})
    with run.progress():
        records = traces(run.rows()).cache()
        malformed = records.where(F.col("type") == UNREADABLE).count()
        each = deliveries(records).cache()
        groups = run.table("latencies", "Milliseconds by topic and consumer group", latencies(each))
        slowest = run.table("slowest", "Slowest", each.orderBy(F.desc("waitMs")), run.given["top"])
    summary = {"from": str(run.source()), "deliveries": each.count(), "malformed": malformed}
    outcome = run.checked_for_drops(JobResult(summary, [groups, slowest]), RowCounts(malformed=malformed))
    waits = [(f"{row['topic']} → {row['consumerGroup']}", row["waitMsP99"] or 0) for row in groups.rows]
    _report(run, outcome, [BarChart("Wait until consumed, p99 in ms", waits)])
    return outcome


def dead_letters(run: JobRun) -> JobResult:
    """Runs the job `dlq`: counts dead letters that failed alike, exports them or sends them again."""
    if run.given["explain"]:
        return run.explained(lambda rows: failures(with_origin(rows)), _with_ids(run))
    dead = with_origin(run.rows(**_with_ids(run))).cache()
    with run.progress():
        found = run.table("failures", "Failed alike", failures(dead))
        summary: dict[str, Any] = {"from": str(run.source()), "letters": dead.count()}
    if run.given["to"] is not None:
        endpoint_io.write(dead, run.given["to"], run.name_server, run.given["to_options"], ())
        summary["exportedTo"] = str(run.given["to"])
    if run.given["redrive"]:
        summary["sentAgain"] = _redrive(run, dead)
    outcome = JobResult(summary, [found])
    bars = [
        (f"{row['originTopic']} {row['tags'] or ''} → {row['consumerGroup']}", row["letters"])
        for row in found.rows
    ]
    _report(run, outcome, [BarChart("Letters", bars)])
    return outcome


def _with_ids(run: JobRun) -> dict[str, str]:
    """Returns the option `columns` that dead letters need; empty for archived files, which have all."""
    columns = "topic,msgId,offsetMsgId,tags,keys,body,storeTimestamp,reconsumeTimes,properties"
    return {"columns": columns} if run.source().kind in ("dlq", "log") else {}


def _redrive(run: JobRun, dead: DataFrame) -> int:
    rows = to_resend(dead.where(run.given["redrive"]), run.given["to_topic"]).cache()
    options = {"nameServer": run.name_server, **run.given["to_options"]}
    with run.progress():
        rows.write.format("rocketmq").options(**options).mode("append").save()
    return int(rows.count())


def verify(run: JobRun) -> JobResult:
    """Runs the job `verify`: compares the consume queues of a store with its log, in both directions."""
    place = ["topic", "queueId", "queueOffset", "commitLogOffset", "storeSize"]
    given = {"columns": ",".join([*place, "storeTimestamp"]), "includeSystemTopics": "true"}
    if run.given["explain"]:
        return run.explained(lambda rows: rows.select(*place), given)
    by_queue, by_log = run.rows(**given, scan="queue"), run.rows(**given, scan="log")
    settled = by_log.where(F.col("storeTimestamp") < F.current_timestamp() - F.expr(UNSETTLED_INTERVAL))
    with run.progress():
        missing = run.table(
            "notInQueue", "In the log, not in its queue", _only(settled, by_queue, place), MAX_REPORT_ROWS
        )
        dangling = run.table(
            "notInLog", "In a queue, not in the log", _only(by_queue, by_log, place), MAX_REPORT_ROWS
        )
        messages = by_log.count()
    summary = {"from": str(run.source()), "messages": messages}
    is_bad = bool(missing.rows or dangling.rows)
    return JobResult(summary | {"isSound": not is_bad}, [missing, dangling] if is_bad else [], is_bad)


def _only(these: DataFrame, others: DataFrame, place: list[str]) -> DataFrame:
    return these.join(others, place, "left_anti").orderBy(*place)


def _report(run: JobRun, outcome: JobResult, charts: Sequence[Chart]) -> None:
    where = run.given["report"]
    if where:
        title = f"{run.job} of {run.source()}"
        Path(where).write_text(page(title, outcome, charts), "utf-8")
        run.screen.note(f"report: {where}")
