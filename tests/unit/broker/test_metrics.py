"""`/metrics`: what Prometheus is told, read by a strict parser of its text format."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker import globals_kit
from tests.unit.broker.desk import CONFIG, Desk, running
from tests.unit.broker.metrics_kit import SWITCHES
from tests.unit.broker.producers import COMMIT, ROLLBACK, end, prepare

from turbopump.broker.config import ConfigError, MetricsConfig, load
from turbopump.broker.metrics.exposition import CONTENT_TYPE, Family, Histogram, lines
from turbopump.broker.metrics.replicas import ReplicaFigures
from turbopump.protocol.codes import RequestCode
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.testing.loop import run_virtual

HERE = Path(__file__).parent
DASHBOARD = HERE.parents[2] / "docs/grafana/turbopump.json"
ON = replace(CONFIG, metrics=MetricsConfig(exporter="PROM", port=5557))

# A parser of the text format, version 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9.e+]+|\+Inf|NaN)")
SUFFIXES = ("_bucket", "_count", "_sum")


@dataclass
class Parsed:
    kind: str
    words: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)

    def labels(self) -> set[str]:
        return {name for _, labels in self.samples for name, _ in labels} - {"le"}


def parse(text: str) -> dict[str, Parsed]:
    """Fails at whatever Prometheus would not take."""
    families: dict[str, Parsed] = {}
    words: dict[str, str] = {}
    current = ""
    assert text.endswith("\n") or not text
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, rest = line.split(" ", 3)
            assert name not in words, f"told twice: {name}"
            words[name] = rest
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in families, f"not in one piece: {name}"
            assert kind in ("counter", "gauge", "histogram")
            families[name] = Parsed(kind, words[name])
            current = name
        else:
            matched = SAMPLE.fullmatch(line)
            assert matched, line
            name = matched[1]
            family = families[current]
            is_part = family.kind == "histogram" and name.removeprefix(current) in SUFFIXES
            assert is_part or name == current, f"{name} among samples of {current}"
            labels = frozenset(re.findall(LABEL, matched[2] or ""))
            assert (name, labels) not in family.samples, f"twice: {line}"
            family.samples[name, labels] = float(matched[matched.lastindex or 0])
    for name, family in families.items():
        assert family.kind != "counter" or name.endswith("_total"), name
        if family.kind == "histogram":
            check_histogram(name, family)
    return families


def check_histogram(name: str, family: Parsed) -> None:
    buckets: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = defaultdict(list)
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            bound = float(dict(labels)["le"])
            buckets[frozenset(pair for pair in labels if pair[0] != "le")].append((bound, value))
    assert buckets
    for labels, counts in buckets.items():
        counts.sort()
        assert counts[-1][0] == float("inf")
        assert [count for _, count in counts] == sorted(count for _, count in counts), "counts grow"
        assert family.samples[f"{name}_count", labels] == counts[-1][1]
        assert (f"{name}_sum", labels) in family.samples


# A browser of one page


class Browser(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)


async def scrape(desk: Desk) -> dict[str, Parsed]:
    browser = await desk.broker._network.connect(Browser, "127.0.0.1", desk.broker.metrics_port)
    assert isinstance(browser, Browser)
    await browser.ended
    head, _, body = browser.got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert f"Content-Type: {CONTENT_TYPE}".encode() in head
    return parse(body.decode())


def value(family: Parsed, suffix: str = "", **labels: str) -> float:
    wanted = labels.items()
    found = [
        number
        for (name, having), number in family.samples.items()
        if name.endswith(suffix) and wanted <= dict(having).items()
    ]
    assert len(found) == 1, (labels, family.samples)
    return found[0]


async def heartbeat(desk: Desk, group: str = "readers", topic: str = "T") -> None:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
    }
    data = {
        "clientID": "c1",
        "producerDataSet": [{"groupName": "PG"}],
        "consumerDataSet": [consumer],
    }
    assert (await desk.ask(RequestCode.HEART_BEAT, body=json.dumps(data).encode())).code == 0


async def live(desk: Desk) -> None:
    """A little of everything that is counted."""
    for queue_id in (0, 0, 0, 1):
        await desk.send("T", b"x" * 2000, queue_id=queue_id)
    await heartbeat(desk)
    await desk.pull("T", 0, maxMsgNums=2)
    offset = {"consumerGroup": "readers", "topic": "T", "queueId": 0, "commitOffset": 1}
    await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
    back = {"offset": 0, "group": "readers", "originTopic": "T", "unitMode": "false", "delayLevel": -1}
    await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
    await make_topic(desk, "Made")
    for delay in (1, 500):
        await desk.send("Timed", pairs={"TIMER_DELAY_SEC": str(delay)})
    await asyncio.sleep(3)


async def make_topic(desk: Desk, name: str) -> int:
    ext = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    return (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code


async def live_with_kinds(desk: Desk) -> None:
    """Transactions, of which one stays open, and timers, of which one goes on waiting."""
    places = [await prepare(desk, b"%d" % number) for number in range(4)]
    await asyncio.sleep(7)
    for place, decision in zip(places, (COMMIT, COMMIT, ROLLBACK), strict=False):
        await end(desk, place, decision)
    for delay in (5, 500):
        await desk.send("Timed", pairs={"TIMER_DELAY_SEC": str(delay)})
    await asyncio.sleep(20)


def test_names_kinds_and_labels_are_those_of_apache() -> None:
    """The table is of Apache's broker 5.5.0 after the same requests."""
    apaches = {}
    for line in (HERE / "metrics-5.5.0.txt").read_text().splitlines():
        name, kind, labels = line.split(" ")
        apaches[name] = (kind, set(labels.split(",")))

    async def main() -> None:
        async with running(ON) as desk:
            await live(desk)
            ours = await scrape(desk)
        shared = {name: family for name, family in ours.items() if name.startswith("rocketmq_")}
        assert {name: (family.kind, family.labels()) for name, family in shared.items()} == {
            name: apaches[name] for name in shared
        }
        missing = {name.split("_")[1] for name in apaches.keys() - shared.keys()}
        assert missing == {"pop"}
        assert {name for name in ours.keys() - shared.keys() if not name.startswith("turbopump_")} == {
            "target_info"
        }
        (sample,) = ours["target_info"].samples.items()
        assert sample == (("target_info", frozenset()), 1)
        scopes = {dict(labels)["otel_scope_name"] for _, labels in shared["rocketmq_topic_number"].samples}
        assert scopes == {"broker-meter"}

    run_virtual(main())


@virtual
async def test_figures_are_true() -> None:
    async with running(ON) as desk:
        await live(desk)
        now = await scrape(desk)
        common = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
        assert value(now["rocketmq_messages_in_total"], topic="T", **common) == 4
        stored = value(now["rocketmq_throughput_in_total"], topic="T", message_type="normal")
        assert value(now["rocketmq_message_size"], "_sum", topic="T") == stored
        assert value(now["rocketmq_message_size"], topic="T", le="1024") == 0
        assert value(now["rocketmq_message_size"], topic="T", le="4096") == 4
        assert value(now["rocketmq_messages_out_total"], consumer_group="readers", topic="T") == 2
        assert value(now["rocketmq_producer_connections"], language="java", version="v5_5_0") == 1
        assert value(now["rocketmq_consumer_connections"], consumer_group="readers", consume_mode="push") == 1
        assert value(now["rocketmq_consumer_lag_messages"], consumer_group="readers") == 2
        assert value(now["rocketmq_consumer_inflight_messages"], consumer_group="readers") == 1
        assert value(now["rocketmq_consumer_ready_messages"], consumer_group="readers") == 1
        age = value(now["rocketmq_consumer_lag_latency_milliseconds"], consumer_group="readers")
        assert 3_000 <= age < 4_000
        assert value(now["rocketmq_storage_message_reserve_time_milliseconds"]) >= age
        assert value(now["rocketmq_send_to_dlq_messages_total"], consumer_group="readers", topic="T") == 1
        sends = {"request_code": "send_message_v2", "response_code": "success"}
        assert value(now["rocketmq_rpc_latency_milliseconds"], "_count", **sends) >= 4
        pulls = {"request_code": "pull_message", "is_long_polling": "false"}
        assert value(now["rocketmq_rpc_latency_milliseconds"], "_count", **pulls) == 1
        assert value(now["turbopump_connections"]) == 1


@virtual
async def test_transactions_and_timers_are_counted_by_the_topics_of_their_messages() -> None:
    """Names and labels as 5.5.0 shows them; ages are counted in seconds there, whatever the name says."""

    async with running(ON) as desk:
        await live_with_kinds(desk)
        now = await scrape(desk)
        assert value(now["rocketmq_half_messages"], topic="T") == 1
        assert value(now["rocketmq_commit_messages_total"], topic="T") == 2
        assert value(now["rocketmq_rollback_messages_total"], topic="T") == 1
        assert value(now["rocketmq_finish_message_latency_milliseconds"], topic="T", le="5") == 0
        assert value(now["rocketmq_finish_message_latency_milliseconds"], topic="T", le="60") == 2
        assert value(now["rocketmq_timing_messages"], topic="Timed") == 1
        assert value(now["rocketmq_timer_enqueue_total"], topic="Timed") == 2
        assert value(now["rocketmq_timer_dequeue_total"], topic="Timed") == 1
        assert value(now["rocketmq_timer_dequeue_lag"]) == 1
        assert value(now["rocketmq_timer_dequeue_latency_milliseconds"]) == 0
        assert value(now["rocketmq_timer_enqueue_latency_milliseconds"]) == 0
        snapshot = now["rocketmq_timer_message_snapshot"].samples
        found = {dict(labels)["timer_bound_s"]: number for (_, labels), number in snapshot.items()}
        bounds = ("5", "60", "300", "900", "3600", "14400", "28800", "86400")
        assert found == {bound: int(bound == "900") for bound in bounds}


@virtual
async def test_creating_topics_is_timed_by_how_it_ended() -> None:
    async with running(ON) as desk:
        assert await make_topic(desk, "Made") == 0
        assert await make_topic(desk, "Other") == 0
        assert await make_topic(desk, "TBW102") != 0
        family = (await scrape(desk))["rocketmq_topic_create_execution_time_milliseconds"]
        assert value(family, "_count", invocation_status="success", is_system="false") == 2
        assert value(family, "_count", invocation_status="failure", is_system="true") == 1
        assert value(family, invocation_status="success", le="5000") == 2


@virtual
async def test_a_pull_that_waited_and_an_answer_that_refused_are_counted_as_such() -> None:
    async with running(ON) as desk:
        await desk.send("T")
        waiting = asyncio.create_task(desk.pull("T", 1, sysFlag=6, suspendTimeoutMillis=2500))
        await asyncio.sleep(1)
        assert value((await scrape(desk))["turbopump_parked_pulls"]) == 1
        await waiting
        await desk.pull("No such topic", 0)
        latency = (await scrape(desk))["rocketmq_rpc_latency_milliseconds"]
        waited = {
            "request_code": "pull_message",
            "response_code": "pull_not_found",
            "is_long_polling": "true",
        }
        assert value(latency, "_count", **waited) == 1
        assert 2500 <= value(latency, "_sum", **waited) < 2600
        assert value(latency, "_count", response_code="topic_not_exist", is_long_polling="false") == 1


@virtual
async def test_the_type_of_messages_is_that_of_their_topic() -> None:
    """Apache looks at each message's properties, and so at the sharding key of every one."""

    async with running(ON) as desk:
        create = {"defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        create |= {"topicFilterType": "SINGLE_TAG", "order": "false"}
        for topic, kind in (("F", "FIFO"), ("U", "UNSPECIFIED")):
            ext = {"topic": topic, "attributes": f"+message.type={kind}"} | create
            assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == 0
        for topic in ("F", "U", "T"):
            await desk.send(topic)
        await desk.send("T", pairs={"DELAY": "1"})
        in_total = (await scrape(desk))["rocketmq_messages_in_total"]
        types = {dict(labels)["topic"]: dict(labels)["message_type"] for _, labels in in_total.samples}
        assert types == {"F": "fifo", "U": "normal", "T": "normal", "SCHEDULE_TOPIC_XXXX": "delay"}


@virtual
async def test_sizes_of_messages_that_wait_for_the_disk_are_counted_once_they_can_be_read() -> None:
    async with running(ON, flush_disk_type="SYNC_FLUSH") as desk:
        await desk.send("T")
        desk.workers.stall(3.0)
        sent = asyncio.create_task(desk.send("T"))
        await asyncio.sleep(0.5)
        in_total = (await scrape(desk))["rocketmq_messages_in_total"]
        assert value(in_total, topic="T") == 2
        await sent
        await asyncio.sleep(2)
        assert value((await scrape(desk))["rocketmq_message_size"], "_count", topic="T") == 2


def test_a_queue_that_cannot_be_read_does_not_end_the_counting_of_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with running(ON) as desk:
            with monkeypatch.context() as patched:
                patched.setattr(ConsumeQueue, "units", unreadable)
                await desk.send("T")
                await asyncio.sleep(12)
            await desk.send("T")
            await asyncio.sleep(12)
            assert value((await scrape(desk))["rocketmq_message_size"], "_count", topic="T") == 1

    def unreadable(queue: ConsumeQueue, first: int, count: int) -> bytes:
        raise OSError("Input/output error")

    run_virtual(main())


@virtual
async def test_what_is_switched_off_is_not_shown_from_then_on() -> None:
    async with running(ON) as desk:
        await live(desk)
        for key, name in SWITCHES.items():
            assert name in await scrape(desk)
            answer = await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}=false\n".encode())
            assert answer.code == 0, answer.remark
            assert name not in await scrape(desk)


@virtual
async def test_figures_of_a_deleted_topic_are_gone() -> None:
    async with running(ON) as desk:
        await live(desk)
        await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        for name, family in (await scrape(desk)).items():
            if name != "rocketmq_send_to_dlq_messages_total":
                assert not any(("topic", "T") in labels for _, labels in family.samples), name


@virtual
async def test_the_operators_labels_are_on_every_sample() -> None:
    config = replace(ON, metrics=replace(ON.metrics, labels=("rack:r1", "room:2 left")))
    async with running(config) as desk:
        families = await scrape(desk)
        del families["target_info"]  # Apache's has no labels at all
        for name, family in families.items():
            for _, labels in family.samples:
                assert {("rack", "r1"), ("room", "2 left")} <= labels, name


@virtual
async def test_nothing_is_served_unless_asked_for() -> None:
    async with running() as desk:
        with pytest.raises(ConnectionRefusedError):
            await desk.broker._network.connect(Browser, "127.0.0.1", 5557)


@pytest.mark.parametrize("kind", ["OTLP_GRPC", "LOG", "yes"])
def test_what_cannot_be_had_is_refused_with_what_can(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"metricsExporterType.*PROM"):
        load(f"metricsExporterType={kind}")


def test_labels_are_read() -> None:
    assert load("metricsLabel=a:b, c:d").config.metrics.labels == ("a:b", "c:d")
    for text in ("a", "a b:c", "1a:b", "a:b:c"):
        with pytest.raises(ConfigError):
            load(f"metricsLabel={text}")


# The text


def test_texts_are_escaped() -> None:
    histogram = Histogram((1, 10))
    for number in (0, 1, 2, 10, 11):
        histogram.add(number)
    families = [
        Family("a_total", "counter", "all\nof\\it", [({"x": 'say "\\n"\n'}, 3), ({}, 4)]),
        Family("empty", "gauge", "none", []),
        Family("h", "histogram", "sizes", [({"t": "T"}, histogram)]),
    ]
    text = "".join(line for family in families for line in lines(family, {"c": "é"}))
    parsed = parse(text)
    assert parsed["a_total"].words == "all\\nof\\\\it"
    assert set(parsed) == {"a_total", "h"}
    assert dict(next(iter(parsed["a_total"].samples))[1])["x"] == 'say \\"\\\\n\\"\\n'
    assert [value(parsed["h"], "_bucket", le=bound) for bound in ("1", "10", "+Inf")] == [2, 4, 5]
    assert value(parsed["h"], "_sum") == 24


@pytest.mark.parametrize(
    "text",
    [
        "a 1",
        "a 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\nb 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
        '# HELP a x\n# TYPE a gauge\na{b="c} 1\n',
        "# HELP a x\n# TYPE a counter\na 1\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total one\n",
    ],
)
def test_the_parser_is_strict(text: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        parse(text)


# The dashboard


def panels(node: Any) -> Iterator[dict[str, Any]]:
    for panel in node.get("panels", ()):
        yield panel
        yield from panels(panel)


def test_every_panel_of_the_dashboard_shows_a_metric_that_is_exported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in panels(dashboard) for target in panel.get("targets", ())]
    assert len(expressions) >= 15

    async def main() -> set[str]:
        async with running(ON) as desk:
            await live(desk)
            await live_with_kinds(desk)
            await globals_kit.begun(desk)
            await globals_kit.open_(desk)
            await globals_kit.decide(desk, "abort", "never-opened")
            found = await scrape(desk)
            assert desk.broker._replicas is not None
            # Those of slaves have no samples here.
            with_slaves = {family.name for family in await ReplicaFigures(desk.broker._replicas).families()}
        names = {name for (name, _) in (key for family in found.values() for key in family.samples)}
        return names | with_slaves

    exported = run_virtual(main())
    for expression in expressions:
        named = set(re.findall(r"\b(?:rocketmq|turbopump)_\w+", expression))
        assert named, expression
        assert named <= exported, named - exported
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles)
    assert len({panel["id"] for panel in panels(dashboard)}) == len(titles)


@virtual
async def test_global_transactions_are_counted_by_kind_and_state() -> None:
    async with running(ON) as desk:
        await globals_kit.begun(desk)
        await globals_kit.open_(desk, "first")
        await asyncio.sleep(7)
        await globals_kit.open_(desk, "second")
        await globals_kit.decide(desk, "commit", "second")
        await globals_kit.decide(desk, "abort", "never-opened")
        await globals_kit.decide(desk, "commit", "third")
        await globals_kit.append(desk, gid="third", state="ended", outcome="committed")
        await globals_kit.open_(desk, "fourth")
        await globals_kit.append(desk, gid="fourth", state="parked")
        await globals_kit.decide(desk, "commit", "fifth")
        await globals_kit.append(desk, gid="fifth", state="ended", outcome="any text")
        now = await scrape(desk)
        assert value(now["turbopump_global_open"], kind="tcc", state="open") == 1
        assert value(now["turbopump_global_open"], kind="tcc", state="decided") == 1
        assert value(now["turbopump_global_oldest_seconds"], kind="tcc") == 7
        assert value(now["turbopump_global_ended_total"], kind="tcc", outcome="aborted") == 1
        assert value(now["turbopump_global_ended_total"], kind="tcc", outcome="committed") == 2
        assert value(now["turbopump_global_seconds"], "_count", kind="tcc") == 3
        assert value(now["turbopump_global_parked"], kind="tcc") == 1
        assert value(now["turbopump_global_parked"], kind="xa") == 0
